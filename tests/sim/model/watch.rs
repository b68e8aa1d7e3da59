//! Watches.

use super::range::Range;
use super::{Model, compacted};
use etcd_client::proto::{PbEvent, PbWatchRequestUnion, PbWatchResponse};

const DUPLICATE: &str = "mvcc: duplicate watch ID provided on the WatchStream";

pub(super) struct Watcher {
    range: Range,
    /// Kinds of events that are not wanted: 0 puts, 1 deletes.
    filters: Vec<i32>,
    /// The first revision that is wanted.
    from: i64,
}

impl Watcher {
    fn pick(&self, at: i64, events: &[PbEvent]) -> Vec<PbEvent> {
        let wanted = events.iter().filter(|event| {
            let key = &event.kv.as_ref().unwrap().key;
            at >= self.from && self.range.contains(key) && !self.filters.contains(&event.r#type)
        });
        wanted.cloned().collect()
    }
}

impl Model {
    /// What a client says on a watch stream.
    pub fn watch(&mut self, stream: u64, ask: PbWatchRequestUnion) {
        match ask {
            PbWatchRequestUnion::CreateRequest(ask) => {
                let id = if ask.watch_id == 0 {
                    self.free_id(stream)
                } else {
                    ask.watch_id
                };
                if self.watchers.contains_key(&(stream, id)) {
                    self.say(stream, |answer| {
                        (answer.watch_id, answer.created, answer.canceled) = (-1, true, true);
                        DUPLICATE.clone_into(&mut answer.cancel_reason);
                    });
                    return;
                }
                let watcher = Watcher {
                    range: Range::new(&ask.key, &ask.range_end),
                    filters: ask.filters,
                    from: ask.start_revision.max(0),
                };
                self.say(stream, |answer| {
                    (answer.watch_id, answer.created) = (id, true);
                });
                self.begin(stream, id, watcher);
            }
            PbWatchRequestUnion::CancelRequest(ask) => {
                if self.watchers.remove(&(stream, ask.watch_id)).is_some() {
                    self.say(stream, |answer| {
                        (answer.watch_id, answer.canceled) = (ask.watch_id, true);
                    });
                }
            }
            PbWatchRequestUnion::ProgressRequest(_) => {
                self.say(stream, |answer| answer.watch_id = -1);
            }
        }
    }

    /// A watch stream is no more.
    pub fn hang_up(&mut self, stream: u64) {
        self.watchers.retain(|(of, _), _| *of != stream);
    }

    /// From the past, if that was asked for and is still known.
    fn begin(&mut self, stream: u64, id: i64, mut watcher: Watcher) {
        if watcher.from == 0 {
            watcher.from = self.revision() + 1;
        }
        if watcher.from <= self.revision() {
            if watcher.from <= self.compacted {
                let revision = self.compacted;
                self.outbox.push((
                    stream,
                    PbWatchResponse {
                        watch_id: id,
                        canceled: true,
                        compact_revision: revision,
                        cancel_reason: compacted().message().to_owned(),
                        header: self.header().map(|mut header| {
                            header.revision = 0;
                            header
                        }),
                        ..PbWatchResponse::default()
                    },
                ));
                return;
            }
            let past = self.history.iter();
            let past: Vec<_> = past
                .flat_map(|(at, events)| watcher.pick(*at, events))
                .collect();
            if !past.is_empty() {
                self.say(stream, |answer| {
                    (answer.watch_id, answer.events) = (id, past);
                });
            }
        }
        self.watchers.insert((stream, id), watcher);
    }

    pub(super) fn tell(&mut self, events: &[PbEvent]) {
        let at = self.revision();
        let watchers = self.watchers.iter();
        let told: Vec<_> = watchers
            .map(|(of, watcher)| (*of, watcher.pick(at, events)))
            .collect();
        for ((stream, id), events) in told {
            if !events.is_empty() {
                self.say(stream, |answer| {
                    (answer.watch_id, answer.events) = (id, events);
                });
            }
        }
    }

    fn say(&mut self, stream: u64, fill: impl FnOnce(&mut PbWatchResponse)) {
        let mut answer = PbWatchResponse {
            header: self.header(),
            ..PbWatchResponse::default()
        };
        fill(&mut answer);
        self.outbox.push((stream, answer));
    }

    fn free_id(&self, stream: u64) -> i64 {
        let mut id = 0;
        while self.watchers.contains_key(&(stream, id)) {
            id += 1;
        }
        id
    }
}
