use super::stream::Heard;
use super::{Door, Hear, Out};
use etcd_client::proto::{
    PbLeaseGrantRequest, PbLeaseGrantResponse, PbLeaseKeepAliveRequest, PbLeaseKeepAliveResponse,
    PbLeaseLeasesRequest, PbLeaseLeasesResponse, PbLeaseRevokeRequest, PbLeaseRevokeResponse,
    PbLeaseService, PbLeaseStatus, PbLeaseTimeToLiveRequest, PbLeaseTimeToLiveResponse,
};
use tonic::{Request, Response, Status, Streaming};

#[tonic::async_trait]
impl PbLeaseService for Door {
    async fn lease_grant(
        &self,
        request: Request<PbLeaseGrantRequest>,
    ) -> Result<Response<PbLeaseGrantResponse>, Status> {
        let ask = request.into_inner();
        let what = format!("grant {:x} for {} s", ask.id, ask.ttl);
        self.ask(what, move |model| model.grant(ask)).await
    }

    async fn lease_revoke(
        &self,
        request: Request<PbLeaseRevokeRequest>,
    ) -> Result<Response<PbLeaseRevokeResponse>, Status> {
        let id = request.into_inner().id;
        self.ask(format!("revoke {id:x}"), move |model| {
            model.revoke(id)?;
            let header = model.header();
            Ok(PbLeaseRevokeResponse { header })
        })
        .await
    }

    type LeaseKeepAliveStream = Heard<PbLeaseKeepAliveResponse>;

    async fn lease_keep_alive(
        &self,
        request: Request<Streaming<PbLeaseKeepAliveRequest>>,
    ) -> Result<Response<Self::LeaseKeepAliveStream>, Status> {
        self.open(request.into_inner(), Hear::Renewals, |stream, ask| {
            Some(Out::Renew(stream, ask.id))
        })
        .await
    }

    async fn lease_time_to_live(
        &self,
        request: Request<PbLeaseTimeToLiveRequest>,
    ) -> Result<Response<PbLeaseTimeToLiveResponse>, Status> {
        let ask = request.into_inner();
        let what = format!("time to live of {:x}", ask.id);
        self.ask(what, move |model| Ok(model.time_to_live(ask)))
            .await
    }

    async fn lease_leases(
        &self,
        _: Request<PbLeaseLeasesRequest>,
    ) -> Result<Response<PbLeaseLeasesResponse>, Status> {
        self.ask("leases".to_owned(), |model| {
            let leases = model.lease_ids().map(|id| PbLeaseStatus { id }).collect();
            let header = model.header();
            Ok(PbLeaseLeasesResponse { header, leases })
        })
        .await
    }
}
