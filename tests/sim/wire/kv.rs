use super::Door;
use crate::tell;
use etcd_client::proto::{
    PbCompactionRequest, PbCompactionResponse, PbDeleteRequest, PbDeleteResponse, PbKvService,
    PbPutRequest, PbPutResponse, PbRangeRequest, PbRangeResponse, PbRangeStreamResponse,
    PbTxnRequest, PbTxnResponse,
};
use tonic::{Request, Response, Status};

#[tonic::async_trait]
impl PbKvService for Door {
    async fn range(
        &self,
        request: Request<PbRangeRequest>,
    ) -> Result<Response<PbRangeResponse>, Status> {
        let ask = request.into_inner();
        self.ask(tell::range(&ask), move |model| model.range(&ask))
            .await
    }

    type RangeStreamStream = tokio_stream::Empty<Result<PbRangeStreamResponse, Status>>;

    async fn range_stream(
        &self,
        _: Request<PbRangeRequest>,
    ) -> Result<Response<Self::RangeStreamStream>, Status> {
        Err(Status::unimplemented("range_stream"))
    }

    async fn put(&self, request: Request<PbPutRequest>) -> Result<Response<PbPutResponse>, Status> {
        let ask = request.into_inner();
        self.ask(tell::put(&ask), move |model| model.put(ask)).await
    }

    async fn delete_range(
        &self,
        request: Request<PbDeleteRequest>,
    ) -> Result<Response<PbDeleteResponse>, Status> {
        let ask = request.into_inner();
        self.ask(tell::delete(&ask), move |model| model.delete(&ask))
            .await
    }

    async fn txn(&self, request: Request<PbTxnRequest>) -> Result<Response<PbTxnResponse>, Status> {
        let ask = request.into_inner();
        self.ask(tell::txn(&ask), move |model| model.txn(&ask))
            .await
    }

    async fn compact(
        &self,
        request: Request<PbCompactionRequest>,
    ) -> Result<Response<PbCompactionResponse>, Status> {
        let ask = request.into_inner();
        self.ask(format!("compact {}", ask.revision), move |model| {
            model.compact(ask.revision)?;
            let header = model.header();
            Ok(PbCompactionResponse { header })
        })
        .await
    }
}
