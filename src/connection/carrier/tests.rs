use super::*;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use tokio::time::timeout;

/// A connection that counts its polls, and rings in the first so many.
fn counted(polls: &Arc<AtomicUsize>, rings: usize) -> Arc<Carrier> {
    let polls = Arc::clone(polls);
    Carrier::new(poll_fn(move |cx| {
        if polls.fetch_add(1, Ordering::Relaxed) < rings {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }))
}

async fn settled(polls: &AtomicUsize) -> usize {
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    polls.load(Ordering::Relaxed)
}

#[tokio::test]
async fn the_only_request_is_carried_at_once_and_the_task_is_left_alone() {
    let polls = Arc::default();
    let carrier = counted(&polls, 0);
    let _task = tokio::spawn(carrier.clone().run());
    assert_eq!(settled(&polls).await, 1);
    let ring = || carrier.waker.wake_by_ref();
    let request = carrier.request();
    request.send(ring);
    assert_eq!(polls.load(Ordering::Relaxed), 2, "carried");
    assert_eq!(settled(&polls).await, 2, "and nothing is left to do");
    let another = carrier.request();
    another.send(ring);
    assert_eq!(polls.load(Ordering::Relaxed), 2, "left to the task");
    assert_eq!(settled(&polls).await, 3);
    drop((request, another));
    carrier.end(ring);
    assert_eq!(polls.load(Ordering::Relaxed), 4, "what is left to do, too");
    assert_eq!(settled(&polls).await, 4);
}

#[tokio::test]
async fn what_rings_while_a_request_is_carried_is_seen_to_by_the_task() {
    let polls = Arc::default();
    let carrier = counted(&polls, 3);
    let _task = tokio::spawn(carrier.clone().run());
    assert_eq!(settled(&polls).await, 4);
    carrier.waker.wake_by_ref();
    assert_eq!(settled(&polls).await, 5);
    let polls = Arc::default();
    let carrier = counted(&polls, 3);
    let task = tokio::spawn(carrier.clone().run());
    carrier.request().send(|| ());
    assert_eq!(polls.load(Ordering::Relaxed), 1, "rings");
    assert_eq!(settled(&polls).await, 4);
    task.abort();
}

#[tokio::test]
async fn a_connection_that_ends_while_a_request_is_carried_ends_the_task() {
    let ends = Arc::new(AtomicBool::new(false));
    let carrier = Carrier::new({
        let ends = Arc::clone(&ends);
        poll_fn(move |_| {
            if ends.load(Ordering::Relaxed) {
                Poll::Ready(Ok(()))
            } else {
                Poll::Pending
            }
        })
    });
    let task = tokio::spawn(carrier.clone().run());
    tokio::task::yield_now().await;
    ends.store(true, Ordering::Relaxed);
    carrier.request().send(|| ());
    timeout(Duration::from_secs(10), task)
        .await
        .unwrap()
        .unwrap();
}

#[tokio::test]
async fn the_connection_goes_with_the_task() {
    let socket = Arc::new(());
    let carrier = Carrier::new({
        let socket = Arc::clone(&socket);
        async move {
            std::future::pending::<()>().await;
            drop(socket);
            Ok(())
        }
    });
    let task = tokio::spawn(carrier.clone().run());
    tokio::task::yield_now().await;
    assert_eq!(Arc::strong_count(&socket), 2);
    task.abort();
    task.await.unwrap_err();
    assert_eq!(Arc::strong_count(&socket), 1);
    carrier.request().send(|| ());
}

#[tokio::test]
async fn who_waits_for_an_answer_is_woken_when_all_is_read() {
    #[derive(Default)]
    struct Woken(AtomicUsize);
    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let woken = Arc::<Woken>::default();
    let (answers, seen) = (Arc::<AtomicWaker>::default(), Arc::<AtomicUsize>::default());
    let carrier = Carrier::new({
        let (answers, woken, seen) = (answers.clone(), woken.clone(), seen.clone());
        poll_fn(move |_| {
            answers.wake();
            seen.store(woken.0.load(Ordering::Relaxed), Ordering::Relaxed);
            Poll::Pending
        })
    });
    let mut waits = pin!(carrier.request().answer(poll_fn(|cx| {
        answers.register(cx.waker());
        Poll::<()>::Pending
    })));
    let waker = woken.clone().into();
    assert!(
        waits
            .as_mut()
            .poll(&mut Context::from_waker(&waker))
            .is_pending()
    );
    carrier.carry(|| ());
    assert_eq!(seen.load(Ordering::Relaxed), 0, "not while it reads");
    assert_eq!(woken.0.load(Ordering::Relaxed), 1);
    assert!(
        waits
            .as_mut()
            .poll(&mut Context::from_waker(&waker))
            .is_pending()
    );
    answers.wake();
    assert_eq!(woken.0.load(Ordering::Relaxed), 2, "nobody reads");
}
