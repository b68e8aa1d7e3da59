//! - Names: empty or slash-ended ones are refused at once; any other works, whatever is in it; one that etcd cannot
//!   take is an error and not a hang.
//! - TTL and margin are checked before anything is sent; the longest TTL that etcd grants works.
//! - A label is refused when the session is opened if it is too long.
//! - A closed session refuses everything at once, and closing it again is no error.

use std::time::Duration;

use etcd_lock::{Error, Lost, Mutex, Session, SessionBuilder};
use tokio::time::timeout;

use crate::support::{Etcd, connect, keys, lost, mutex, session};

/// At once, on a loaded machine.
const AT_ONCE: Duration = Duration::from_secs(2);

/// The text of an error about an argument.
#[track_caller]
fn invalid<T>(result: Result<T, Error>) -> String {
    match result {
        Err(error @ Error::Invalid { .. }) => error.to_string(),
        Err(error) => panic!("another error: {error}"),
        Ok(_) => panic!("it is taken"),
    }
}

#[tokio::test]
async fn a_name_that_is_empty_or_ends_in_a_slash_is_refused() {
    let etcd = Etcd::start().await;
    let session = session(etcd.client().await, 2).await;
    for (name, advice) in [
        ("", "give the lock a name"),
        ("/", "leave the last '/' away"),
        ("a/", "leave the last '/' away"),
        ("a//", "leave the last '/' away"),
    ] {
        let text = invalid(Mutex::new(&session, name));
        assert!(text.starts_with("name ") && text.contains(advice), "{text}");
    }
}

#[tokio::test]
async fn any_other_name_works() {
    let etcd = Etcd::start().await;
    let client = etcd.client().await;
    let session = session(etcd.client().await, 2).await;
    let long = "long/".repeat(2_000) + "name";
    let names = [
        " ",
        "two words",
        "/leading",
        "//two",
        "in//side",
        ".",
        "..",
        "%2f",
        "*",
        "Straße/ключ/鍵/🔒",
        "line\nfeed",
        "nul\0inside",
        "\u{10ffff}",
        long.as_str(),
    ];
    let mut guards = Vec::new();
    for name in names {
        let door = mutex(&session, name);
        assert_eq!(door.name(), name);
        // All at the same time: none is taken for another.
        let guard = timeout(AT_ONCE, door.lock()).await;
        let guard = guard.unwrap_or_else(|_| panic!("{name:?} waits")).unwrap();
        assert_eq!(guard.name(), name);
        assert!(guard.key().starts_with(&format!("{name}/")), "{guard:?}");
        assert_eq!(door.queue().await.unwrap()[0].key, guard.key());
        assert!(door.try_lock().await.unwrap().is_err());
        guards.push(guard);
    }
    assert_eq!(keys(&client, "").await.len(), names.len());
    for guard in guards {
        guard.release().await.unwrap();
    }
    assert_eq!(keys(&client, "").await, [""; 0]);
}

#[tokio::test]
async fn a_name_that_etcd_cannot_take_is_an_error() {
    let etcd = Etcd::start().await;
    let session = session(etcd.client().await, 20).await;
    for length in [1_000_000, 5_000_000] {
        let door = mutex(&session, &"x".repeat(length));
        let locked = timeout(4 * AT_ONCE, door.lock()).await;
        let error = locked.expect("a lock hangs").unwrap_err();
        assert!(matches!(error, Error::Etcd { .. }));
        let text = error.to_string();
        assert!(text.contains("give a shorter name"), "{text}");
        let tried = timeout(4 * AT_ONCE, door.try_lock()).await;
        assert!(tried.expect("a try hangs").is_err());
    }
    assert!(
        session.is_certain(),
        "the session has nothing to do with it"
    );
}

/// A client that has nobody to talk to: what is refused is refused before anything is sent.
async fn alone() -> SessionBuilder {
    Session::builder(connect(&["http://127.0.0.1:1".to_owned()]).await)
}

#[tokio::test]
async fn a_ttl_or_margin_that_cannot_work_is_refused_before_anything_is_sent() {
    let ms = Duration::from_millis;
    for ttl in [Duration::ZERO, Duration::from_nanos(1), ms(999)] {
        let opened = timeout(AT_ONCE, alone().await.ttl(ttl).open()).await;
        let text = invalid(opened.expect("it is asked about"));
        assert!(
            text.starts_with("ttl ") && text.contains("give 1 s or more"),
            "{text}"
        );
    }
    for ttl in [
        Duration::MAX,
        Duration::from_secs(u64::MAX),
        Duration::from_secs(9_000_000_001),
    ] {
        let opened = timeout(AT_ONCE, alone().await.ttl(ttl).open()).await;
        let text = invalid(opened.expect("it is asked about"));
        assert!(
            text.starts_with("ttl ") && text.contains("give less"),
            "{text}"
        );
    }
    let ttl = Duration::from_secs(4);
    for margin in [Duration::ZERO, ms(2_001), ttl, 2 * ttl, Duration::MAX] {
        let builder = alone().await.ttl(ttl).margin(margin);
        let opened = timeout(AT_ONCE, builder.open()).await;
        let text = invalid(opened.expect("it is asked about"));
        assert!(
            text.starts_with("margin ") && text.contains("at most half"),
            "{text}"
        );
    }
}

#[tokio::test]
async fn the_shortest_and_the_longest_ttl_work() {
    let etcd = Etcd::start().await;
    let longest = Duration::from_secs(9_000_000_000);
    for (asked, granted) in [
        (Duration::from_secs(1), Duration::from_secs(2)),
        (Duration::from_millis(2_001), Duration::from_secs(3)),
        (longest, longest),
    ] {
        let builder = Session::builder(etcd.client().await).ttl(asked);
        let session = builder.margin(asked / 2).open().await.unwrap();
        assert_eq!(session.ttl(), granted);
        let guard = mutex(&session, "a").lock().await.unwrap();
        assert!(guard.is_held() && guard.certain_until().is_some());
        guard.release().await.unwrap();
        session.close().await.unwrap();
    }
}

#[tokio::test]
async fn a_label_that_is_too_long_is_refused_at_opening() {
    let etcd = Etcd::start().await;
    for length in [1_025, 5_000_000] {
        let builder = alone().await.label("x".repeat(length));
        let opened = timeout(AT_ONCE, builder.open()).await;
        let text = invalid(opened.expect("it is asked about"));
        assert!(
            text.starts_with("label ") && text.contains("at most 1024"),
            "{text}"
        );
    }
    for label in [String::new(), "x".repeat(1_024), "zwölf\n\0".to_owned()] {
        let builder = Session::builder(etcd.client().await).label(label.as_str());
        let session = builder.open().await.unwrap();
        let door = mutex(&session, "a");
        let _guard = door.lock().await.unwrap();
        assert_eq!(door.queue().await.unwrap()[0].label, label);
        session.close().await.unwrap();
    }
}

#[tokio::test]
async fn a_closed_session_refuses_everything_at_once() {
    let etcd = Etcd::start().await;
    let session = session(etcd.client().await, 60).await;
    let door = mutex(&session, "a");
    session.close().await.unwrap();
    // Nobody is asked.
    etcd.stop();
    let refused = async {
        assert_eq!(lost(door.lock().await), Lost::Closed);
        assert_eq!(lost(door.try_lock().await), Lost::Closed);
        assert_eq!(
            lost(door.lock_within(Duration::from_secs(60)).await),
            Lost::Closed
        );
        assert_eq!(lost(door.queue().await), Lost::Closed);
        assert_eq!(session.ended().await, Lost::Closed);
        session.close().await.unwrap();
        let text = door.lock().await.unwrap_err().to_string();
        assert!(text.contains("closed; open a new one"), "{text}");
    };
    timeout(AT_ONCE, refused).await.expect("it is at once");
    etcd.cont();
}
