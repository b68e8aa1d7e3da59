//! `break`: takes a lock away, if it still is that hold.

use crate::args::Break;
use crate::exit::{self, Failure};
use crate::print;
use etcd_lock::etcd_client::Client;
use etcd_lock::{Mutex, Session};

pub(crate) async fn breaking(client: Client, args: Break) -> Result<u8, Failure> {
    let (name, token) = (&args.name, args.if_token);
    let session = Session::open(client).await?;
    let broken = Mutex::new(&session, name)?.break_if(token).await?;
    session.close().await?;
    let Some(holder) = broken else {
        let text = format!("no hold of {name:?} with token {token}; see its queue");
        return Err(Failure::new(exit::NOT_HAD, text));
    };
    let label = print::visible(&holder.label);
    print::line(format!(
        "broken: {name} was held by {label} (token {token})"
    ))?;
    Ok(0)
}
