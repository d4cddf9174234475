//! The errors of this crate, each with a remedy.
//!
//! Four kinds: *retry* (the store did not answer in time), *data* (it returned other bytes than were put there),
//! *refused* (it cannot do what is needed, or may not), and *latched* (another writer has taken over, and this one
//! writes nothing any more).

use std::sync::Arc;
use std::time::Duration;

use object_store::path::Path;

use crate::failure::in_short;
use crate::op::Op;

/// The result of the fallible functions of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A setting with an invalid value.
    #[error("{setting} is {value}: {expected}")]
    Setting {
        /// The name of the setting.
        setting: &'static str,
        /// Its value.
        value: String,
        /// The accepted values.
        expected: &'static str,
    },
    /// An address of an unknown store, or one that lacks a required part.
    #[error("{address}: {what}")]
    Address {
        /// The given address.
        address: String,
        /// What is wrong with it.
        what: String,
    },
    /// The store did not answer in time, in spite of retries. Nothing that was acknowledged is lost; try later.
    #[error(
        "{op} {path} failed {attempts} times in {spent:.1?}, the last time with: {}; try again later",
        in_short(source)
    )]
    Unreachable {
        /// The requested operation.
        op: Op,
        /// The object.
        path: Path,
        /// The number of attempts.
        attempts: u32,
        /// The time spent.
        spent: Duration,
        /// The last failure.
        source: Arc<object_store::Error>,
    },
    /// No server accepts a connection, and none has accepted one before.
    #[error(
        "{op} {path} failed for want of a connection: {}; check the address, the network, and that the server runs",
        in_short(source)
    )]
    Unconnected {
        /// The requested operation.
        op: Op,
        /// The object.
        path: Path,
        /// How the connection failed.
        source: Arc<object_store::Error>,
    },
    /// The store refuses the request permanently: credentials, permissions, a name that it does not accept.
    #[error(
        "{op} {path} is refused: {}; mend the credentials or the store's settings",
        in_short(source)
    )]
    Refused {
        /// The requested operation.
        op: Op,
        /// The object.
        path: Path,
        /// The store's own error.
        source: Arc<object_store::Error>,
    },
    /// The store has no conditional PUT, or does not enforce its condition.
    #[error(
        "this store cannot hold a tablespace: {why}; without that, two writers could both be acknowledged"
    )]
    NotConditional {
        /// What it lacks.
        why: String,
    },
    /// The bytes differ from what was put there, also when read again.
    #[error("{path}: {what}; restore the object from a copy")]
    Corrupt {
        /// The object.
        path: Path,
        /// What is wrong with it.
        what: String,
    },
    /// The store lacks an object that the manifest names, or the manifest of an open tablespace.
    #[error("{path} belongs to the tablespace and is not in the store; restore it from a copy")]
    Missing {
        /// The object.
        path: Path,
    },
    /// A reader's snapshot is older than its lease, and an object that it needs was deleted.
    #[error(
        "the snapshot of version {version} has expired, and the writer has deleted what it needs: refresh, or open \
         the mount again; if leases are not renewed in time, make Options::lease longer"
    )]
    Expired {
        /// The snapshot's version.
        version: u64,
    },
    /// A tablespace of a format that this build does not know.
    #[error("{path} has format version {found}, and this build knows {known}; use {} build",
        if found < known { "an earlier" } else { "a later" })]
    Format {
        /// The object.
        path: Path,
        /// Its version.
        found: u16,
        /// The newest one known.
        known: u16,
    },
    /// There is no tablespace at this prefix.
    #[error("there is no manifest at {path}; create the tablespace first, or mend the prefix")]
    Absent {
        /// Where its manifest would be.
        path: Path,
    },
    /// There is a tablespace at this prefix already.
    #[error("there is a tablespace at {path} already; open it, or choose another prefix")]
    Exists {
        /// Its manifest.
        path: Path,
    },
    /// Another writer has the tablespace, or had it when it died.
    #[error(
        "a writer of epoch {epoch} has the tablespace and has not closed it; if it is dead or may be fenced \
         off, take over"
    )]
    Held {
        /// The other writer's epoch.
        epoch: u32,
    },
    /// Another writer has taken over. This one writes nothing any more; what it had acknowledged is kept.
    #[error("the writer of epoch {epoch} was fenced off by one of epoch {by}; open again to go on")]
    Fenced {
        /// This writer's epoch.
        epoch: u32,
        /// The other one's.
        by: u32,
    },
    /// No file of that number or name.
    #[error("there is no file {file}")]
    NoFile {
        /// Its name, or number.
        file: String,
    },
    /// A file of that name exists already.
    #[error("there is a file {file} already")]
    NameTaken {
        /// The name.
        file: String,
    },
    /// The tablespace has been closed.
    #[error("the tablespace is closed; open it again")]
    Closed,
    /// The local directory of a mount fails, or cannot be used as one.
    #[error("{path}: {what}")]
    Local {
        /// The file or directory.
        path: String,
        /// What is wrong.
        what: String,
    },
}

impl Error {
    /// Whether the same call may succeed later.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self, Error::Unreachable { .. })
    }

    /// Whether the store has not answered, so that further requests are pointless.
    pub(crate) fn is_silence(&self) -> bool {
        matches!(self, Error::Unreachable { .. } | Error::Unconnected { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_stores_answer_the_code_and_the_message_are_shown() {
        let said = |what: &str| object_store::Error::PermissionDenied {
            path: "a".to_owned(),
            source: what.to_owned().into(),
        };
        let xml = "403 Forbidden: <?xml version=\"1.0\"?>\n<Error><Code>SignatureDoesNotMatch</Code><Message>The \
                   signature\n does not match.</Message><StringToSign>AWS4-HMAC</StringToSign></Error>";
        let (op, path, source) = (Op::Put, Path::from("a"), Arc::new(said(xml)));
        let text =
            Error::Refused { op, path: path.clone(), source: Arc::clone(&source) }.to_string();
        let expected =
            "putting a is refused: SignatureDoesNotMatch: The signature does not match; mend";
        assert!(text.starts_with(expected) && !text.contains("AWS4"), "{text}");
        let spent = Duration::ZERO;
        let text = Error::Unreachable { op, path, attempts: 1, spent, source }.to_string();
        assert!(text.contains("does not match; try again") && !text.contains('<'), "{text}");
        let plain = in_short(&said("one line\nand another"));
        assert!(plain.ends_with("one line and another"), "{plain}");
        assert_eq!(in_short(&said(&"x".repeat(5000))).len(), 300);
    }
}
