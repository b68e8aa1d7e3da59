//! What a Prometheus would get from this process.

use std::collections::BTreeMap;

use metrics_exporter_prometheus::PrometheusBuilder;

use super::metrics::{page, samples};
use super::ports::Port;
use super::wait::{ensure, soon};

/// The recorder of this process, scraped over HTTP. One per process, and so one per test.
pub struct Exporter(Port);

impl Exporter {
    /// Installs it on this runtime.
    pub fn install() -> Self {
        let port = Port::take();
        PrometheusBuilder::new()
            .with_http_listener(port.addr())
            .set_buckets(&[0.01, 0.1, 1.0, 10.0])
            .and_then(PrometheusBuilder::install)
            .expect("the exporter starts");
        Self(port)
    }

    /// All samples by their names and labels, such as `etcd_lock_held{name="a"}`.
    pub async fn scrape(&self) -> BTreeMap<String, f64> {
        let page = page(self.0.number()).await;
        let samples = samples(&page).map(|(id, value)| (id.to_owned(), value));
        samples.collect()
    }

    /// One sample, 0 if there is none.
    pub async fn value(&self, id: &str) -> f64 {
        self.scrape().await.get(id).copied().unwrap_or(0.0)
    }

    /// Waits until a sample has this value.
    pub async fn soon(&self, id: &str, wanted: f64) {
        soon(id, async || {
            let all = self.scrape().await;
            let value = all.get(id).copied().unwrap_or(0.0);
            ensure(
                (value - wanted).abs() < 1e-9,
                format!("{value} in {all:#?}"),
            )
        })
        .await;
    }
}
