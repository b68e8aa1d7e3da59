//! What the workers write to, and what is known of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of the clock that all processes of this machine share.
pub fn clock() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    u64::try_from(now.tv_sec * 1_000_000_000 + now.tv_nsec).expect("after the start of the machine")
}

/// A resource under each lock, which refuses tokens of the past, and all that was ever held.
#[derive(Default)]
pub struct Book(Mutex<Pages>);

#[derive(Default)]
struct Pages {
    resources: BTreeMap<String, Resource>,
    holds: BTreeMap<u64, Hold>,
    /// Tokens and leases that an operator has taken away: their holders hear of it when it is done.
    taken: (BTreeSet<u64>, BTreeSet<i64>),
    /// When somebody last got in.
    last: u64,
    stale: usize,
    /// Writes by somebody who did not know what the resource held, and whatever else was wrong.
    wrong: Vec<String>,
    lost: BTreeMap<String, usize>,
    errors: BTreeMap<String, usize>,
    ended: BTreeSet<usize>,
    calm: bool,
}

#[derive(Default)]
struct Resource {
    newest: u64,
    value: u64,
}

/// What is known for certain: the first and the last time at which its holder was told that it holds.
struct Hold {
    name: String,
    worker: usize,
    lease: i64,
    from: u64,
    until: u64,
}

impl Book {
    fn pages(&self) -> std::sync::MutexGuard<'_, Pages> {
        self.0.lock().expect("nobody panics with it")
    }

    /// Takes what a worker says, and gives the answer, if it wants one.
    pub fn hear(&self, worker: usize, line: &str) -> Option<String> {
        let mut pages = self.pages();
        let words: Vec<_> = line.split(' ').collect();
        match words[..] {
            ["next"] => return Some(if pages.calm { "end" } else { "on" }.to_owned()),
            ["read", name, token] => {
                let resource = pages.admit(name, number(token));
                return Some(
                    resource.map_or("stale".into(), |resource| resource.value.to_string()),
                );
            }
            ["write", name, token, value] => {
                let value = number(value);
                let Some(resource) = pages.admit(name, number(token)) else {
                    return Some("stale".to_owned());
                };
                let before = std::mem::replace(&mut resource.value, value);
                if value != before + 1 {
                    let what =
                        format!("{name}: {worker} with {token} writes {value} over {before}");
                    pages.wrong.push(what);
                }
                return Some("written".to_owned());
            }
            ["held", name, token, lease, at] => {
                let lease = lease.parse().expect("a lease");
                pages.held(worker, name, number(token), lease, number(at));
            }
            ["lost", cause] => *pages.lost.entry(cause.to_owned()).or_default() += 1,
            ["ended"] => {
                pages.ended.insert(worker);
            }
            _ => *pages.errors.entry(line.to_owned()).or_default() += 1,
        }
        None
    }

    /// The workers are to come to an end.
    pub fn calm(&self) {
        self.pages().calm = true;
    }

    pub fn ended(&self) -> usize {
        self.pages().ended.len()
    }

    pub fn last(&self) -> u64 {
        self.pages().last
    }

    pub fn take_token(&self, token: u64) {
        self.pages().taken.0.insert(token);
    }

    pub fn take_lease(&self, lease: i64) {
        self.pages().taken.1.insert(lease);
    }

    /// All that should not have been.
    pub fn wrong(&self) -> Vec<String> {
        let pages = self.pages();
        [pages.wrong.clone(), pages.overlaps(), pages.odd_errors()].concat()
    }

    pub fn report(&self) -> String {
        let pages = self.pages();
        let [held, lost] = [pages.holds.len(), pages.lost.values().sum()];
        let (stale, wrong, overlaps) = (pages.stale, pages.wrong.len(), pages.overlaps().len());
        let causes = list(&pages.lost);
        format!(
            "{held} holds, {lost} lost ({causes}), {stale} stale writes refused and {wrong} accepted, {overlaps} overlaps"
        )
    }
}

impl Pages {
    fn admit(&mut self, name: &str, token: u64) -> Option<&mut Resource> {
        let resource = self.resources.entry(name.to_owned()).or_default();
        if token < resource.newest {
            self.stale += 1;
            return None;
        }
        resource.newest = token;
        Some(resource)
    }

    fn held(&mut self, worker: usize, name: &str, token: u64, lease: i64, at: u64) {
        self.last = self.last.max(at);
        let hold = self.holds.entry(token).or_insert_with(|| Hold {
            name: name.to_owned(),
            worker,
            lease,
            from: at,
            until: at,
        });
        if (hold.worker, &*hold.name) == (worker, name) {
            hold.until = at;
        } else {
            let other = hold.worker;
            let what = format!("{name}: {worker} has token {token}, which {other} had");
            self.wrong.push(what);
        }
    }

    /// Nobody may be told that it holds between two moments at which somebody else is. Also, who comes later has the
    /// larger token. What an operator has taken away is exempt, as the documentation says.
    fn overlaps(&self) -> Vec<String> {
        let mut found = Vec::new();
        let mut last: BTreeMap<&str, (u64, &Hold)> = BTreeMap::new();
        for (token, hold) in &self.holds {
            if self.taken.0.contains(token) || self.taken.1.contains(&hold.lease) {
                continue;
            }
            if let Some((earlier, before)) = last.insert(&hold.name, (*token, hold))
                && before.until >= hold.from
            {
                let by = (before.until - hold.from) / 1_000;
                found.push(format!(
                    "{}: {} held with {earlier} when {} did with {token}, for {by} us",
                    hold.name, before.worker, hold.worker
                ));
            }
        }
        found
    }

    /// Errors that nothing of what was done here should lead to. That a session cannot be opened while etcd is out of
    /// reach, or that a release cannot be confirmed then, is documented.
    fn odd_errors(&self) -> Vec<String> {
        let expected = ["open a session (", "is not confirmed to be gone"];
        let odd = |error: &&String| !expected.iter().any(|part| error.contains(part));
        self.errors.keys().filter(odd).cloned().collect()
    }
}

fn number(word: &str) -> u64 {
    word.parse().expect("a number")
}

/// `what: how often`, for people.
pub fn list(counted: &BTreeMap<String, usize>) -> String {
    let words = counted
        .iter()
        .map(|(what, count)| format!("{what}: {count}"));
    words.collect::<Vec<_>>().join(", ")
}

/// The check would see what it is to look for.
#[test]
fn the_book_sees_overlaps_and_stale_writes() {
    let book = Book::default();
    let tell = |worker, line: &str| book.hear(worker, line).unwrap_or_default();
    tell(0, "held a 5 1 100");
    tell(0, "held a 5 1 200");
    tell(1, "held a 7 2 201");
    tell(1, "held b 6 2 150");
    assert_eq!(book.wrong(), [""; 0]);
    tell(2, "held a 9 3 201");
    assert_eq!(book.wrong().len(), 1);
    book.take_token(9);
    assert_eq!(book.wrong(), [""; 0]);
    // Somebody with an older token comes later.
    tell(2, "held a 4 3 300");
    assert_eq!(book.wrong().len(), 1);
    book.take_lease(3);
    assert_eq!(book.wrong(), [""; 0]);
    assert_eq!(tell(0, "read a 5"), "0");
    assert_eq!(tell(1, "read a 7"), "0");
    assert_eq!(tell(0, "write a 5 1"), "stale");
    assert_eq!(tell(1, "write a 7 1"), "written");
    assert_eq!(book.wrong(), [""; 0]);
    tell(1, "write a 7 1");
    assert_eq!(book.wrong().len(), 1);
}
