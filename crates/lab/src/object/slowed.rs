//! A store made slower: each request waits, and the bytes of all of them go through one link.
//!
//! Real stores answer most requests in about the same time and few much later. So 98 in 100 requests take the median
//! plus or minus a fifth (log-normal, sigma 0.2), and two in 100 take about the time that one in 100 exceeds
//! (sigma 0.25). One log-normal through both figures would have its 95th percentile at half of the 99th.
//!
//! A transfer is queued on the link when it is requested, and ends when the transfers before it and its own bytes have
//! been sent.

use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use fastrand::Rng;
use forebay_object::object_store::path::Path;
use forebay_object::object_store::{
    CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload,
    ObjectMeta, ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use futures_util::stream::{self, BoxStream, StreamExt, TryStreamExt};
use statrs::distribution::{ContinuousCDF, Normal};
use tokio::time::{Instant, sleep, sleep_until};

/// One request in this many is slow: half of these exceed the 99th percentile.
const SLOW_ONE_IN: u32 = 50;
const SIGMA: f64 = 0.2;
const SIGMA_SLOW: f64 = 0.25;

/// How long requests take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Latency {
    median: Duration,
    p99: Option<Duration>,
}

impl FromStr for Latency {
    type Err = String;

    fn from_str(text: &str) -> Result<Latency, String> {
        let looks = "a latency looks like 20ms or 20ms,p99=200ms";
        let time =
            |text: &str| humantime::parse_duration(text.trim()).map_err(|_| looks.to_owned());
        let (median, rest) = text.split_once(',').map_or((text, None), |it| (it.0, Some(it.1)));
        let p99 = rest.map(|it| it.trim().strip_prefix("p99=").ok_or(looks).map(time));
        let latency = Latency { median: time(median)?, p99: p99.transpose()?.transpose()? };
        match latency.p99 {
            Some(p99) if p99 < latency.median => Err("p99 is at least the median".to_owned()),
            _ => Ok(latency),
        }
    }
}

impl fmt::Display for Latency {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:?}", self.median)?;
        self.p99.map_or(Ok(()), |p99| write!(out, ",p99={p99:?}"))
    }
}

impl Latency {
    fn draw(&self, rng: &mut Rng) -> Duration {
        let slow = self.p99.filter(|_| rng.u32(0..SLOW_ONE_IN) == 0);
        let (middle, sigma) = slow.map_or((self.median, SIGMA), |p99| (p99, SIGMA_SLOW));
        // An f64 below 1 and not 0, where the quantile would be infinite.
        let quantile = Normal::standard().inverse_cdf(rng.f64().max(1e-9));
        middle.mul_f64((sigma * quantile).exp())
    }
}

/// The store, slower.
#[derive(Debug)]
pub(super) struct Slowed {
    inner: Arc<dyn ObjectStore>,
    latency: Option<Latency>,
    rng: Mutex<Rng>,
    link: Arc<Link>,
}

#[derive(Debug)]
struct Link {
    bandwidth: Option<u64>,
    /// When the last transfer's bytes have been sent.
    free: Mutex<Option<Instant>>,
}

impl Link {
    async fn transfer(&self, bytes: u64) {
        let Some(bandwidth) = self.bandwidth else { return };
        let through = {
            let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
            let now = Instant::now();
            let time = Duration::from_secs_f64(bytes as f64 / bandwidth as f64);
            let begin = free.map_or(now, |it| it.max(now));
            *free.insert(begin + time)
        };
        sleep_until(through).await;
    }
}

impl Slowed {
    pub(super) fn new(
        inner: Arc<dyn ObjectStore>,
        latency: Option<Latency>,
        bandwidth: Option<u64>,
        seed: u64,
    ) -> Slowed {
        let rng = Mutex::new(Rng::with_seed(seed));
        let link = Arc::new(Link { bandwidth, free: Mutex::default() });
        Slowed { inner, latency, rng, link }
    }

    async fn wait(&self) {
        let rng = || self.rng.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(time) = self.latency.map(|it| it.draw(&mut rng())) {
            sleep(time).await;
        }
    }
}

impl fmt::Display for Slowed {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(out)
    }
}

#[async_trait]
impl ObjectStore for Slowed {
    async fn put_opts(&self, path: &Path, body: PutPayload, how: PutOptions) -> Result<PutResult> {
        self.wait().await;
        self.link.transfer(body.content_length() as u64).await;
        self.inner.put_opts(path, body, how).await
    }

    async fn put_multipart_opts(
        &self,
        path: &Path,
        how: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(path, how).await
    }

    async fn get_opts(&self, path: &Path, how: GetOptions) -> Result<GetResult> {
        self.wait().await;
        let mut answer = self.inner.get_opts(path, how).await?;
        // The part that is never read does not use the link.
        let (link, bytes) = (Arc::clone(&self.link), answer.range.end - answer.range.start);
        let (meta, range, attributes) =
            (answer.meta.clone(), answer.range.clone(), answer.attributes.clone());
        let extensions = std::mem::take(&mut answer.extensions);
        let body = async move {
            link.transfer(bytes).await;
            Ok::<_, Error>(answer.into_stream())
        };
        let payload = GetResultPayload::Stream(stream::once(body).try_flatten().boxed());
        Ok(GetResult { payload, meta, range, attributes, extensions })
    }

    fn delete_stream(
        &self,
        paths: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(paths)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.wait().await;
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, how: CopyOptions) -> Result<()> {
        self.wait().await;
        self.inner.copy_opts(from, to, how).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_object::object_store::ObjectStoreExt;
    use forebay_object::object_store::memory::InMemory;

    #[test]
    fn a_latency_is_its_median_and_what_one_in_a_hundred_exceeds() {
        let latency: Latency = "20ms, p99=200ms".parse().unwrap();
        let mut rng = Rng::with_seed(1);
        let mut drawn: Vec<_> = (0..100_000).map(|_| latency.draw(&mut rng)).collect();
        drawn.sort_unstable();
        let at = |percent: usize| drawn[drawn.len() * percent / 100].as_secs_f64() * 1000.0;
        assert!((19.0..21.5).contains(&at(50)) && at(95) < 40.0, "{} {}", at(50), at(95));
        assert!((170.0..230.0).contains(&at(99)), "{}", at(99));
        let plain: Latency = "5ms".parse().unwrap();
        assert!((0..1000).all(|_| plain.draw(&mut rng) < Duration::from_millis(15)));
        for wrong in ["", "fast", "20ms,200ms", "20ms,p99=fast", "20ms,p99=10ms"] {
            assert!(wrong.parse::<Latency>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn bytes_of_all_requests_go_through_one_link() {
        let slowed = Slowed::new(Arc::new(InMemory::new()), None, Some(10 << 20), 1);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let begun = std::time::Instant::now();
        runtime.block_on(async {
            let path = Path::from("a");
            slowed.put(&path, vec![0; 1 << 20].into()).await.unwrap();
            let (one, two) = (slowed.get(&path), slowed.get(&path));
            let (one, two) = futures_util::future::try_join(one, two).await.unwrap();
            futures_util::future::try_join(one.bytes(), two.bytes()).await.unwrap();
        });
        let took = begun.elapsed();
        assert!((0.3..0.6).contains(&took.as_secs_f64()), "{took:?}");
    }
}
