//! What a member says about itself in numbers, and how many clients hang on it.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::etcd::Member;

impl Member {
    /// The page `/metrics`.
    pub async fn metrics(&self) -> String {
        page(self.port()).await
    }

    /// A metric without labels, such as `etcd_debugging_mvcc_watcher_total`.
    pub async fn metric(&self, name: &str) -> f64 {
        let page = self.metrics().await;
        let value = samples(&page)
            .find(|(id, _)| *id == name)
            .map(|(_, value)| value);
        value.unwrap_or_else(|| panic!("no metric {name} without labels"))
    }

    /// Sum over the samples of a metric whose labels contain `label`, such as `grpc_method="Txn"`; 0 if there is none.
    pub async fn metric_sum(&self, name: &str, label: &str) -> f64 {
        let page = self.metrics().await;
        let fits = |id: &str| {
            id.strip_prefix(name)
                .is_some_and(|rest| rest.starts_with('{') && rest.contains(label))
        };
        samples(&page)
            .filter(|(id, _)| fits(id))
            .map(|(_, value)| value)
            .sum()
    }

    /// How many calls of a gRPC method, such as `Txn`, have been started here (a stream is one call).
    pub async fn calls(&self, method: &str) -> f64 {
        self.metric_sum(
            "grpc_server_started_total",
            &format!("grpc_method=\"{method}\""),
        )
        .await
    }

    /// How many TCP connections clients have with it; those that it has not accepted yet, being frozen, count.
    pub fn connections(&self) -> usize {
        let local = format!("0100007F:{:04X}", self.port());
        let table =
            std::fs::read_to_string("/proc/net/tcp").expect("the kernel's table of connections");
        let established = |line: &&str| {
            let mut fields = line.split_whitespace().skip(1);
            fields.next() == Some(local.as_str()) && fields.nth(1) == Some("01")
        };
        table.lines().filter(established).count()
    }
}

/// The page `/metrics` of whoever listens there.
pub async fn page(port: u16) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port))
        .await
        .expect("somebody listens");
    stream
        .write_all(b"GET /metrics HTTP/1.0\r\nHost: local\r\n\r\n")
        .await
        .expect("the request is sent");
    let mut answer = String::new();
    stream
        .read_to_string(&mut answer)
        .await
        .expect("the answer is text");
    let (head, body) = answer.split_once("\r\n\r\n").expect("an HTTP answer");
    assert!(head.starts_with("HTTP/1.0 200"), "{head}");
    body.to_owned()
}

pub fn samples(page: &str) -> impl Iterator<Item = (&str, f64)> {
    let lines = page.lines().filter(|line| !line.starts_with('#'));
    lines
        .filter_map(|line| line.rsplit_once(' '))
        .filter_map(|(id, value)| Some((id, value.parse().ok()?)))
}
