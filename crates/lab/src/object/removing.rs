//! Leftovers of runs: found, removed, and named where removal fails.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use forebay_object::object_store::path::Path;
use forebay_object::object_store::{Error as StoreError, ObjectStore, ObjectStoreExt};
use forebay_object::{in_short, is_transient};
use futures_util::{StreamExt, TryStreamExt, stream};
use tokio::runtime::Builder;
use tokio::time::{sleep, timeout};

use super::gate::Gate;
use super::retry::again;
use super::store_at;
use forebay_measure::interrupt;
use forebay_measure::output::note;

/// The prefix of the names of runs' own prefixes.
pub(super) const PREFIX: &str = "forebay-lab-";
/// How long to wait for PUTs in flight before objects are removed: one of 8 MiB takes seconds on a slow link.
const PATIENCE: Duration = Duration::from_secs(10);
/// After this time a message says that the run waits for them.
const SILENCE: Duration = Duration::from_secs(1);
/// How long one request may take.
const REQUEST: Duration = Duration::from_secs(15);
/// How often the objects are listed and deleted while there are any.
const ROUNDS: u32 = 5;
const DELETES_IN_FLIGHT: usize = 16;
/// Names in a message.
const NAMED_MAX: usize = 20;

/// Objects that could not be removed, if they are known.
#[derive(Debug, thiserror::Error)]
#[error("{}: {why}", named(paths))]
pub(super) struct Left {
    paths: Vec<Path>,
    why: String,
}

fn named(paths: &[Path]) -> String {
    let names: Vec<&str> = paths.iter().take(NAMED_MAX).map(AsRef::as_ref).collect();
    match paths.len().saturating_sub(NAMED_MAX) {
        _ if paths.is_empty() => "what is there could not be listed".to_owned(),
        0 => names.join(", "),
        more => format!("{} and {more} more", names.join(", ")),
    }
}

/// Ends a run's PUTs and removes all that it has put below `prefix`; reports what may remain.
pub(super) fn end(gate: &Gate, url: &str, prefix: &Path) {
    let later = format!("later: forebay lab object --url {url} --clean");
    let mut unsure = gate.shut(SILENCE);
    if !unsure.is_empty() {
        note(&format!("{} PUTs are under way and are waited for", unsure.len()));
        unsure = gate.shut(PATIENCE);
    }
    if !gate.has_put() {
        return;
    }
    if let Err(error) = remove(url, prefix) {
        interrupt::left(&format!(
            "what is below {prefix} could not be removed: {error:#}; {later}"
        ));
    }
    if !unsure.is_empty() {
        interrupt::left(&format!(
            "{} PUTs had no answer within {PATIENCE:?}, and their objects may still appear: {}; {later}",
            unsure.len(),
            named(&unsure)
        ));
    }
}

/// The prefixes that other runs have made below `base`.
pub(super) async fn left_below(
    store: &dyn ObjectStore,
    base: &Path,
) -> Result<Vec<Path>, StoreError> {
    let found = again(|| {}, || store.list_with_delimiter(Some(base))).await?;
    let is_ours = |it: &Path| it.filename().is_some_and(is_of_run);
    Ok(found.common_prefixes.into_iter().filter(is_ours).collect())
}

/// Whether a run's own prefix has this name, as [`Site`](super::Site) makes it.
fn is_of_run(name: &str) -> bool {
    let parts = name.strip_prefix(PREFIX).and_then(|rest| rest.split_once('-'));
    parts.is_some_and(|(seed, process)| {
        u64::from_str_radix(seed, 16).is_ok_and(|it| format!("{it:x}") == seed)
            && process.parse().is_ok_and(|it: u32| it.to_string() == process)
    })
}

/// Removes the leftovers of killed runs below `base`.
pub(super) fn remove_left(url: &str, left: &[Path]) -> anyhow::Result<()> {
    for prefix in left {
        interrupt::check()?;
        remove(url, prefix)?;
        note(&format!("{prefix} is removed"));
    }
    note(&format!("what {} runs had left is removed", left.len()));
    Ok(())
}

/// Removes all below `prefix`, with a separate client: the first one may be in use by another thread.
fn remove(url: &str, prefix: &Path) -> anyhow::Result<()> {
    let (store, _) = store_at(url)?;
    Builder::new_current_thread().enable_all().build()?.block_on(empty(&store, prefix))?;
    // In a store of files the directories remain, and what a killed run had not finished.
    let directory = std::path::Path::new("/").join(prefix.as_ref());
    if url.starts_with("file://") && directory.is_dir() {
        remove_emptied(&directory).context("cannot remove the directory")?;
    }
    Ok(())
}

/// Lists and deletes until nothing is left: a PUT whose response was lost may take effect in between.
async fn empty(store: &Arc<dyn ObjectStore>, prefix: &Path) -> Result<(), Left> {
    let mut left = Left { paths: Vec::new(), why: "objects keep appearing".to_owned() };
    for round in 0..ROUNDS {
        sleep(Duration::from_millis(100) * round).await;
        let deleted = async {
            let found = in_time(store.list(Some(prefix)).try_collect::<Vec<_>>()).await?;
            left.paths = found.into_iter().map(|it| it.location).collect();
            let deletes = stream::iter(&left.paths).map(|path| in_time(store.delete(path)));
            let deletes: Vec<_> = deletes.buffer_unordered(DELETES_IN_FLIGHT).collect().await;
            let failed = deletes.into_iter().filter_map(Result::err);
            // An object that is missing was deleted by a request whose response was lost.
            failed.filter(|it| !matches!(it, StoreError::NotFound { .. })).try_for_each(Err)
        };
        match deleted.await {
            Ok(()) if left.paths.is_empty() => return Ok(()),
            Ok(()) => {}
            Err(error) => {
                left.why = in_short(&error);
                if !is_transient(&error) {
                    break;
                }
            }
        }
    }
    Err(left)
}

async fn in_time<T>(request: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
    timeout(REQUEST, request).await.unwrap_or_else(|_| {
        let source = format!("no answer within {REQUEST:?}").into();
        Err(StoreError::Generic { store: "forebay-lab", source })
    })
}

/// Removes `directory` and those below, with files that the store had begun and that no listing shows; any other file
/// keeps it.
fn remove_emptied(directory: &std::path::Path) -> std::io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        let number = name.to_str().and_then(|it| it.rsplit_once('#')).map(|(_, number)| number);
        if entry.file_type()?.is_dir() {
            remove_emptied(&entry.path())?;
        } else if number.is_some_and(|it| it.parse::<u64>().is_ok()) {
            fs::remove_file(entry.path())?;
        }
    }
    fs::remove_dir(directory)
}
