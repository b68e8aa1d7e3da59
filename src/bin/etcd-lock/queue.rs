//! `queue`: who holds and who waits.

use crate::args::Queue;
use crate::exit::Failure;
use crate::print;
use etcd_lock::etcd_client::Client;
use etcd_lock::{Mutex, Session, Waiter};
use futures_util::stream::{self, StreamExt};
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;

/// Leases asked for at once.
const AT_ONCE: usize = 16;

pub(crate) async fn queue(client: Client, args: Queue) -> Result<u8, Failure> {
    let session = Session::open(client).await?;
    let line = Mutex::new(&session, &args.name)?.queue().await?;
    let left = left(&session, &line).await?;
    session.close().await?;
    if args.json {
        for waiter in &line {
            print::line(as_json(waiter, left[&waiter.lease]))?;
        }
    } else if line.is_empty() {
        print::line(format!("nobody holds {}", args.name))?;
    } else {
        table(&line, &left)?;
    }
    Ok(0)
}

/// How long each lease lives without a renewal; none for those that are gone by now.
async fn left(
    session: &Session,
    line: &[Waiter],
) -> Result<BTreeMap<i64, Option<Duration>>, Failure> {
    let mut left: BTreeMap<_, _> = line.iter().map(|waiter| (waiter.lease, None)).collect();
    let leases: Vec<_> = left.keys().copied().filter(|lease| *lease != 0).collect();
    let asked = stream::iter(leases).map(async |lease| (lease, session.ttl_left(lease).await));
    let mut asked = std::pin::pin!(asked.buffer_unordered(AT_ONCE));
    while let Some((lease, found)) = asked.next().await {
        left.insert(lease, found?);
    }
    Ok(left)
}

fn since(waiter: &Waiter) -> Option<String> {
    let since = waiter.since?;
    Some(humantime::format_rfc3339_seconds(since).to_string())
}

fn as_json(waiter: &Waiter, left: Option<Duration>) -> String {
    json!({
        "position": waiter.position,
        "label": waiter.label,
        "since": since(waiter),
        "token": waiter.token.get(),
        "key": waiter.key,
        "lease": format!("{:x}", waiter.lease),
        "ttl_left": left.map(|left| left.as_secs()),
        "foreign": waiter.foreign,
    })
    .to_string()
}

/// One line each below a heading; what can have blanks in it comes last.
fn table(line: &[Waiter], left: &BTreeMap<i64, Option<Duration>>) -> Result<(), Failure> {
    let heading = ["", "TOKEN", "LEASE", "LEFT", "SINCE", "WHO"];
    let mut rows = vec![heading.map(str::to_owned)];
    rows.extend(line.iter().map(|waiter| {
        let place = match waiter.position {
            0 => "holds".to_owned(),
            position => position.to_string(),
        };
        let left = match left[&waiter.lease] {
            _ if waiter.lease == 0 => "for ever".to_owned(),
            Some(left) => format!("{}s", left.as_secs()),
            None => "gone".to_owned(),
        };
        let foreign = if waiter.foreign { " (foreign)" } else { "" };
        [
            place,
            waiter.token.to_string(),
            format!("{:x}", waiter.lease),
            left,
            since(waiter).unwrap_or_else(|| "-".to_owned()),
            format!("{}{foreign}", print::visible(&waiter.label)),
        ]
    }));
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let width: [usize; 5] = std::array::from_fn(width);
    for row in &rows {
        let cells = row.iter().zip(width);
        let mut cells: Vec<_> = cells
            .map(|(cell, width)| format!("{cell:width$}"))
            .collect();
        cells.push(row[5].clone());
        print::line(cells.join("  "))?;
    }
    Ok(())
}
