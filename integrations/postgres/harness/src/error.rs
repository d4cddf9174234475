//! What can go wrong around a server.

use std::io;
use std::path::{Path, PathBuf};

/// Shorthand of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a server cannot be made, started, reached or looked at.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A command ends with a failure; its last words say more.
    #[error("{command}: {words}")]
    Command {
        /// The command, with its arguments.
        command: String,
        /// The end of what it wrote.
        words: String,
    },
    /// A file or directory of the server cannot be had.
    #[error("{}: {source}", path.display())]
    File {
        /// The file or directory.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The socket's path would be longer than the system allows (107 bytes): set TMPDIR to a shorter one.
    #[error("{} is too long for a socket's path: set TMPDIR to a shorter one", .0.display())]
    LongPath(PathBuf),
    /// The server does not take connections; its log says why.
    #[error("the server does not start: {log}")]
    Start {
        /// The end of its log.
        log: String,
    },
    /// A connection or a statement of the harness's own fails.
    #[error("{}", said(.0))]
    Sql(#[from] postgres::Error),
}

impl Error {
    pub(crate) fn file(path: &Path) -> impl FnOnce(io::Error) -> Error {
        move |source| Error::File { path: path.to_owned(), source }
    }
}

/// The server's words, which the client's error leaves to its source.
fn said(error: &postgres::Error) -> String {
    error
        .as_db_error()
        .map_or_else(|| error.to_string(), |db| format!("{}: {db}", db.code().code()))
}
