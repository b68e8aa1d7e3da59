//! What is in the store.

use std::sync::atomic::{AtomicU32, Ordering};

use etcd_client::{Client, GetOptions, SortOrder, SortTarget};

/// The keys under a prefix, oldest first.
pub async fn keys(client: &Client, prefix: &str) -> Vec<String> {
    let options = GetOptions::new()
        .with_prefix()
        .with_keys_only()
        .with_sort(SortTarget::Create, SortOrder::Ascend);
    let answer = client
        .kv_client()
        .get(prefix, Some(options))
        .await
        .expect("the store can be read");
    answer
        .kvs()
        .iter()
        .map(|kv| kv.key_str().expect("keys are text").to_owned())
        .collect()
}

/// The ids of all leases, in order.
pub async fn leases(client: &Client) -> Vec<i64> {
    let answer = client
        .lease_client()
        .leases()
        .await
        .expect("the leases can be listed");
    let mut ids: Vec<_> = answer
        .leases()
        .iter()
        .map(etcd_client::LeaseStatus::id)
        .collect();
    ids.sort_unstable();
    ids
}

/// A name that no other test uses.
pub fn unique(stem: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!(
        "{stem}-{}-{}",
        std::process::id(),
        NEXT.fetch_add(1, Ordering::Relaxed)
    )
}
