//! Publishing: replaces the manifest, and finds out the outcome if the answer is lost.
//!
//! A conditional PUT without an answer may have taken effect, may still, or never. Each manifest has a unique stamp,
//! so the current manifest shows which: it is one that this writer put, the previous one, or another writer's. Worked
//! example: the manifest of version 5 is put, no answer; 4 is there, so 5 is put again, with another stamp, and the
//! condition fails: now the first 5 is there, late. This writer put it, so it becomes the base, and 6 has the changes
//! since. An attempt that takes effect even later fails on its condition.

use object_store::PutMode;
use tokio::time::Instant;

use super::{Base, Publish, State, Writer};
use crate::client::{Client, Swap};
use crate::error::{Error, Result};
use crate::manifest::{manifest_path, reread_manifest};
use crate::op::Op;

impl Writer {
    /// Publishes if there are changes.
    pub(super) async fn publish_changes(&self, state: &mut State, all: bool) -> Result<u64> {
        self.check()?;
        if self.snapshot().changes == state.published && state.attempts.is_empty() {
            return Ok(state.base.version);
        }
        self.replace_manifest(state, Publish { all, held: true }).await
    }

    /// Returns the version that is published then.
    pub(super) async fn replace_manifest(&self, state: &mut State, what: Publish) -> Result<u64> {
        self.client.in_one_deadline(self.replace_in_time(state, what)).await
    }

    async fn replace_in_time(
        &self,
        state: &mut State,
        Publish { all, held }: Publish,
    ) -> Result<u64> {
        self.check()?;
        let path = manifest_path(&self.client);
        let begun = Instant::now();
        for attempt in 1.. {
            let version = state.base.version + 1;
            let stamp = self.client.draw();
            let changed = self.change(|snapshot| {
                if snapshot.is_partial && !all {
                    return None;
                }
                snapshot.is_partial = false;
                // Objects that become obsolete from here on are still named by this manifest.
                snapshot.next_version = snapshot.next_version.max(version + 1);
                Some((snapshot.manifest(version, stamp, self.epoch, held), snapshot.changes))
            });
            let Some((manifest, changes)) = changed else { return Ok(state.base.version) };
            // Recorded before the attempt: whatever its outcome, it may have taken effect.
            state.attempts.push((stamp, changes));
            let mode = PutMode::Update(state.base.tag.clone());
            let swap = self.client.swap(&path, manifest.encode().into(), mode).await?;
            let source = match swap {
                Swap::Done(tag) => {
                    self.has_published(state, Base { version, stamp, tag }, changes);
                    return Ok(version);
                }
                Swap::Lost => None,
                Swap::Unknown(source) => Some(source),
            };
            let (found, tag) = reread_manifest(&self.client).await?;
            let base = Base { version: found.version, stamp: found.stamp, tag };
            if let Some((_, changes)) = state.attempts.iter().copied().find(|it| it.0 == base.stamp)
            {
                self.has_published(state, base, changes);
                if found.stamp == stamp {
                    return Ok(version);
                }
            } else if base.stamp != state.base.stamp {
                let error = Error::Fenced { epoch: self.epoch, by: found.epoch };
                return Err(self.fenced.get_or_init(|| error).clone());
            }
            let spent = begun.elapsed();
            if spent >= self.client.options.deadline {
                return Err(match source {
                    Some(source) => Client::gave_up(Op::Put, path, attempt, spent, source),
                    None => Error::NotConditional {
                        why: "it refuses to replace a manifest that has not changed".to_owned(),
                    },
                });
            }
            self.client.pause(attempt).await;
        }
        unreachable!("the loop ends by returning")
    }

    fn has_published(&self, state: &mut State, base: Base, changes: u64) {
        state.published = changes;
        state.attempts.clear();
        state.published_at.push((base.version, Instant::now()));
        state.base = base;
    }
}
