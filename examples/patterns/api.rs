//! Somebody else's API, with a rate limit. It can check no token, so a lock is what there is, and here is what it can
//! do: spread the calls out, which saves refusals. And what it cannot: make a call happen once. That takes an
//! idempotency key, named after what is to be done once, not after who does it.

use super::children::Result;
use super::instance::{Late, hold, instance};
use super::provider::{Failed, PACE, Provider};
use super::telling::{cure, disaster, say};
use std::sync::{Arc, Barrier};
use tokio::time::sleep;

const INSTANCES: i64 = 4;

pub(crate) async fn tell() -> Result<()> {
    let provider = Arc::new(Provider::default());
    let lock = format!("etcd-lock-example/{}/api", std::process::id());
    crowd(&provider, &lock).await?;
    lost_answer(&provider, &lock).await?;
    late_call(&provider, &lock).await
}

/// The rate limit: where a lock helps.
async fn crowd(provider: &Arc<Provider>, lock: &str) -> Result<()> {
    say(format!(
        "{INSTANCES} instances call at once, the provider takes a call every {PACE:?}"
    ));
    let at_once = Arc::new(Barrier::new(INSTANCES.try_into()?));
    let each = |invoice| {
        let (provider, at_once) = (provider.clone(), at_once.clone());
        instance(async move || {
            at_once.wait();
            Ok(provider.charge(invoice, None).is_ok())
        })
    };
    let charged = count((0..INSTANCES).map(each)).await?;
    let refused = provider.refused();
    disaster(
        refused > 0,
        format!("{charged} charged, {refused} refused (429 Too Many Requests)"),
    )?;
    let each = |invoice| {
        let (provider, lock) = (provider.clone(), lock.to_owned());
        instance(async move || {
            let guard = hold(&lock, "one of many").await?;
            let charged = provider.charge_in_time(invoice, key(invoice)).await.is_ok();
            // The lock is the pace: whoever comes next may call at once.
            sleep(PACE).await;
            guard.release().await?;
            Ok(charged)
        })
    };
    sleep(PACE).await;
    let charged = count((10..10 + INSTANCES).map(each)).await?;
    cure(
        charged == 4 && provider.refused() == refused,
        format!("one at a time, with the pause under the lock: {charged} charged, 0 refused"),
    )
}

/// The answer is lost, the lock is not.
async fn lost_answer(provider: &Provider, lock: &str) -> Result<()> {
    let guard = hold(lock, "the only one").await?;
    say("the provider charges, but its answer is lost; the holder of the lock calls again");
    for (invoice, key) in [(20, None), (21, key(21))] {
        provider.lose_next_answer();
        let first = provider.charge_in_time(invoice, key.clone()).await;
        let again = provider.charge_in_time(invoice, key).await;
        if (first, again) != (Err(Failed::NoAnswer), Ok(())) {
            return Err("the first answer was to be lost, and no other".into());
        }
    }
    disaster(
        guard.is_held() && provider.charged(20) == 2,
        "the lock was held all the time, and the invoice is charged twice",
    )?;
    cure(
        provider.charged(21) == 1,
        "with an idempotency key: charged once",
    )?;
    Ok(guard.release().await?)
}

/// The lock is lost, the call is not.
async fn late_call(provider: &Arc<Provider>, lock: &str) -> Result<()> {
    let (its_provider, its_lock) = (provider.clone(), lock.to_owned());
    let late = Late::start(async move |pause| {
        let guard = hold(&its_lock, "the late one").await?;
        let held = guard.is_held();
        say("the holder has asked and is told that it holds; it stands still before it calls");
        pause.stand_still()?;
        both(&its_provider).await?;
        Ok((held, guard.is_held()))
    })
    .await?;
    let guard = hold(lock, "the next").await?;
    both(provider).await?;
    say("the next one holds, and has called; now the first goes on");
    let told = late.go_on().await?;
    guard.release().await?;
    disaster(
        told == (true, false) && provider.charged(30) == 2,
        "the lock was lost in time, the call was made nevertheless: charged twice",
    )?;
    cure(
        provider.charged(31) == 1,
        "with an idempotency key: charged once, whoever comes late",
    )
}

/// Charges an invoice without a key and one with it.
async fn both(provider: &Provider) -> Result<()> {
    for (invoice, key) in [(30, None), (31, key(31))] {
        let charged = provider.charge_in_time(invoice, key).await;
        charged.map_err(|failed| format!("{failed:?}"))?;
    }
    Ok(())
}

/// Everybody who charges this invoice gives the same key, whenever and wherever.
#[expect(clippy::unnecessary_wraps, reason = "as the provider takes it")]
fn key(invoice: i64) -> Option<String> {
    Some(format!("charge-invoice-{invoice}"))
}

async fn count(
    running: impl Iterator<Item = tokio::task::JoinHandle<Result<bool>>>,
) -> Result<usize> {
    let mut count = 0;
    for instance in running.collect::<Vec<_>>() {
        count += usize::from(instance.await??);
    }
    Ok(count)
}
