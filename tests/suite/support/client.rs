//! Clients, on the connections that `ETCD_TEST_CONNECTION` names: `ours`, or `theirs`, etcd-client's.

use etcd_client::{Client, ConnectOptions, Error};

/// A client of these endpoints, unconfigured.
pub async fn connect(endpoints: &[String]) -> Client {
    let client = connect_with(endpoints, None).await;
    client.expect("a client without a user needs no answer")
}

/// A client of these endpoints.
pub async fn connect_with<E: AsRef<str>>(
    endpoints: &[E],
    options: Option<ConnectOptions>,
) -> Result<Client, Error> {
    match std::env::var("ETCD_TEST_CONNECTION").as_deref() {
        Ok("ours") => etcd_lock::connect(endpoints, options).await,
        Ok("theirs") | Err(_) => Client::connect(endpoints, options).await,
        Ok(other) => panic!("ETCD_TEST_CONNECTION is {other:?}; there are \"ours\" and \"theirs\""),
    }
}

/// A client that sends each request to one or another of these endpoints by chance, for tests that need it so.
pub async fn scattering(endpoints: &[String]) -> Client {
    let client = Client::connect(endpoints, None).await;
    client.expect("a client without a user needs no answer")
}
