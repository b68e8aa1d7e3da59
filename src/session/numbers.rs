//! Numbers that tell apart the keys of one session under one name.
//!
//! Two acquires never use one key at the same time, but one after the other they do: etcd keeps
//! every deleted key in its index until the next compaction, and reading a line walks over all
//! of them (measured: after 25,000 acquires on keys of their own, one acquire took twice as long).
//! Late requests cannot confuse two uses of a key: deletes name the create revision, and a number
//! whose put may still be under way is never used again.

use super::core::Core;
use crate::key::Name;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[derive(Default)]
pub(crate) struct Numbers(Mutex<HashMap<Name, Pool>>);

#[derive(Default)]
struct Pool {
    next: u64,
    free: Vec<u64>,
    retired: Vec<u64>,
}

/// A number in use; given back when dropped.
pub(crate) struct Number {
    core: Arc<Core>,
    name: Name,
    n: u64,
    doubtful: bool,
}

impl Number {
    pub(crate) fn take(core: &Arc<Core>, name: &Name) -> Self {
        let n = core.numbers.lock().entry(name.clone()).or_default().take();
        Self {
            core: core.clone(),
            name: name.clone(),
            n,
            doubtful: false,
        }
    }

    /// How many numbers of this session are in use under `name`.
    pub(crate) fn in_use(core: &Core, name: &Name) -> usize {
        core.numbers.lock().get(name).map_or(0, Pool::in_use)
    }

    pub(crate) fn key(&self) -> String {
        self.name.key(self.core.lease, self.n)
    }

    /// A put of the key may be carried out later: the number retires, and the janitor sweeps.
    pub(crate) fn doubt(&mut self) {
        self.doubtful = true;
        self.core.debts.sweep();
    }
}

impl Drop for Number {
    fn drop(&mut self) {
        let mut names = self.core.numbers.lock();
        let Entry::Occupied(mut pool) = names.entry(self.name.clone()) else {
            return;
        };
        if pool.get_mut().give_back(self.n, self.doubtful) {
            pool.remove();
        }
    }
}

impl Numbers {
    /// Whether nobody answers for the key with this number, now and for ever. Of a number that
    /// is only free this cannot be said: it may be in use again before one has looked.
    pub(super) fn is_retired(&self, name: &Name, n: u64) -> bool {
        self.lock()
            .get(name)
            .is_some_and(|pool| pool.retired.contains(&n))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Name, Pool>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pool {
    fn take(&mut self) -> u64 {
        self.free.pop().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        })
    }

    /// Gives true when the pool holds nothing worth keeping.
    fn give_back(&mut self, n: u64, doubtful: bool) -> bool {
        if doubtful {
            self.retired.push(n);
        } else {
            self.free.push(n);
        }
        self.retired.is_empty() && self.free.len() as u64 == self.next
    }

    fn in_use(&self) -> usize {
        let all = usize::try_from(self.next).unwrap_or(usize::MAX);
        all.saturating_sub(self.free.len() + self.retired.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_use_differ_and_are_used_again() {
        let mut pool = Pool::default();
        assert_eq!((pool.take(), pool.take()), (0, 1));
        assert!(!pool.give_back(0, false));
        assert_eq!(pool.take(), 0);
        assert!(!pool.give_back(1, false));
        assert!(pool.give_back(0, false), "nothing left to remember");
    }

    #[test]
    fn a_number_in_doubt_is_never_used_again() {
        let mut pool = Pool::default();
        let n = pool.take();
        assert!(!pool.give_back(n, true), "it has to be remembered");
        assert_eq!(pool.retired, [n]);
        assert_ne!(pool.take(), n);
    }
}
