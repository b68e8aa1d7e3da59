//! An etcd that knows its users.

use etcd_client::{Client, ConnectOptions, Permission};

use super::client::connect_with;
use super::etcd::Etcd;
use super::proxy::Proxy;
use super::setup::Setup;

/// An etcd with authentication on, its root, and the user `anna`, who may read behind `read/`, write behind `write/`, and
/// both behind `both/`.
pub struct Guarded {
    pub etcd: Etcd,
    pub root: Client,
}

impl Guarded {
    pub async fn start() -> Self {
        Self::with(Setup::default()).await
    }

    /// As this setup says, which may be about tokens.
    pub async fn with(setup: Setup) -> Self {
        let etcd = setup.one().await;
        let mut auth = etcd.client().await.auth_client();
        let permissions = [
            Permission::read("read/").with_prefix(),
            Permission::write("write/").with_prefix(),
            Self::both(),
        ];
        for (user, role) in [("root", "root"), ("anna", "worker")] {
            auth.user_add(user, "secret", None).await.unwrap();
            auth.role_add(role).await.unwrap();
            auth.user_grant_role(user, role).await.unwrap();
        }
        for permission in permissions {
            auth.role_grant_permission("worker", permission)
                .await
                .unwrap();
        }
        auth.auth_enable().await.unwrap();
        let root = client_of("root", &etcd.endpoint()).await;
        Self { etcd, root }
    }

    /// With a token that is fresh.
    pub async fn root(&self) -> Client {
        client_of("root", &self.etcd.endpoint()).await
    }

    pub async fn anna(&self) -> Client {
        client_of("anna", &self.etcd.endpoint()).await
    }

    /// Through something that is before the server.
    pub async fn anna_through(&self, proxy: &Proxy) -> Client {
        client_of("anna", &proxy.endpoint()).await
    }

    /// Gives anna what she may do behind `both/`, or takes it from her.
    pub async fn may(&self, allowed: bool) {
        let mut auth = self.root.auth_client();
        if allowed {
            let granted = auth.role_grant_permission("worker", Self::both()).await;
            granted.unwrap();
        } else {
            let options = etcd_client::RoleRevokePermissionOptions::new().with_prefix();
            let revoked = auth.role_revoke_permission("worker", "both/", Some(options));
            revoked.await.unwrap();
        }
    }

    fn both() -> Permission {
        Permission::read_write("both/").with_prefix()
    }
}

async fn client_of(user: &str, endpoint: &str) -> Client {
    let options = ConnectOptions::new().with_user(user, "secret");
    let client = connect_with(&[endpoint], Some(options)).await;
    client.expect("the user is known")
}
