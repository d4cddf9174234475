//! Whether a store enforces conditions on PUT requests.

use std::time::Duration;

use object_store::PutMode;
use object_store::path::Path;

use crate::client::{Client, Swap};
use crate::error::{Error, Result};

/// Age after which a probe object may be deleted, whichever process put it.
const PROBE_LIFE: Duration = Duration::from_secs(3600);

/// Refuses a store that does not enforce conditions: two writers could both be acknowledged there.
pub(crate) async fn prove_conditions(client: &Client) -> Result<()> {
    let path = client.path(&["probes", &format!("{:016x}", client.draw())]);
    let proved = try_conditions(client, &path).await;
    let swept = match proved {
        Ok(()) => delete_probes(client, &path).await,
        Err(error) => Err(error),
    };
    match swept {
        // A store that does not answer will not delete the probe either; a later client deletes it.
        Err(error) if error.is_silence() => Err(error),
        swept => swept.and(client.delete(&path).await),
    }
}

/// Deletes probe objects of clients that were killed; `own` has just been put, and its timestamp is the store's time.
async fn delete_probes(client: &Client, own: &Path) -> Result<()> {
    let all = client.list(&client.path(&["probes"])).await?;
    let now = all.iter().find(|it| it.location == *own).map(|it| it.last_modified);
    for probe in &all {
        let age = now.and_then(|now| (now - probe.last_modified).to_std().ok());
        if age.is_some_and(|age| age > PROBE_LIFE) {
            client.delete(&probe.location).await?;
        }
    }
    Ok(())
}

async fn try_conditions(client: &Client, path: &Path) -> Result<()> {
    let refuse = |why: &str| Err(Error::NotConditional { why: why.to_owned() });
    // Repeating a step does not change its outcome, since a lost answer proves nothing.
    client.put(path, "first".into()).await?;
    let Some((_, old)) = client.get(path).await? else {
        return refuse("an object that was put is not there");
    };
    if old.e_tag.is_none() && old.version.is_none() {
        return refuse("its objects have neither an ETag nor a version");
    }
    if let Swap::Done(_) = client.swap_known(path, "created".into(), PutMode::Create).await? {
        return refuse("it creates an object that is there (If-None-Match is ignored)");
    }
    client.put(path, "second".into()).await?;
    if let Swap::Done(_) = client.swap_known(path, "updated".into(), PutMode::Update(old)).await? {
        return refuse("it replaces an object that has changed (If-Match is ignored)");
    }
    // An earlier put whose answer was lost may still take effect and change the object: that is not a refusal.
    for _ in 0..3 {
        let Some((_, new)) = client.get(path).await? else {
            return refuse("an object that was put is not there");
        };
        if let Swap::Done(_) =
            client.swap_known(path, "updated".into(), PutMode::Update(new)).await?
        {
            return Ok(());
        }
        // After an update whose answer was lost, the condition no longer holds.
        if client.get(path).await?.is_some_and(|it| it.0 == "updated") {
            return Ok(());
        }
    }
    refuse("it does not replace an object that has not changed")
}
