//! The door of a resource, which lets nobody in who is older than who was in last.

use super::FencingToken;
use std::sync::atomic::{AtomicU64, Ordering};

/// Refuses tokens that are older than the newest it has seen; for resources that are made in Rust.
///
/// One gate stands before one resource and counts the tokens of one name. It can be shared: it
/// takes no lock, and every token is judged against all that were admitted before.
///
/// # Promises
///
/// Once a token is admitted, no smaller one ever is. The same token is admitted again, since a
/// holder comes more than once.
///
/// # Not promised
///
/// - That who was admitted acts before the next one is. Between [`admit`](Self::admit) and the
///   write a thread can be paused, and a newer holder may come through the gate, write, and be
///   overwritten. So admit *and* write under the resource's own mutex, in its one task or in its
///   one transaction; outside of it, the gate only turns the late away sooner.
/// - Anything across a restart: what a gate has seen is gone with the process. See below.
/// - Anything across a restore of etcd from a snapshot, after which tokens may be smaller: the gate
///   then refuses everybody. Begin with a new one.
///
/// # A gate that outlives the process
///
/// Keep the newest token with the data, and [`resume`](Self::resume) from it. It has to be stored
/// *before* what it admits is acted on, or together with it: a process that dies in between has
/// then refused too much, which does no harm. In a database no gate is needed, since a conditional
/// update admits, stores and writes in one step:
///
/// ```sql
/// UPDATE job SET token = $token, state = $state WHERE id = $id AND token <= $token;
/// ```
///
/// # Examples
///
/// A file that only the newest holder changes, with the token in it:
///
/// ```
/// use etcd_lock::{FencingGate, FencingToken};
/// use std::{error::Error, fs, path::PathBuf, sync::Mutex};
///
/// struct Report { path: Mutex<PathBuf>, gate: FencingGate }
///
/// impl Report {
///     fn open(path: PathBuf) -> Result<Self, Box<dyn Error>> {
///         let gate = match fs::read_to_string(&path) {
///             Ok(text) => FencingGate::resume(text.lines().next().unwrap_or_default().parse()?),
///             Err(_) if !path.exists() => FencingGate::new(),
///             Err(error) => return Err(error.into()),
///         };
///         Ok(Self { path: Mutex::new(path), gate })
///     }
///
///     fn write(&self, token: FencingToken, text: &str) -> Result<(), Box<dyn Error>> {
///         let path = self.path.lock().unwrap(); // from the gate to the end of the write
///         self.gate.admit(token)?;
///         // The token and what it admits, in one step: either both are there or neither is.
///         let new = path.with_extension("new");
///         fs::write(&new, format!("{token}\n{text}"))?;
///         fs::File::open(&new)?.sync_all()?;
///         fs::rename(&new, &*path)?;
///         // Only then is it there for good.
///         Ok(fs::File::open(path.parent().ok_or("no directory")?)?.sync_all()?)
///     }
/// }
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("report");
/// # let token = |n: u64| FencingToken::try_from(n).unwrap();
/// # let report = Report::open(path.clone())?;
/// # report.write(token(7), "new")?;
/// # assert!(report.write(token(6), "late").is_err());
/// # let report = Report::open(path.clone())?;
/// # assert!(report.write(token(6), "late").is_err());
/// # assert_eq!(fs::read_to_string(path)?, "7\nnew");
/// # Ok::<(), Box<dyn Error>>(())
/// ```
#[derive(Debug, Default)]
pub struct FencingGate {
    /// The newest token; 0 before the first, as no token is.
    newest: AtomicU64,
}

impl FencingGate {
    /// Makes a gate that has seen no token.
    pub const fn new() -> Self {
        let newest = AtomicU64::new(0);
        Self { newest }
    }

    /// Makes a gate that has seen `newest`, as it was stored by an earlier process.
    pub fn resume(newest: FencingToken) -> Self {
        let newest = AtomicU64::new(newest.get());
        Self { newest }
    }

    /// Lets the token in, unless a newer one was let in before.
    ///
    /// # Errors
    ///
    /// [`Stale`]: whoever comes with this token has lost the hold, and somebody newer was here.
    ///
    /// # Examples
    ///
    /// ```
    /// # use etcd_lock::{FencingGate, FencingToken};
    /// let gate = FencingGate::new();
    /// let (old, new) = (FencingToken::try_from(5_u64)?, FencingToken::try_from(9_u64)?);
    /// assert!(gate.admit(old).is_ok() && gate.admit(new).is_ok() && gate.admit(new).is_ok());
    /// assert_eq!(gate.admit(old).unwrap_err().newest, new);
    /// # Ok::<(), etcd_lock::Error>(())
    /// ```
    pub fn admit(&self, token: FencingToken) -> Result<(), Stale> {
        // Whoever sees a token here sees what was done before it was admitted.
        let newest = self.newest.fetch_max(token.get(), Ordering::AcqRel);
        match FencingToken::try_from(newest) {
            Ok(newest) if newest > token => Err(Stale { token, newest }),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Tells the newest token it has seen, if any: what is to be stored.
    pub fn newest(&self) -> Option<FencingToken> {
        FencingToken::try_from(self.newest.load(Ordering::Acquire)).ok()
    }
}

/// A token that was refused: somebody newer has been here.
///
/// Its holder has lost what it held, maybe without knowing. It must not go on with this token;
/// locking again gives a newer one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("token {token} is stale, {newest} was seen: its hold is lost; lock again for a newer one")]
#[non_exhaustive]
pub struct Stale {
    /// The token that was refused.
    pub token: FencingToken,
    /// The newest token that was seen.
    pub newest: FencingToken,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use std::thread;

    fn token(number: u64) -> FencingToken {
        FencingToken::try_from(number).unwrap()
    }

    #[test]
    fn the_same_and_newer_tokens_are_admitted_and_older_ones_named_stale() {
        let gate = FencingGate::new();
        assert_eq!(gate.newest(), None);
        for number in [1, 5, 5, 9] {
            assert_eq!(gate.admit(token(number)), Ok(()));
        }
        let stale = gate.admit(token(8)).unwrap_err();
        assert_eq!((stale.token, stale.newest), (token(8), token(9)));
        assert!(
            stale
                .to_string()
                .starts_with("token 8 is stale, 9 was seen")
        );
        assert_eq!(gate.newest(), Some(token(9)), "a refused token is not seen");
    }

    #[test]
    fn a_resumed_gate_refuses_what_the_one_before_refused() {
        let gate = FencingGate::resume(token(7));
        assert_eq!(gate.newest(), Some(token(7)));
        assert!(gate.admit(token(6)).is_err());
        assert_eq!(gate.admit(token(7)), Ok(()));
    }

    #[test]
    fn of_tokens_that_come_at_once_none_is_admitted_after_a_newer_one() {
        const TOKENS: u64 = 20_000;
        let gate = FencingGate::new();
        // Admitted and noted as one step: the notes are in the order of the gate.
        let notes = Mutex::new(Vec::new());
        let come = |first: u64| {
            for number in (first..=TOKENS).step_by(4) {
                let mut notes = notes.lock().unwrap();
                if gate.admit(token(number)).is_ok() {
                    notes.push(number);
                }
            }
        };
        thread::scope(|scope| {
            for first in 1..=4 {
                scope.spawn(move || come(first));
            }
        });
        let notes = notes.into_inner().unwrap();
        assert!(notes.is_sorted() && notes.last() == Some(&TOKENS));
    }

    #[test]
    fn after_a_token_has_come_no_thread_gets_an_older_one_in() {
        const TOKENS: u64 = 50_000;
        let gate = FencingGate::new();
        let come = |first: u64| {
            for number in (first..=TOKENS).step_by(2) {
                let _either_way = gate.admit(token(number));
                assert!(gate.newest() >= Some(token(number)), "it went back");
                assert!(number == 1 || gate.admit(token(number - 1)).is_err());
            }
        };
        thread::scope(|scope| {
            scope.spawn(|| come(1));
            scope.spawn(|| come(2));
        });
        assert_eq!(gate.newest(), Some(token(TOKENS)));
    }
}
