//! Lines between the members of a cluster, each of which can fail by itself.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::etcd::Member;
use super::ports::{Port, listen};
use super::proxy::Proxy;

/// A gate before every member, at which the others knock, and behind it a line for each of them.
///
/// All members of a cluster must know the same address of a member, so the address does not tell who comes. The kernel
/// does: it knows whose socket the other end is.
pub struct Links {
    /// By who opens connections on it, and to whom. What a member sends flows on both kinds: as requests on its own
    /// connections, and as answers on those of the others, who ask for its stream of messages.
    lines: BTreeMap<(usize, usize), Proxy>,
    gates: Vec<JoinHandle<()>>,
    /// Nobody else is given them.
    ports: Vec<Port>,
}

impl Links {
    /// Opens a gate at each port; the members serve their peers at the urls.
    pub(super) async fn open(ports: Vec<Port>, urls: &[String], members: &[Member]) -> Self {
        let (mut lines, mut gates) = (BTreeMap::new(), Vec::new());
        for (to, (port, url)) in ports.iter().zip(urls).enumerate() {
            let mut ways = Vec::new();
            for (from, member) in members.iter().enumerate() {
                if from != to {
                    let line = Proxy::to(url).await;
                    ways.push((member.latest_pid(), line.addr()));
                    lines.insert((from, to), line);
                }
            }
            gates.push(tokio::spawn(gate(listen(port.addr()), port.addr(), ways)));
        }
        Self {
            lines,
            gates,
            ports,
        }
    }

    /// The lines on which a member talks with the others.
    pub fn of(&self, member: usize) -> impl Iterator<Item = &Proxy> {
        let lines = self.lines.iter();
        let of = lines.filter(move |((from, to), _)| *from == member || *to == member);
        of.map(|(_, line)| line)
    }

    /// Makes all lines sound.
    pub fn heal(&self) {
        self.lines.values().for_each(Proxy::heal);
    }
}

impl Drop for Links {
    fn drop(&mut self) {
        self.gates.iter().for_each(JoinHandle::abort);
    }
}

/// Sends every connection down the line of the process that it comes from.
async fn gate(listener: TcpListener, gate: SocketAddr, ways: Vec<(Arc<AtomicI32>, SocketAddr)>) {
    loop {
        let (connection, from) = listener.accept().await.expect("a connection");
        let way = |(pid, _): &&(Arc<AtomicI32>, _)| has_socket(pid.load(Relaxed), from, gate);
        // Nobody's, if the process has died meanwhile.
        if let Some((_, line)) = ways.iter().find(way) {
            tokio::spawn(carry(connection, *line));
        }
    }
}

async fn carry(mut connection: TcpStream, line: SocketAddr) {
    let carried = match TcpStream::connect(line).await {
        Ok(mut line) => {
            let quick = connection.set_nodelay(true).and(line.set_nodelay(true));
            let carried = copy_bidirectional(&mut connection, &mut line).await;
            quick.is_ok() && carried.is_ok()
        }
        Err(_) => false,
    };
    if !carried {
        // Dropped like this, a socket sends RST.
        connection.set_zero_linger().ok();
    }
}

/// True if one of the process's sockets is the end of the connection from `local` to `remote`.
fn has_socket(pid: i32, local: SocketAddr, remote: SocketAddr) -> bool {
    let hex = |addr: SocketAddr| format!("0100007F:{:04X}", addr.port());
    let (local, remote) = (hex(local), hex(remote));
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap_or_default();
    let inode = table.lines().find_map(|line| {
        let fields: Vec<_> = line.split_whitespace().collect();
        let is_it = *fields.get(1)? == local && *fields.get(2)? == remote;
        is_it.then(|| format!("socket:[{}]", fields[9]))
    });
    let (Some(inode), Ok(files)) = (inode, std::fs::read_dir(format!("/proc/{pid}/fd"))) else {
        return false;
    };
    let mut targets = files.flatten().map(|file| std::fs::read_link(file.path()));
    targets.any(|target| target.is_ok_and(|target| target.as_os_str() == &*inode))
}
