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
        sum(&self.metrics().await, name, label)
    }

    /// How many streams of a gRPC method, such as `Watch`, are open.
    pub async fn open_streams(&self, method: &str) -> f64 {
        open_streams(&self.metrics().await, method)
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

/// Sum over the samples of a metric on such a page: over those whose labels contain `label`, or over all, with or without
/// labels, if that is empty.
pub fn sum(page: &str, name: &str, label: &str) -> f64 {
    let fits = |id: &str| match id.strip_prefix(name) {
        Some("") => label.is_empty(),
        Some(rest) => rest.starts_with('{') && rest.contains(label),
        None => false,
    };
    let samples = samples(page).filter(|(id, _)| fits(id));
    samples.map(|(_, value)| value).sum()
}

/// How many streams of a gRPC method are open, by such a page.
pub fn open_streams(page: &str, method: &str) -> f64 {
    let label = format!("grpc_method=\"{method}\"");
    let calls = |what| sum(page, what, &label);
    calls("grpc_server_started_total") - calls("grpc_server_handled_total")
}

pub(super) fn samples(page: &str) -> impl Iterator<Item = (&str, f64)> {
    let lines = page.lines().filter(|line| !line.starts_with('#'));
    lines
        .filter_map(|line| line.rsplit_once(' '))
        .filter_map(|(id, value)| Some((id, value.parse().ok()?)))
}
