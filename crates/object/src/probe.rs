//! What a store takes for a request and for its bytes, by a dozen requests.
//!
//! An object of 1 MiB is put, read in part and as a whole, and deleted: the median of the small reads is a request, and
//! the median of the whole ones less that a MiB. Single requests say nothing of how many at once a store serves; that
//! is taken to be as many as may be in flight.
//!
//! Failure: a store that does not answer is an error, and costs that are set or usual ones serve as well.

use std::time::Duration;

use bytes::Bytes;
use fastrand::Rng;
use forebay_lookahead::DeviceCosts;
use tokio::time::Instant;

use crate::client::Client;
use crate::error::Result;

const BYTES: u64 = 1 << 20;
const SMALL_BYTES: u64 = 4096;
/// The first one may open a connection, and does not count.
const SMALL_READS: usize = 8;
const WHOLE_READS: usize = 3;

/// The costs of the client's store.
pub(crate) async fn probe(client: &Client) -> Result<DeviceCosts> {
    let path = client.path(&["probes", &format!("{:016x}-costs", client.draw())]);
    // Not to be compressed on the way.
    let mut bytes = vec![0; BYTES as usize];
    Rng::with_seed(client.draw()).fill(&mut bytes);
    client.put(&path, Bytes::from(bytes)).await?;
    let read = async |bytes: u64| {
        let begun = Instant::now();
        client.get_range(&path, 0..bytes).await?;
        Ok(begun.elapsed())
    };
    let measured = async {
        let mut small = Vec::new();
        for _ in 0..SMALL_READS {
            small.push(read(SMALL_BYTES).await?);
        }
        let request = middle(small.split_off(1));
        let mut whole = Vec::new();
        for _ in 0..WHOLE_READS {
            whole.push(read(BYTES).await?);
        }
        let mebibyte = middle(whole).saturating_sub(request).max(Duration::from_micros(1));
        let useful_depth = u32::try_from(client.options.in_flight).unwrap_or(u32::MAX);
        Ok(DeviceCosts { request, mebibyte, useful_depth })
    };
    let measured = measured.await;
    client.delete(&path).await?;
    measured
}

fn middle(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}
