//! The etcd that `ci/with-etcd` has started, and what it says in numbers.

use crate::{Result, support};
use etcd_lock::etcd_client::{Client, CompactionOptions};

pub fn endpoints() -> Result<Vec<String>> {
    let endpoints = std::env::var("ETCD_ENDPOINTS")
        .map_err(|_| "no ETCD_ENDPOINTS; run this as `ci/with-etcd cargo bench`")?;
    Ok(endpoints.split(',').map(str::to_owned).collect())
}

/// A client of etcd-client's making.
pub async fn theirs() -> Result<Client> {
    Ok(Client::connect(endpoints()?, None).await?)
}

/// A client on a connection of our own.
pub async fn ours() -> Result<Client> {
    Ok(etcd_lock::connect(endpoints()?, None).await?)
}

/// Makes it forget the past. Every put and delete stays in its index until then and slows it down: after two million
/// of them, which is less than a minute, it makes half as many.
pub async fn compact(client: &Client) -> Result<()> {
    let put = client.kv_client().put("bench/compacted", "", None).await?;
    let revision = put.header().ok_or("a header")?.revision();
    let physical = Some(CompactionOptions::new().with_physical());
    client.kv_client().compact(revision, physical).await?;
    Ok(())
}

/// What it says, as text.
pub async fn page() -> Result<String> {
    let endpoints = endpoints()?;
    let port = endpoints[0].rsplit(':').next().ok_or("a port")?.parse()?;
    Ok(support::page(port).await)
}

/// The sum of a metric over all its labels.
pub async fn metric(name: &str) -> Result<f64> {
    Ok(support::sum(&page().await?, name, ""))
}
