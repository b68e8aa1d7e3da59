use super::stream::Heard;
use super::{Door, Hear, Out};
use etcd_client::proto::{PbWatchRequest, PbWatchResponse, PbWatchService};
use tonic::{Request, Response, Status, Streaming};

#[tonic::async_trait]
impl PbWatchService for Door {
    type WatchStream = Heard<PbWatchResponse>;

    async fn watch(
        &self,
        request: Request<Streaming<PbWatchRequest>>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        self.open(request.into_inner(), Hear::Watch, |stream, ask| {
            Some(Out::Watch(stream, ask.request_union?))
        })
        .await
    }
}
