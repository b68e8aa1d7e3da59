//! The client, as the flags want it.

use crate::args::{Etcd, Secret};
use crate::exit::{Failure, plain};
use etcd_lock::etcd_client::{Certificate, Client, ConnectOptions, Error, Identity, TlsOptions};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout_at};

/// How long it goes on trying to log in; the library takes as long to open a session.
const WITHIN: Duration = Duration::from_secs(10);
pub(crate) const PAUSE: Duration = Duration::from_millis(300);

pub(crate) async fn connect(etcd: &Etcd) -> Result<Client, Failure> {
    let endpoints: Vec<_> = etcd.endpoints.iter().map(|url| url.trim()).collect();
    if endpoints.iter().any(|url| url.is_empty()) {
        let text = "an endpoint is empty; name at least one member, as in --endpoints http://127.0.0.1:2379";
        return Err(Failure::failed(text));
    }
    if let Some(url) = endpoints.iter().find(|url| url.ends_with(':')) {
        let text = format!("the endpoint {url:?} has no port; etcd's is 2379, as a rule");
        return Err(Failure::failed(text));
    }
    let mut options = ConnectOptions::new().with_connect_timeout(etcd.dial_timeout);
    if let Some((user, password)) = login(etcd)? {
        options = options.with_user(user, password);
    }
    if let Some(tls) = tls(etcd, &endpoints)? {
        options = options.with_tls(tls);
    }
    let deadline = Instant::now() + WITHIN;
    loop {
        let connecting = etcd_lock::connect(&endpoints, Some(options.clone()));
        let error = match timeout_at(deadline, connecting).await {
            Ok(Ok(client)) => return Ok(client),
            Ok(Err(error)) => error,
            Err(_elapsed) => {
                return Err(Failure::failed(
                    "no etcd answers at --endpoints; is it running there?",
                ));
            }
        };
        // Only the login talks to etcd here.
        if !is_away(&error) {
            return Err(refused(&error));
        }
        sleep(PAUSE).await;
    }
}

/// Whether it is a member that is away and may be back soon, or another member is there.
pub(crate) fn is_away(error: &Error) -> bool {
    /// As gRPC numbers "unavailable".
    const UNAVAILABLE: i32 = 14;
    match error {
        // Whom we do not trust, we will not trust later either.
        Error::GRpcStatus(status) if status.message().contains("certificate") => false,
        Error::GRpcStatus(status) => status.code() as i32 == UNAVAILABLE,
        Error::TransportError(_) => true,
        _ => false,
    }
}

fn refused(error: &Error) -> Failure {
    let text = plain(error);
    let advice = match () {
        () if text.contains("authentication failed") => "; check --user and --password",
        () if text.contains("authentication is not enabled") => "; leave --user away",
        () if text.contains("only supported with HTTPS") => "; begin --endpoints with https://",
        () if text.contains("uri") => "; give --endpoints as in http://127.0.0.1:2379",
        () => "",
    };
    Failure::failed(format!("connect to etcd: {text}{advice}"))
}

/// User and password, if there is a user.
fn login(etcd: &Etcd) -> Result<Option<(String, String)>, Failure> {
    let given = |secret: &Option<Secret>| {
        let text = secret.as_ref().map(|secret| secret.0.clone());
        text.filter(|text| !text.is_empty())
    };
    match (given(&etcd.user), given(&etcd.password)) {
        (Some(user), Some(password)) => Ok(Some((user, password))),
        (Some(user), None) => match user.split_once(':') {
            Some((user, password)) => Ok(Some((user.to_owned(), password.to_owned()))),
            None => Err(Failure::failed(
                "a user without a password; set ETCDCTL_PASSWORD or give --user NAME:PASSWORD",
            )),
        },
        (None, Some(_)) => Err(Failure::failed(
            "a password without a user; give --user, too",
        )),
        (None, None) => Ok(None),
    }
}

fn tls(etcd: &Etcd, endpoints: &[&str]) -> Result<Option<TlsOptions>, Failure> {
    let given = |path: &Option<PathBuf>| {
        let path = path.clone();
        path.filter(|path| !path.as_os_str().is_empty())
    };
    let (cacert, cert, key) = (given(&etcd.cacert), given(&etcd.cert), given(&etcd.key));
    let is_wanted = endpoints.iter().any(|url| url.starts_with("https://"))
        || [&cacert, &cert, &key].iter().any(|path| path.is_some());
    if !is_wanted {
        return Ok(None);
    }
    let mut tls = TlsOptions::new();
    tls = match cacert {
        Some(cacert) => tls.ca_certificate(Certificate::from_pem(read(&cacert)?)),
        None => tls.with_enabled_roots(),
    };
    tls = match (cert, key) {
        (Some(cert), Some(key)) => tls.identity(Identity::from_pem(read(&cert)?, read(&key)?)),
        (None, None) => tls,
        (Some(_), None) | (None, Some(_)) => {
            return Err(Failure::failed("--cert and --key go together; give both"));
        }
    };
    Ok(Some(tls))
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    std::fs::read(path)
        .map_err(|error| Failure::failed(format!("cannot read {}: {error}", path.display())))
}
