//! Requests that fail temporarily.

use std::time::Duration;

use forebay_object::is_transient;
use forebay_object::object_store::Error as StoreError;

/// Number of attempts of a request that fails temporarily.
const ATTEMPTS: u32 = 6;

/// Retries a request that fails temporarily, a few times; `repeats` is called before each retry. A measurement covers
/// a store with its failures, not only its best hour.
pub(super) async fn again<T, R>(
    repeats: impl Fn(),
    request: impl Fn() -> R,
) -> Result<T, StoreError>
where
    R: Future<Output = Result<T, StoreError>>,
{
    let mut pause = Duration::from_millis(50);
    for _ in 1..ATTEMPTS {
        match request().await {
            Err(error) if is_transient(&error) => {
                repeats();
                tokio::time::sleep(pause).await;
                pause *= 2;
            }
            done => return done,
        }
    }
    request().await
}
