//! What a store's error says about whether to retry.
//!
//! Some variants of `object_store::Error` say it directly. Other failures, and all failures of a LIST, are `Generic`:
//! the status of the answer is in a type that `object_store` does not export, so it is read from the text of that link
//! of the source chain. Tests with a scripted server fail if a later version words it differently.

use std::error::Error as StdError;
use std::io;

use object_store::Error as StoreError;

/// Codes of a 404 that refer to the object; others refer to its bucket or to the credentials.
const OF_AN_OBJECT: [&str; 6] =
    ["NoSuchKey", "NoSuchVersion", "BlobNotFound", "ObjectNotFound", "KeyNotFound", "NotFound"];
/// Codes of a 400 with which S3 answers a request that was cut short or damaged in transit.
const DAMAGED_ON_THE_WAY: [&str; 3] = ["RequestTimeout", "IncompleteBody", "BadDigest"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The object is not there.
    Absent,
    /// The object ends before the requested range.
    PastEnd,
    /// The server is overloaded, or the answer was lost.
    Transient,
    /// There are no credentials, or they are not accepted.
    Denied,
    /// No server accepts a connection at that address.
    Unconnected,
    /// The store does not support such a request.
    Unsupported,
    /// The answer to the same request will be the same.
    Permanent,
}

impl Failure {
    pub(crate) fn of(error: &StoreError) -> Failure {
        let is_one_of = |codes: &[&str]| code(error).is_some_and(|it| codes.contains(&it.as_str()));
        match error {
            StoreError::NotFound { .. } if code(error).is_none() || is_one_of(&OF_AN_OBJECT) => {
                Failure::Absent
            }
            StoreError::PermissionDenied { .. } | StoreError::Unauthenticated { .. } => {
                Failure::Denied
            }
            StoreError::NotImplemented { .. } | StoreError::NotSupported { .. } => {
                Failure::Unsupported
            }
            StoreError::Generic { .. } => match status(error) {
                Some(401 | 403) => Failure::Denied,
                Some(416) => Failure::PastEnd,
                Some(501) => Failure::Unsupported,
                Some(400) if is_one_of(&DAMAGED_ON_THE_WAY) => Failure::Transient,
                Some(408 | 429 | 500..) => Failure::Transient,
                Some(_) => Failure::Permanent,
                None => without_status(error),
            },
            _ => Failure::Permanent,
        }
    }
}

/// Whether the same request may succeed when it is repeated soon: the server is overloaded, or the answer was lost.
#[must_use]
pub fn is_transient(error: &StoreError) -> bool {
    Failure::of(error) == Failure::Transient
}

fn without_status(error: &StoreError) -> Failure {
    use io::ErrorKind::{ConnectionRefused, HostUnreachable, NetworkUnreachable};
    for link in links(error) {
        #[cfg(feature = "url")]
        {
            use object_store::client::{HttpError, HttpErrorKind};
            if link.downcast_ref().is_some_and(|it: &HttpError| it.kind() == HttpErrorKind::Connect)
            {
                return Failure::Unconnected;
            }
            // A chain of redirects without an end.
            if link.downcast_ref().is_some_and(reqwest::Error::is_redirect) {
                return Failure::Permanent;
            }
        }
        let kind = link.downcast_ref().map(io::Error::kind);
        if matches!(kind, Some(ConnectionRefused | HostUnreachable | NetworkUnreachable)) {
            return Failure::Unconnected;
        }
        if link.to_string().starts_with("Wanted range starting at") {
            return Failure::PastEnd;
        }
    }
    Failure::Transient
}

/// The status of the server's answer.
fn status(error: &StoreError) -> Option<u16> {
    links(error).find_map(|link| {
        let text = link.to_string();
        // The status was 301, 302 or similar; the error does not keep which.
        if text.starts_with("Received redirect without LOCATION") {
            return Some(301);
        }
        let status = text.strip_prefix("Server returned non-2xx status code: ")?;
        status.get(..3)?.parse().ok()
    })
}

fn links(error: &StoreError) -> impl Iterator<Item = &(dyn StdError + 'static)> {
    let first: &(dyn StdError + 'static) = error;
    std::iter::successors(Some(first), |it: &&(dyn StdError + 'static)| StdError::source(*it))
}

fn element(text: &str, name: &str) -> Option<String> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    rest.split_once("</").map(|it| it.0.to_owned())
}

/// The store's own code of an error, from an answer in XML.
fn code(error: &StoreError) -> Option<String> {
    element(&error.to_string(), "Code")
}

/// A summary of a store's error, in one line: for an answer in XML its code and message; for others the first cause as
/// well.
#[must_use]
pub fn in_short(error: &StoreError) -> String {
    const LETTERS_MAX: usize = 300;
    let text = match error {
        StoreError::PermissionDenied { source, .. }
        | StoreError::Unauthenticated { source, .. } => source.to_string(),
        error => error.to_string(),
    };
    let mut short = match (element(&text, "Code"), element(&text, "Message")) {
        (Some(code), Some(message)) => format!("{code}: {message}"),
        (Some(only), None) | (None, Some(only)) => only,
        (None, None) => text,
    };
    short = short.split_whitespace().collect::<Vec<_>>().join(" ");
    short = short.trim_end_matches(['.', ':', ' ']).chars().take(LETTERS_MAX).collect();
    let cause = links(error).last().filter(|it| it.is::<io::Error>()).map(ToString::to_string);
    match cause.filter(|it| !short.contains(it)) {
        Some(cause) => format!("{short}: {cause}"),
        None => short,
    }
}
