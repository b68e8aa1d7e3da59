//! All guards and leaderships there are, and what must be true of those that say they are held.

use super::story::Story;
use crate::model::Model;
use etcd_lock::{Hold, Leadership, LockGuard};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

#[derive(Clone, Default)]
pub struct Holds(Arc<Mutex<Vec<(usize, AnyWeak)>>>);

/// A hold of either kind.
pub enum Any {
    Lock(Arc<LockGuard>),
    Lead(Arc<Leadership>),
}

enum AnyWeak {
    Lock(Weak<LockGuard>),
    Lead(Weak<Leadership>),
}

impl std::ops::Deref for Any {
    type Target = Hold;

    fn deref(&self) -> &Hold {
        match self {
            Self::Lock(guard) => guard,
            Self::Lead(leadership) => leadership,
        }
    }
}

impl Any {
    pub async fn release(self) -> Result<(), etcd_lock::Error> {
        match self {
            Self::Lock(guard) => Arc::into_inner(guard).expect("its owner").release().await,
            Self::Lead(lead) => Arc::into_inner(lead).expect("its owner").resign().await,
        }
    }
}

impl AnyWeak {
    fn upgrade(&self) -> Option<Any> {
        match self {
            Self::Lock(guard) => guard.upgrade().map(Any::Lock),
            Self::Lead(lead) => lead.upgrade().map(Any::Lead),
        }
    }
}

/// Keys that an operator has taken away, with their create revisions.
pub type Taken = BTreeMap<(Vec<u8>, i64), Loss>;

/// How a key was taken away.
pub struct Loss {
    pub at: Duration,
    /// Whether it was the first in its line.
    pub had_turn: bool,
}

impl Holds {
    pub fn lock(&self, process: usize, guard: LockGuard) -> Any {
        let guard = Arc::new(guard);
        let weak = AnyWeak::Lock(Arc::downgrade(&guard));
        self.0.lock().unwrap().push((process, weak));
        Any::Lock(guard)
    }

    pub fn lead(&self, process: usize, leadership: Leadership) -> Any {
        let leadership = Arc::new(leadership);
        let weak = AnyWeak::Lead(Arc::downgrade(&leadership));
        self.0.lock().unwrap().push((process, weak));
        Any::Lead(leadership)
    }

    /// Who says of itself that it is held has the first key in its line, which is alive. So no
    /// two are held at once, turns come in the order of arrival, and tokens grow. What an
    /// operator has taken away is exempt, as the documentation says. To be called in the process.
    ///
    /// What was taken away before `told` must be known by now.
    pub fn check(
        &self,
        process: usize,
        model: &Model,
        taken: &Taken,
        told: Option<Duration>,
        story: &Story,
    ) {
        let mut all = self.0.lock().unwrap();
        all.retain(|(_, hold)| hold.upgrade().is_some());
        let ours = all.iter().filter(|(of, _)| *of == process);
        for hold in ours.filter_map(|(_, hold)| hold.upgrade()) {
            let at = i64::try_from(hold.token().get()).unwrap();
            let key = hold.key().as_bytes().to_vec();
            if !hold.is_held() {
                continue;
            }
            if let Some(loss) = taken.get(&(key.clone(), at)) {
                let key = hold.key();
                if told.is_some_and(|told| loss.at < told) {
                    story.wrong(format!("p{process} does not know that {key} is gone"));
                }
                if !loss.had_turn {
                    story.wrong(format!("p{process} holds {key}, deleted before its turn"));
                }
                continue;
            }
            let first = first(model, hold.name());
            if first.as_ref() != Some(&(at, key)) {
                let (key, first) = (hold.key(), first.map(|(at, _)| at));
                story.wrong(format!(
                    "p{process} holds {key} with token {at}, but the first key is of {first:?}"
                ));
            }
        }
    }
}

/// The first key in the line of a name.
pub fn first(model: &Model, name: &str) -> Option<(i64, Vec<u8>)> {
    let prefix = format!("{name}/").into_bytes();
    let line = model.keys().filter(|kv| {
        let rest = kv.key.strip_prefix(prefix.as_slice());
        rest.is_some_and(|rest| !rest.contains(&b'/'))
    });
    line.map(|kv| (kv.create_revision, kv.key.clone())).min()
}
