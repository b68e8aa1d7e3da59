//! etcd in containers, which go with the test.

use std::collections::HashMap;
use std::time::Duration;

use etcd_client::Client;
use testcontainers::bollard::Docker;
use testcontainers::bollard::models::{
    NetworkConnectRequest, NetworkDisconnectRequest, PortBinding,
};
use testcontainers::bollard::query_parameters::KillContainerOptions;
use testcontainers::core::IntoContainerPort;
use testcontainers::runners::AsyncRunner;
use testcontainers::{ContainerAsync, ContainerRequest, GenericImage, ImageExt};
use tokio::time::timeout;

use crate::support::{Port, connect, ensure, soon, unique, within};

const LOOK: Duration = Duration::from_secs(2);
const PATIENCE: Duration = Duration::from_secs(60);

/// One etcd in a container.
pub struct Node {
    container: ContainerAsync<GenericImage>,
    network: Option<String>,
    engine: Docker,
    port: Port,
}

impl Node {
    /// A cluster of one.
    pub async fn alone() -> Self {
        let name = unique("alone");
        let node = Self::start(&name, &format!("{name}=http://{name}:2380"), None).await;
        soon("it serves", async || node.serves().await).await;
        node
    }

    /// `cluster` says where the members reach each other.
    async fn start(name: &str, cluster: &str, network: Option<&str>) -> Self {
        let image = std::env::var("ETCD_TEST_IMAGE").expect("ETCD_TEST_IMAGE names an image");
        let (image, tag) = image.rsplit_once(':').expect("an image and its tag");
        // Published at a port of ours, and on this machine only; it stays the same when the network comes back.
        let port = Port::take();
        let published = PortBinding {
            host_ip: Some("127.0.0.1".to_owned()),
            host_port: Some(port.number().to_string()),
        };
        let request: ContainerRequest<_> = GenericImage::new(image, tag)
            .with_exposed_port(2379.tcp())
            .with_cmd([
                "etcd".to_owned(),
                format!("--name={name}"),
                "--data-dir=/etcd-data".to_owned(),
                "--listen-client-urls=http://0.0.0.0:2379".to_owned(),
                format!("--advertise-client-urls={}", port.url()),
                "--listen-peer-urls=http://0.0.0.0:2380".to_owned(),
                format!("--initial-advertise-peer-urls=http://{name}:2380"),
                format!("--initial-cluster={cluster}"),
                format!("--initial-cluster-token={cluster}"),
            ]);
        let request = request
            .with_container_name(name)
            .with_hostname(name)
            .with_host_config_modifier(move |config| {
                let published = Some(vec![published.clone()]);
                config.publish_all_ports = Some(false);
                config.port_bindings = Some(HashMap::from([("2379/tcp".to_owned(), published)]));
            });
        let request = match network {
            Some(network) => request.with_network(network),
            None => request,
        };
        Self {
            container: request.start().await.expect("a container of etcd starts"),
            network: network.map(str::to_owned),
            engine: Docker::connect_with_local_defaults()
                .expect("the engine that starts containers"),
            port,
        }
    }

    /// A client of this member alone.
    pub async fn client(&self) -> Client {
        connect(&[self.port.url()]).await
    }

    async fn serves(&self) -> Result<(), String> {
        let asked = self.client().await.kv_client().get("any", None).await;
        asked.map(drop).map_err(|error| error.to_string())
    }

    /// All its processes stand still.
    pub async fn pause(&self) {
        self.container.pause().await.expect("it can be paused");
    }

    pub async fn unpause(&self) {
        self.container.unpause().await.expect("it goes on");
    }

    /// With SIGKILL.
    pub async fn kill(&self) {
        let kill = None::<KillContainerOptions>;
        let killed = self.engine.kill_container(self.container.id(), kill).await;
        killed.expect("it can be killed");
    }

    pub async fn start_again(&self) {
        self.container.start().await.expect("it starts again");
    }

    /// Neither clients nor other members reach it, and nobody is told.
    pub async fn disconnect(&self) {
        let request = NetworkDisconnectRequest {
            container: self.container.id().to_owned(),
            force: Some(true),
        };
        let done = self
            .engine
            .disconnect_network(self.network(), request)
            .await;
        done.expect("it can be disconnected");
    }

    /// Starts it anew, too: members that were without each other take up to minutes to connect again by themselves.
    pub async fn connect(&self) {
        let request = NetworkConnectRequest {
            container: self.container.id().to_owned(),
            endpoint_config: None,
        };
        let done = self.engine.connect_network(self.network(), request).await;
        done.expect("it can be connected");
        self.kill().await;
        self.start_again().await;
    }

    fn network(&self) -> &str {
        self.network.as_deref().expect("a network of its own")
    }
}

/// A cluster of three, on a network that nobody else is on.
pub struct Trio {
    pub nodes: Vec<Node>,
}

impl Trio {
    pub async fn start() -> Self {
        let network = unique("etcd-lock");
        let names = [0, 1, 2].map(|i| format!("{network}-m{i}"));
        let cluster = names
            .each_ref()
            .map(|name| format!("{name}=http://{name}:2380"));
        let cluster = cluster.join(",");
        let nodes = names
            .each_ref()
            .map(|name| Node::start(name, &cluster, Some(&network)));
        let nodes = futures_util::future::join_all(nodes).await;
        let trio = Self { nodes };
        trio.all_follow_one_leader().await;
        trio
    }

    /// A client of all members.
    pub async fn client(&self) -> Client {
        let endpoints: Vec<_> = self.nodes.iter().map(|node| node.port.url()).collect();
        connect(&endpoints).await
    }

    /// Which of them leads.
    pub async fn leader(&self) -> usize {
        let mut leaders = Vec::new();
        for node in &self.nodes {
            let status = node
                .client()
                .await
                .maintenance_client()
                .status()
                .await
                .unwrap();
            let me = status.header().expect("a header").member_id();
            leaders.push(status.leader() == me);
        }
        leaders.iter().position(|leads| *leads).expect("one leads")
    }

    /// Once they reach each other again, their connections take a while to notice.
    pub async fn all_follow_one_leader(&self) {
        within(PATIENCE, "all members follow one leader", async || {
            let mut seen = Vec::new();
            for node in &self.nodes {
                let mut maintenance = node.client().await.maintenance_client();
                // A connection that was made a moment too early may hang.
                let status = timeout(LOOK, maintenance.status()).await;
                let status = status.map_err(|_elapsed| "no answer")?;
                seen.push(status.map_err(|error| error.to_string())?.leader());
            }
            let one = seen.iter().all(|leader| *leader == seen[0] && *leader != 0);
            ensure(one, format!("{seen:?}"))
        })
        .await;
    }
}
