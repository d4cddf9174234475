//! Measures what a store takes for a request and for its bytes, with a dozen requests.
//!
//! An object of 4 MiB is put, read in part and as a whole, and deleted: the median of the small reads is the time of a
//! request, and the median of the whole ones less that is the time of its bytes. A smaller object would say little, as
//! requests differ by some ms. Single requests do not show how many requests a store serves at once; that is assumed to
//! be as many as may be in flight.
//!
//! Failure: a store that does not answer is an error; set or default costs work without the measurement.

use std::time::Duration;

use bytes::Bytes;
use fastrand::Rng;
use forebay_lookahead::DeviceCosts;
use tokio::time::Instant;

use crate::client::Client;
use crate::error::{Error, Result};

const MEBIBYTES: u32 = 4;
const BYTES: u64 = (MEBIBYTES as u64) << 20;
const SMALL_BYTES: u64 = 4096;
/// Number of small reads; the first one may open a connection, and does not count.
const SMALL_READS: usize = 8;
const WHOLE_READS: usize = 5;
/// No link to a store is faster, so a shorter time is a measurement error: 12 GB/s.
const MEBIBYTE_LEAST: Duration = Duration::from_micros(80);

/// Measures the costs of the client's store, unless they are known.
pub(crate) async fn know_costs(client: &Client) -> Result<()> {
    if !client.knows_costs() {
        client.set_costs(probe(client).await?);
    }
    Ok(())
}

async fn probe(client: &Client) -> Result<DeviceCosts> {
    let path = client.path(&["probes", &format!("{:016x}-costs", client.draw())]);
    // Random bytes, so that they are not compressed in transit.
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
        let bytes = middle(whole).saturating_sub(request);
        let mebibyte = (bytes / MEBIBYTES).max(MEBIBYTE_LEAST);
        let useful_depth = u32::try_from(client.options.in_flight).unwrap_or(u32::MAX);
        Ok(DeviceCosts { request, mebibyte, useful_depth })
    };
    let measured = measured.await;
    if !measured.as_ref().is_err_and(Error::is_silence) {
        client.delete(&path).await?;
    }
    measured
}

fn middle(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}
