//! How an etcd member or cluster is started.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::cluster::Cluster;
use super::etcd::Member;
use super::links::Links;
use super::pki::{Pki, Signed};
use super::ports::Port;

/// Timings and further flags of an etcd that is to be started.
#[derive(Clone)]
pub struct Setup {
    heartbeat_ms: u32,
    election_ms: u32,
    args: Vec<String>,
    tls: Option<Pki>,
}

impl Default for Setup {
    /// The timings of the field (100 ms, 1 s): the smallest TTL granted is 2 s.
    fn default() -> Self {
        Self {
            heartbeat_ms: 100,
            election_ms: 1000,
            args: Vec::new(),
            tls: None,
        }
    }
}

impl Setup {
    /// Sets heartbeat and election timeout; the smallest TTL is 3/2 of the latter, rounded up to seconds.
    pub fn timing(self, heartbeat_ms: u32, election_ms: u32) -> Self {
        Self {
            heartbeat_ms,
            election_ms,
            ..self
        }
    }

    /// Starts in half the time, still with a smallest TTL of 2 s.
    pub fn quick(self) -> Self {
        self.timing(50, 700)
    }

    /// Adds a flag of etcd, such as `--auth-token=simple`; of a flag given twice the last one counts.
    pub fn arg(mut self, arg: impl Into<String>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Serves over TLS, too, each member at an address of its own, to clients that show a certificate.
    pub fn tls(mut self, pki: &Pki) -> Self {
        self.tls = Some(pki.clone());
        self
    }

    /// Starts a single member and waits until it serves.
    pub async fn one(self) -> Member {
        self.members(1).await.remove(0)
    }

    /// Starts a cluster and waits until every member serves.
    pub async fn many(self, size: usize) -> Cluster {
        Cluster {
            members: self.members(size).await,
        }
    }

    /// Starts a cluster whose members reach each other through lines that can fail, and waits until every member serves.
    pub async fn linked(self, size: usize) -> (Cluster, Links) {
        let gates: Vec<_> = (0..size).map(|_| Port::take()).collect();
        let ports: Vec<_> = (0..size).map(|_| two_ports()).collect();
        let urls = gates.iter().map(Port::url).collect();
        let behind: Vec<_> = ports.iter().map(|[_, peer]| peer.url()).collect();
        let members = self.prepare(ports, urls);
        let links = Links::open(gates, &behind, &members).await;
        let members = started(members).await;
        (Cluster { members }, links)
    }

    async fn members(self, size: usize) -> Vec<Member> {
        let ports: Vec<_> = (0..size).map(|_| two_ports()).collect();
        let urls = ports.iter().map(|[_, peer]| peer.url()).collect();
        started(self.prepare(ports, urls)).await
    }

    /// Members with these ports for clients and peers, who reach each other at these urls.
    fn prepare(&self, ports: Vec<[Port; 2]>, urls: Vec<String>) -> Vec<Member> {
        let peers = urls.iter().enumerate();
        let peers: Vec<_> = peers.map(|(i, url)| format!("m{i}={url}")).collect();
        // Unique on this machine for as long as the port is ours.
        let token = format!("{}-{}", urls[0], std::process::id());
        let cluster = [
            ("--initial-cluster", peers.join(",")),
            ("--initial-cluster-token", token),
        ];
        let members = ports.into_iter().zip(urls).enumerate();
        members
            .map(|(i, (ports, url))| self.member(i, ports, url, &cluster))
            .collect()
    }

    fn member(
        &self,
        i: usize,
        [client, peer]: [Port; 2],
        url: String,
        cluster: &[(&str, String)],
    ) -> Member {
        let dir = tempfile::Builder::new()
            .prefix("etcd-lock-")
            .tempdir_in(roomy());
        let dir = dir.expect("a directory for etcd's data");
        let flags = [
            ("--name", format!("m{i}")),
            ("--data-dir", dir.path().join("data").display().to_string()),
            ("--listen-client-urls", client.url()),
            ("--advertise-client-urls", client.url()),
            ("--listen-peer-urls", peer.url()),
            ("--initial-advertise-peer-urls", url.clone()),
            ("--heartbeat-interval", self.heartbeat_ms.to_string()),
            ("--election-timeout", self.election_ms.to_string()),
            ("--logger", "zap".to_owned()),
            ("--log-outputs", "stderr".to_owned()),
            // The gateway would be a client connection of its own.
            ("--enable-grpc-gateway", "false".to_owned()),
        ];
        let flags = flags
            .iter()
            .chain(cluster)
            .map(|(flag, value)| format!("{flag}={value}"));
        let mut args: Vec<_> = flags.chain(self.args.iter().cloned()).collect();
        let https = self.tls.as_ref().map(|pki| {
            let (port, ip) = (Port::take(), format!("127.0.0.{}", i + 1));
            let url = format!("https://{ip}:{}", port.number());
            args.extend(over_tls(pki, &ip, &client.url(), &url));
            (url, port)
        });
        Member::new(format!("m{i}"), [client, peer], https, url, args, dir)
    }
}

fn two_ports() -> [Port; 2] {
    [Port::take(), Port::take()]
}

async fn started(members: Vec<Member>) -> Vec<Member> {
    members.iter().for_each(Member::spawn);
    for member in &members {
        member.ready().await;
    }
    members
}

/// Flags with which a member serves at both urls.
fn over_tls(pki: &Pki, ip: &str, http: &str, https: &str) -> [String; 5] {
    let Signed { cert, key } = pki.sign(ip);
    [
        format!("--listen-client-urls={http},{https}"),
        format!("--cert-file={}", cert.display()),
        format!("--key-file={}", key.display()),
        format!("--trusted-ca-file={}", pki.ca().display()),
        "--client-cert-auth=true".to_owned(),
    ]
}

/// Where data goes: to memory if there is enough (etcd takes 128 MB at once), as what is tested is not the disk.
fn roomy() -> PathBuf {
    let memory = Path::new("/dev/shm");
    let df = Command::new("df")
        .args(["-k", "--output=avail"])
        .arg(memory)
        .output();
    let free = df.ok().and_then(|df| {
        String::from_utf8(df.stdout)
            .ok()?
            .lines()
            .nth(1)?
            .trim()
            .parse::<u64>()
            .ok()
    });
    let writable = tempfile::tempfile_in(memory).is_ok();
    if writable && free.is_some_and(|kilobytes| kilobytes > 2_000_000) {
        memory.into()
    } else {
        std::env::temp_dir()
    }
}
