//! `observe`: who leads, and every change of it.

use crate::args::Observe;
use crate::exit::{self, Failure};
use crate::print;
use crate::signals::Signals;
use etcd_lock::etcd_client::Client;
use etcd_lock::{Leader, Observer};
use futures_util::StreamExt;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::sleep;

/// As long as the library tries to open a session. Later it goes on through any outage.
const FIRST_WITHIN: Duration = Duration::from_secs(10);

pub(crate) async fn observe(client: Client, args: Observe) -> Result<u8, Failure> {
    let mut signals = Signals::new()?;
    let mut leaders = Observer::new(client, &args.name)?;
    let mut begun = false;
    loop {
        let leader = tokio::select! {
            biased;
            signal = signals.next() => return Ok(exit::of_signal(signal.as_raw())),
            leader = leaders.next() => leader,
            () = sleep(FIRST_WITHIN), if !begun => {
                let text = "no etcd answers within 10s; is it running at --endpoints?";
                return Err(Failure::failed(text));
            }
        };
        begun = true;
        let Some(leader) = leader else {
            return Ok(0);
        };
        // Errors are refusals; who types wants to know rather than wait.
        let leader = leader?;
        print::line(if args.json {
            json!({ "name": args.name, "leader": leader.as_ref().map(as_json) }).to_string()
        } else {
            leader.map_or_else(|| "nobody leads".to_owned(), |leader| as_text(&leader))
        })?;
    }
}

fn as_text(leader: &Leader) -> String {
    let value = print::visible(&String::from_utf8_lossy(&leader.value));
    format!("{value} leads (token {}, key {})", leader.token, leader.key)
}

fn as_json(leader: &Leader) -> Value {
    json!({
        "key": leader.key,
        "value": String::from_utf8_lossy(&leader.value),
        "token": leader.token.get(),
        "lease": format!("{:x}", leader.lease),
    })
}
