//! `ls`: the locks under a prefix, found by their keys.

use crate::args::Ls;
use crate::connect::{PAUSE, is_away};
use crate::exit::{Failure, plain};
use crate::print;
use etcd_lock::Waiter;
use etcd_lock::etcd_client::{
    Client, Error, GetOptions, GetResponse, KeyValue, ResponseHeader, SortOrder, SortTarget,
};
use futures_util::stream::{self, StreamExt};
use serde_json::json;
use std::collections::BTreeMap;
use tokio::time::sleep;

/// Keys a page: with keys alone, far below the 4 MiB that an answer may have.
const PAGE: i64 = 2000;

/// Holders read at once.
const AT_ONCE: usize = 16;

/// A line of keys behind one name.
struct Line {
    /// The oldest key: who holds.
    first: KeyValue,
    length: usize,
    /// Whether a key in it is one of a lock's: other keys may have a `/`, too.
    is_lock: bool,
}

pub(crate) async fn ls(client: Client, args: Ls) -> Result<u8, Failure> {
    let lines = lines(&client, &args.prefix).await;
    let mut lines = lines.map_err(|error| refused(&error))?;
    // Behind `a/` are the keys of `a`, too.
    lines.retain(|name, line| line.is_lock && name.starts_with(&args.prefix));
    let held = stream::iter(lines).map(async |(name, line)| {
        let key = line.first.key().to_vec();
        let value = get(&client, key, GetOptions::new()).await;
        (name, line, value)
    });
    let mut held = std::pin::pin!(held.buffered(AT_ONCE));
    while let Some((name, line, value)) = held.next().await {
        let value = value.map_err(|error| refused(&error))?;
        // It may be gone by now; then the next one holds, whom nobody has asked for yet.
        let holder = value.kvs().first().map(|kv| Waiter::read(0, kv).label);
        let (token, waiters) = (line.first.create_revision(), line.length - 1);
        print::line(if args.json {
            json!({ "name": name, "holder": holder, "token": token, "waiters": waiters })
                .to_string()
        } else {
            let holder = holder.as_deref().unwrap_or("(just gone)");
            let holder = print::visible(holder);
            let waiters = match waiters {
                0 => "nobody waits".to_owned(),
                1 => "1 waits".to_owned(),
                n => format!("{n} wait"),
            };
            format!("{name}: held by {holder} (token {token}), {waiters}")
        })?;
    }
    Ok(0)
}

/// A read that goes on while no member answers; `--command-timeout` ends that.
async fn get(client: &Client, key: Vec<u8>, options: GetOptions) -> Result<GetResponse, Error> {
    loop {
        let mut kv = client.kv_client();
        match kv.get(key.clone(), Some(options.clone())).await {
            Err(error) if is_away(&error) => sleep(PAUSE).await,
            answer => return answer,
        }
    }
}

/// All lines of keys under a prefix, by name, as of one revision.
async fn lines(client: &Client, prefix: &str) -> Result<BTreeMap<String, Line>, Error> {
    let mut lines = BTreeMap::new();
    // With an empty key, etcd understands a prefix as "all".
    let mut from = prefix.as_bytes().to_vec();
    let end = end_of(prefix.as_bytes());
    let mut revision = 0;
    loop {
        let key = if from.is_empty() { vec![0] } else { from };
        let options = GetOptions::new()
            .with_range(end.clone())
            .with_keys_only()
            .with_sort(SortTarget::Key, SortOrder::Ascend)
            .with_limit(PAGE)
            .with_revision(revision);
        let mut page = get(client, key, options).await?;
        revision = page.header().map_or(revision, ResponseHeader::revision);
        let more = page.more();
        let kvs = page.take_kvs();
        let Some(last) = kvs.last() else {
            return Ok(lines);
        };
        // The next key there can be.
        from = [last.key(), &[0]].concat();
        for kv in kvs {
            note(&mut lines, kv);
        }
        if !more {
            return Ok(lines);
        }
    }
}

fn note(lines: &mut BTreeMap<String, Line>, kv: KeyValue) {
    let key = String::from_utf8_lossy(kv.key());
    let Some((name, last)) = key.rsplit_once('/') else {
        return;
    };
    if name.is_empty() || last.is_empty() {
        return;
    }
    let is_lock = is_place(last, kv.lease());
    match lines.get_mut(name) {
        None => {
            let line = Line {
                first: kv.clone(),
                length: 1,
                is_lock,
            };
            lines.insert(name.to_owned(), line);
        }
        Some(line) => {
            line.length += 1;
            line.is_lock |= is_lock;
            let order = |kv: &KeyValue| (kv.create_revision(), kv.key().to_vec());
            if order(&kv) < order(&line.first) {
                line.first = kv;
            }
        }
    }
}

/// Whether that is the last part of a lock's key: the lease that it hangs on, in hexadecimal, and
/// perhaps a number. So it is with Go's package as well.
fn is_place(last: &str, lease: i64) -> bool {
    let id = last.split_once('-').map_or(last, |(id, _)| id);
    lease != 0 && format!("{lease:x}") == id
}

/// The first key that does not begin so; for none, that of all keys.
fn end_of(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end;
        }
    }
    vec![0]
}

fn refused(error: &Error) -> Failure {
    let text = plain(error);
    let advice = match () {
        () if text.contains("permission denied") => "; give a PREFIX that the user may read",
        () if text.contains("user name is empty") => "; give --user and --password",
        () => "",
    };
    Failure::failed(format!("list the locks: {text}{advice}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_of_locks_are_told_by_their_lease() {
        assert!(is_place("1f-12", 0x1f) && is_place("1f", 0x1f));
        assert!(!is_place("1f-12", 0x2f) && !is_place("0-1", 0) && !is_place("x", 0x1f));
    }

    #[test]
    fn a_prefix_ends_before_the_next() {
        assert_eq!(end_of(b"a/"), b"a0");
        assert_eq!(end_of(b"a\xff"), b"b");
        assert_eq!(end_of(b""), b"\0");
        assert_eq!(end_of(b"\xff"), b"\0");
    }
}
