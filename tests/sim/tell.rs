//! Requests in words, for the story of a run.

use etcd_client::proto::{
    PbCompare, PbDeleteRequest, PbPutRequest, PbRangeRequest, PbTargetUnion, PbTxnOpRequest,
    PbTxnRequest, PbWatchRequestUnion, PbWatchResponse,
};

pub fn range(ask: &PbRangeRequest) -> String {
    format!("get {}", span(&ask.key, &ask.range_end))
}

pub fn put(ask: &PbPutRequest) -> String {
    format!("put {}", span(&ask.key, &[]))
}

pub fn delete(ask: &PbDeleteRequest) -> String {
    format!("delete {}", span(&ask.key, &ask.range_end))
}

pub fn txn(ask: &PbTxnRequest) -> String {
    let compares: Vec<_> = ask.compare.iter().map(compare).collect();
    let ops = ask.success.iter().filter_map(|op| op.request.as_ref());
    let ops: Vec<_> = ops.map(op).collect();
    if compares.is_empty() {
        return ops.join(", ");
    }
    format!("if {}: {}", compares.join(" and "), ops.join(", "))
}

pub fn watch(ask: &PbWatchRequestUnion) -> String {
    match ask {
        PbWatchRequestUnion::CreateRequest(ask) => {
            format!(
                "watch {} as {}",
                span(&ask.key, &ask.range_end),
                ask.watch_id
            )
        }
        PbWatchRequestUnion::CancelRequest(ask) => format!("cancel {}", ask.watch_id),
        PbWatchRequestUnion::ProgressRequest(_) => "progress?".to_owned(),
    }
}

pub fn watched(answer: &PbWatchResponse) -> String {
    let id = answer.watch_id;
    if answer.canceled {
        return format!("{id} is cancelled");
    }
    if answer.created {
        return format!("{id} is created");
    }
    let events = answer.events.iter().map(|event| {
        let kind = ["put", "deleted"][usize::try_from(event.r#type).unwrap_or(0)];
        let kv = event.kv.as_ref().unwrap();
        format!("{} {kind} at {}", span(&kv.key, &[]), kv.mod_revision)
    });
    format!("{id}: {}", events.collect::<Vec<_>>().join(", "))
}

fn op(op: &PbTxnOpRequest) -> String {
    match op {
        PbTxnOpRequest::RequestRange(ask) => range(ask),
        PbTxnOpRequest::RequestPut(ask) => put(ask),
        PbTxnOpRequest::RequestDeleteRange(ask) => delete(ask),
        PbTxnOpRequest::RequestTxn(ask) => format!("({})", txn(ask)),
    }
}

fn compare(ask: &PbCompare) -> String {
    let sign = ["=", ">", "<", "!="][usize::try_from(ask.result).unwrap_or(0)];
    let what = match &ask.target_union {
        Some(PbTargetUnion::CreateRevision(at)) => format!("created {sign} {at}"),
        Some(PbTargetUnion::ModRevision(at)) => format!("modified {sign} {at}"),
        other => format!("{other:?}"),
    };
    format!("{} {what}", span(&ask.key, &ask.range_end))
}

fn span(key: &[u8], end: &[u8]) -> String {
    let star = if end.is_empty() { "" } else { "*" };
    format!("{}{star}", String::from_utf8_lossy(key))
}
