//! The way from etcd-client to a model: its requests, as values that somebody may carry out.
//!
//! The client believes to talk HTTP/2; in truth its calls end up, within the process, in etcd's
//! services as [`Door`] implements them. Each puts what was asked into the [`Outbox`] and waits.
//! Who empties the outbox decides what becomes of it, and when.

mod kv;
mod lease;
mod stream;
mod watch;

use crate::model::Model;
use etcd_client::proto::{
    PbKvServer, PbLeaseKeepAliveResponse, PbLeaseServer, PbWatchRequestUnion, PbWatchResponse,
    PbWatchServer,
};
use etcd_client::{Channel, Client};
use std::any::Any;
use std::sync::{Arc, Mutex};
use tokio::sync::{mpsc, oneshot};
use tonic::{Response, Status, codegen};
use tower::util::BoxCloneSyncService;
use tower::{Service, service_fn};

/// What goes out to etcd.
pub enum Out {
    Call(Call),
    /// A stream is opened, and answers are to be heard there.
    Open(u64, Hear),
    Watch(u64, PbWatchRequestUnion),
    Renew(u64, i64),
    HangUp(u64),
}

impl Out {
    /// The stream that it is on.
    pub fn stream(&self) -> Option<u64> {
        match self {
            Self::Call(_) => None,
            Self::Open(stream, _)
            | Self::Watch(stream, _)
            | Self::Renew(stream, _)
            | Self::HangUp(stream) => Some(*stream),
        }
    }
}

/// One request that has one answer.
pub struct Call {
    pub what: String,
    pub apply: Apply,
    pub reply: oneshot::Sender<Answer>,
}

pub type Answer = Result<Box<dyn Any + Send>, Status>;
pub type Apply = Box<dyn FnOnce(&mut Model) -> Answer + Send>;

/// Where the answers on a stream go.
pub enum Hear {
    Watch(mpsc::UnboundedSender<Result<PbWatchResponse, Status>>),
    Renewals(mpsc::UnboundedSender<Result<PbLeaseKeepAliveResponse, Status>>),
}

/// What the clients have sent and nobody has taken yet, with the number of the sender.
#[derive(Clone, Default)]
pub struct Outbox(Arc<Mutex<Waiting>>);

#[derive(Default)]
struct Waiting {
    out: Vec<(usize, Out)>,
    streams: u64,
}

impl Outbox {
    pub fn take(&self) -> Vec<(usize, Out)> {
        std::mem::take(&mut self.0.lock().unwrap().out)
    }

    /// A client whose requests are marked with `process`. To be made in its runtime.
    pub async fn client(&self, process: usize) -> Client {
        let door = Door {
            outbox: self.clone(),
            process,
        };
        Client::from_channel(door.channel(), None)
            .await
            .expect("a client without a user sends nothing")
    }

    fn put(&self, process: usize, out: Out) {
        self.0.lock().unwrap().out.push((process, out));
    }

    fn stream(&self) -> u64 {
        let mut waiting = self.0.lock().unwrap();
        waiting.streams += 1;
        waiting.streams
    }
}

/// What one client sees of etcd.
#[derive(Clone)]
struct Door {
    outbox: Outbox,
    process: usize,
}

impl Door {
    fn channel(self) -> Channel {
        let kv = PbKvServer::new(self.clone());
        let lease = PbLeaseServer::new(self.clone());
        let watch = PbWatchServer::new(self);
        let service = service_fn(move |request: codegen::http::Request<tonic::body::Body>| {
            let (mut kv, mut lease, mut watch) = (kv.clone(), lease.clone(), watch.clone());
            async move {
                let path = request.uri().path();
                let Ok(answer) = match path.split('/').nth(1) {
                    Some("etcdserverpb.KV") => kv.call(request).await,
                    Some("etcdserverpb.Lease") => lease.call(request).await,
                    Some("etcdserverpb.Watch") => watch.call(request).await,
                    _ => panic!("the model has no {path}"),
                };
                Ok::<_, tower::BoxError>(answer)
            }
        });
        Channel::Custom(BoxCloneSyncService::new(service))
    }

    /// Sends a request and waits for its answer. Dropped before that, the request is on its way.
    async fn ask<T: Send + 'static>(
        &self,
        what: String,
        apply: impl FnOnce(&mut Model) -> Result<T, Status> + Send + 'static,
    ) -> Result<Response<T>, Status> {
        let (reply, answer) = oneshot::channel();
        let apply = move |model: &mut Model| {
            let answer = apply(model)?;
            Ok(Box::new(answer) as Box<dyn Any + Send>)
        };
        let apply: Apply = Box::new(apply);
        self.outbox
            .put(self.process, Out::Call(Call { what, apply, reply }));
        let answer = answer.await.map_err(|_| cut())??;
        let answer = answer.downcast().expect("of this very request");
        Ok(Response::new(*answer))
    }
}

/// What a client is told of a connection that broke.
pub fn cut() -> Status {
    Status::unknown("transport error")
}
