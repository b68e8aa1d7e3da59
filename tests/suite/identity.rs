//! Users, their tokens and what they may do, while a lock is held and waited for:
//! - tokens that expire, simple ones and JWT; roles that change, also before a watch has to begin anew;
//! - a permission that is taken away under a waiter and given back.

use std::io::Write;
use std::time::Duration;

use etcd_lock::{Error, LockGuard, Session};
use futures_util::future::join_all;
use tempfile::NamedTempFile;
use tokio::time::{sleep, timeout};

use crate::support::{
    BOUND, Guarded, Proxy, Setup, Waiting, ensure, mutex, session, soon, soon_keys, soon_nothing,
    waiter,
};

const SECOND: Duration = Duration::from_secs(1);

/// Tokens of etcd's two kinds that live for so long.
fn tokens(seconds: u32) -> [(Setup, Option<NamedTempFile>); 2] {
    let mut key = NamedTempFile::new().unwrap();
    key.write_all(b"a key that signs tokens in a test").unwrap();
    let path = key.path().display();
    let jwt = format!("--auth-token=jwt,sign-method=HS256,priv-key={path},ttl={seconds}s");
    let simple = format!("--auth-token-ttl={seconds}");
    [
        (Setup::default().arg(simple), None),
        (Setup::default().arg(jwt), Some(key)),
    ]
}

/// One session holds, another waits.
struct Scene {
    ours: Session,
    theirs: Session,
    holder: LockGuard,
    next: Waiting,
}

impl Scene {
    async fn begin(guarded: &Guarded, ttl: u64) -> Self {
        let ours = session(guarded.anna().await, ttl).await;
        let theirs = session(guarded.anna().await, ttl).await;
        let holder = mutex(&ours, "both/a").lock().await.unwrap();
        let next = waiter(&mutex(&theirs, "both/a")).await;
        Self {
            ours,
            theirs,
            holder,
            next,
        }
    }

    /// It is held, another lock can be had, and who waits has its turn.
    async fn goes_on(self) {
        assert!(self.holder.is_held() && self.ours.is_certain() && self.theirs.is_certain());
        let other = timeout(BOUND, mutex(&self.ours, "both/b").lock()).await;
        let other = other.expect("a lock hangs").unwrap();
        other.release().await.unwrap();
        self.holder.release().await.unwrap();
        let next = timeout(BOUND, self.next).await.expect("the turn").unwrap();
        next.release().await.unwrap();
        self.ours.close().await.unwrap();
        self.theirs.close().await.unwrap();
    }
}

#[tokio::test]
async fn tokens_that_expire_under_a_holder_and_a_waiter_cost_nothing() {
    join_all(tokens(5).map(async |(setup, _key)| {
        let guarded = Guarded::with(setup).await;
        // They renew so seldom that their tokens expire in between.
        let scene = Scene::begin(&guarded, 21).await;
        // Idle for longer than a token lives, and than a renewal can wait.
        sleep(13 * SECOND).await;
        scene.goes_on().await;
        soon_nothing(&guarded.root().await).await;
    }))
    .await;
}

#[tokio::test]
async fn a_role_that_changes_under_a_holder_and_a_waiter_costs_nothing() {
    join_all(tokens(300).map(async |(setup, _key)| {
        let guarded = Guarded::with(setup).await;
        let scene = Scene::begin(&guarded, 3).await;
        for _ in 0..2 {
            guarded.may(true).await;
            sleep(2 * SECOND).await;
        }
        scene.holder.put("both/x/y", "1").await.unwrap();
        scene.goes_on().await;
        let root = guarded.root().await;
        root.kv_client().delete("both/x/y", None).await.unwrap();
        soon_nothing(&root).await;
    }))
    .await;
}

#[tokio::test]
async fn a_watch_that_begins_anew_after_a_role_has_changed_costs_nothing() {
    join_all(tokens(300).map(async |(setup, _key)| {
        let guarded = Guarded::with(setup).await;
        let proxy = Proxy::to(&guarded.etcd.endpoint()).await;
        // Long: no look for safety's sake, and hardly a renewal, helps it.
        let ours = session(guarded.anna().await, 90).await;
        let theirs = session(guarded.anna_through(&proxy).await, 90).await;
        let holder = mutex(&ours, "both/a").lock().await.unwrap();
        let next = waiter(&mutex(&theirs, "both/a")).await;
        guarded.may(true).await;
        let before = proxy.opened();
        proxy.reset_all();
        soon("it is connected again", async || {
            ensure(proxy.opened() > before, proxy.opened())
        })
        .await;
        holder.release().await.unwrap();
        let next = timeout(BOUND, next).await.expect("the turn").unwrap();
        next.release().await.unwrap();
    }))
    .await;
}

#[tokio::test]
async fn a_waiter_outlasts_that_its_permission_is_taken_away_and_given_back() {
    let guarded = Guarded::start().await;
    let proxy = Proxy::to(&guarded.etcd.endpoint()).await;
    // Newer etcds refuse to renew a lease, too, if one may not write its keys: so not for longer than that is sure.
    let ours = session(guarded.anna_through(&proxy).await, 10).await;
    let theirs = session(guarded.root().await, 10).await;
    let holder = mutex(&theirs, "both/a").lock().await.unwrap();
    let next = waiter(&mutex(&ours, "both/a")).await;
    guarded.may(false).await;
    // It has to watch and look again.
    proxy.reset_all();
    sleep(2 * SECOND).await;
    for denied in [
        mutex(&ours, "both/b").lock().await.unwrap_err(),
        mutex(&ours, "both/b").try_lock().await.unwrap_err(),
        mutex(&ours, "both/b").queue().await.unwrap_err(),
    ] {
        assert!(matches!(denied, Error::Etcd { .. }), "{denied}");
        let text = denied.to_string();
        assert!(text.starts_with("on \"both/b\": "), "{text}");
        assert!(text.contains("permission denied"), "{text}");
    }
    guarded.may(true).await;
    holder.release().await.unwrap();
    let next = timeout(BOUND, next).await.expect("the turn").unwrap();
    next.release().await.unwrap();
    soon_keys(&guarded.root().await, "both/", &[]).await;
}
