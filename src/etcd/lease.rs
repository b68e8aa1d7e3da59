//! Requests about a lease.

use super::{Etcd, Verdict, classify};
use etcd_client::{
    Error, LeaseGrantOptions, LeaseKeepAliveStream, LeaseKeeper, LeaseTimeToLiveOptions,
};
use std::time::Duration;

impl Etcd {
    /// Grants a lease under an id of our choosing, so that a lost answer leaves no orphan.
    /// Gives the TTL that etcd granted.
    pub(crate) async fn grant(&self, id: i64, ttl: i64) -> Result<Duration, Error> {
        let options = LeaseGrantOptions::new().with_id(id);
        let answer = self.lease.clone().grant(ttl, Some(options)).await?;
        Ok(seconds(answer.ttl()))
    }

    /// Sees to it that there is no such lease.
    pub(crate) async fn revoke(&self, id: i64) -> Result<(), Error> {
        match self.lease.clone().revoke(id).await {
            Err(error) if classify(&error) != Verdict::LeaseGone => Err(error),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// How long the lease lives; `None` if there is no such lease.
    pub(crate) async fn time_to_live(&self, id: i64) -> Result<Option<TimeToLive>, Error> {
        let answer = self.lease.clone().time_to_live(id, None).await?;
        // Not by what is left of it: in its last second, that is 0.
        Ok((answer.granted_ttl() > 0).then(|| TimeToLive {
            granted: seconds(answer.granted_ttl()),
            left: seconds(answer.ttl()),
        }))
    }

    /// All keys that hang on the lease.
    pub(crate) async fn lease_keys(&self, id: i64) -> Result<Vec<Vec<u8>>, Error> {
        let options = LeaseTimeToLiveOptions::new().with_keys();
        let answer = self.lease.clone().time_to_live(id, Some(options)).await?;
        Ok(answer.keys().to_vec())
    }

    /// Opens a stream of renewals; the first is sent and answered before this returns.
    pub(crate) async fn renewals(&self, id: i64) -> Result<Renewals, Error> {
        let (keeper, answers) = self.lease.clone().keep_alive(id).await?;
        Ok(Renewals { keeper, answers })
    }
}

/// What etcd says of a lease.
pub(crate) struct TimeToLive {
    /// The TTL that it was granted with.
    pub(crate) granted: Duration,
    /// How much of that would be left if it were renewed no more.
    pub(crate) left: Duration,
}

/// An open stream of renewals of one lease.
pub(crate) struct Renewals {
    keeper: LeaseKeeper,
    answers: LeaseKeepAliveStream,
}

impl Renewals {
    /// Sends one renewal and waits for its answer. After an error, or when dropped before the
    /// answer, the stream is of no more use: a later answer could belong to an earlier renewal.
    pub(crate) async fn renew(&mut self) -> Result<(), Error> {
        self.keeper.keep_alive().await?;
        match self.answers.message().await? {
            Some(answer) if answer.ttl() > 0 => Ok(()),
            Some(_) => Err(Error::LeaseKeepAliveError("lease not found".into())),
            None => Err(Error::LeaseKeepAliveError("stream closed".into())),
        }
    }
}

fn seconds(ttl: i64) -> Duration {
    Duration::from_secs(u64::try_from(ttl).unwrap_or(0))
}
