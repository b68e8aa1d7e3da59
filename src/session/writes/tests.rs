use super::*;
use crate::etcd::Join;
use crate::key::Name;

fn leave(key: &str) -> Write {
    let (key, revision) = (key.into(), 1);
    Write::Leave { key, revision }
}

/// Enters changes and gives the keys that are taken, time after time, each with whether it
/// has gathered.
fn rides(keys: &[&str], most: usize) -> Vec<(String, bool)> {
    let writes = Writes::new();
    writes.most.store(most, Ordering::Relaxed);
    // The last that came to leave is the first.
    for key in keys.iter().rev() {
        writes.enter(leave(key), true, oneshot::channel().0);
    }
    let taken = std::iter::from_fn(|| {
        let (taken, gathered) = writes.take();
        let keys = taken.iter().map(|request| match &request.write {
            Write::Leave { key, .. } => &**key,
            other => panic!("{other:?}"),
        });
        let keys = keys.collect::<Vec<_>>().join(" ");
        (!taken.is_empty()).then_some((keys, gathered))
    });
    taken.collect()
}

#[test]
fn different_lines_ride_together_as_far_as_there_is_room() {
    assert_eq!(
        rides(&["a/1", "b/1", "c/1"], 3),
        [("a/1 b/1 c/1".into(), true)]
    );
    let two = [("a/1 b/1".into(), true), ("c/1".into(), true)];
    assert_eq!(rides(&["a/1", "b/1", "c/1"], 2), two);
}

#[test]
fn one_line_never_rides_twice_and_does_not_wait_for_company() {
    let wanted = [
        ("a/1 b/1", true),
        ("a/2", true),
        ("a/3", false),
        ("a/4", false),
    ];
    let wanted = wanted.map(|(keys, gathered)| (keys.to_owned(), gathered));
    assert_eq!(rides(&["a/1", "a/2", "b/1", "a/3", "a/4"], 9), wanted);
}

#[test]
fn what_gathers_waits_for_one_of_two_answers() {
    let writes = Writes::new();
    for key in ["a/1", "b/1", "c/1"] {
        writes.enter(leave(key), true, oneshot::channel().0);
        writes.take();
    }
    assert!(writes.take().0.is_empty());
    writes.answered();
    assert_eq!(writes.take().0.len(), 1);
}

#[test]
fn only_who_is_alone_sends_by_itself_and_others_gather_meanwhile() {
    let writes = Writes::new();
    let alone = writes.alone().expect("nobody else is there");
    assert!(writes.alone().is_none());
    for key in ["a/1", "b/1", "c/1"] {
        writes.enter(leave(key), true, oneshot::channel().0);
        writes.take();
    }
    // One beside it has been taken.
    assert!(writes.take().0.is_empty());
    drop(alone);
    assert!(writes.alone().is_none(), "others wait");
    assert_eq!(writes.take().0.len(), 2);
    writes.answered();
    writes.answered();
    assert!(writes.alone().is_some());
    writes.close();
    assert!(writes.alone().is_none());
}

#[test]
fn a_join_is_withdrawn_unless_something_of_it_was_sent() {
    let writes = Writes::new();
    let keys: [Arc<str>; 4] = ["a/1", "a/2", "a/3", "a/4"].map(Into::into);
    for (i, key) in keys.iter().enumerate() {
        let join = Join {
            name: Name::new("a").unwrap(),
            key: key.clone(),
            value: Vec::new(),
            lease: 1,
        };
        let tells = true;
        writes.enter(Write::Try { join, tells }, i != 2, oneshot::channel().0);
    }
    assert_eq!(writes.take().0.len(), 1);
    let withdrawn = keys.each_ref().map(|key| writes.withdraw(key));
    assert_eq!(withdrawn, [false, true, false, true]);
    assert_eq!(writes.take().0.len(), 1);
    assert!(writes.take().0.is_empty());
}

#[tokio::test]
async fn a_closed_queue_tells_those_who_wait_and_those_who_come() {
    let writes = Writes::new();
    let (tell, waits) = oneshot::channel();
    writes.enter(leave("a/1"), true, tell);
    writes.close();
    let (tell, comes) = oneshot::channel();
    writes.enter(leave("b/1"), true, tell);
    assert!(waits.await.is_err() && comes.await.is_err());
}
