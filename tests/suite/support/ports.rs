//! Ports on 127.0.0.1 that nobody else is given for as long as we keep them.

use std::net::{Ipv4Addr, SocketAddr};

use tokio::net::{TcpListener, TcpSocket};

/// A port chosen by the kernel and kept by a bound socket that never listens.
///
/// With `SO_REUSEADDR` on both sides (Go sets it, too) another socket may bind and listen there, while the kernel
/// gives the port to no other test, and to no outgoing connection, even while the server is down.
pub struct Port {
    number: u16,
    _kept: TcpSocket,
}

impl Port {
    /// Takes a free port.
    pub fn take() -> Self {
        let kept = socket();
        kept.bind((Ipv4Addr::LOCALHOST, 0).into())
            .expect("a free port");
        let number = kept.local_addr().expect("bound").port();
        Self {
            number,
            _kept: kept,
        }
    }

    /// Its number.
    pub fn number(&self) -> u16 {
        self.number
    }

    /// Its address.
    pub fn addr(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.number).into()
    }

    /// `http://127.0.0.1:port`
    pub fn url(&self) -> String {
        format!("http://{}", self.addr())
    }
}

/// Listens in this process on a port taken before.
pub fn listen(addr: SocketAddr) -> TcpListener {
    let socket = socket();
    socket.bind(addr).expect("the port is kept for us");
    socket.listen(4096).expect("nobody else listens there")
}

fn socket() -> TcpSocket {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_reuseaddr(true).expect("SO_REUSEADDR");
    socket
}
