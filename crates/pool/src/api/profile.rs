//! Profile: a pool's settings from a file, `forebay.toml`.
//!
//! An unknown key is rejected instead of ignored: a misspelt `memory` would leave the pool at its default size, and the
//! user would not know why it is slow.
//!
//! Invariants:  [PRO-1] a profile is accepted as a whole or rejected as a whole
//!              [PRO-2] a rejection names its line
//! Failure:     [`Error::Profile`].

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::time::Duration;

use forebay_io::{CacheMode, Kind, Prefer};
use forebay_lookahead::DeviceCosts;
use serde::de::value::MapAccessDeserializer;
use serde::de::{
    self, Deserialize, Deserializer, IntoDeserializer, MapAccess, Unexpected, Visitor,
};

use super::builder::PoolBuilder;
use super::size::{self, Size};
use crate::error::Error;
use crate::readahead_strategy::{READAHEAD_NAMES, ReadaheadStrategy};
use crate::store::tablespace::Tablespace;
use crate::store::torn::{TORN_PAGES_NAMES, TornPages};

/// Most characters of a wrong line that are quoted.
const QUOTED_CHARS_MAX: usize = 80;

/// The settings of a profile, each `None` where it is not set.
#[derive(Debug, Clone, Default, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Profile {
    /// Memory for pages.
    memory: Option<Size>,
    /// Its upper limit.
    memory_max: Option<Size>,
    /// Size of a page.
    page_size: Option<Size>,
    /// The I/O backend.
    #[serde(deserialize_with = "backend")]
    backend: Option<Prefer>,
    /// Most I/O requests in flight in each tablespace.
    #[serde(deserialize_with = "count")]
    queue_depth: Option<usize>,
    /// How long to wait for a free frame, in milliseconds.
    #[serde(deserialize_with = "count")]
    frame_wait_ms: Option<u64>,
    /// Whether to request huge pages.
    huge_pages: Option<bool>,
    /// Most bytes in one request.
    combine_limit: Option<Size>,
    /// Seconds from the start of one checkpoint to that of the next.
    #[serde(deserialize_with = "count")]
    checkpoint_seconds: Option<u64>,
    /// Log from the redo point of one checkpoint to that of the next.
    checkpoint_log: Option<Size>,
    /// The share of its interval by which a checkpoint has written its pages.
    checkpoint_target: Option<f64>,
    /// The look-ahead of streams without their own setting.
    #[serde(deserialize_with = "readahead")]
    readahead: Option<ReadaheadStrategy>,
    /// The protection against pages left half written by a crash.
    #[serde(deserialize_with = "torn_pages")]
    torn_pages: Option<TornPages>,
    /// Its tablespaces, by name.
    #[serde(rename = "tablespace", deserialize_with = "tablespaces")]
    tablespaces: BTreeMap<String, TablespaceProfile>,
}

/// A profile's settings for one tablespace, each `None` where it is not set.
#[derive(Debug, Clone, Default, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
struct TablespaceProfile {
    /// The directory of its files, as written: a relative path is relative to the process's working directory, not to
    /// the profile. Never empty.
    #[serde(deserialize_with = "directory")]
    directory: Option<PathBuf>,
    /// Through the kernel's page cache, or bypassing it.
    #[serde(deserialize_with = "cache")]
    cache: Option<CacheMode>,
    /// Most I/O requests in flight, instead of the pool's own number.
    #[serde(deserialize_with = "count")]
    queue_depth: Option<usize>,
    /// The cost of requests and bytes on the device.
    #[serde(deserialize_with = "costs")]
    costs: Option<DeviceCosts>,
}

impl PoolBuilder {
    /// A file with settings, such as `forebay.toml`. Settings in code override it.
    ///
    /// Everything in it is optional; an unknown key is rejected. Needs the feature `config`, which is on by default.
    ///
    /// ```toml
    /// memory = "2 GiB"
    /// memory_max = "8 GiB"
    /// page_size = "8k"
    /// backend = "auto"            # or uring, aio, threads, sync
    /// queue_depth = 256
    /// frame_wait_ms = 500
    /// huge_pages = true
    /// combine_limit = "128 KiB"
    /// readahead = "adaptive"      # or os, hint, max, prefetch, async
    /// checkpoint_seconds = 300    # with a log: once a first one has been requested
    /// checkpoint_log = "1 GiB"
    /// checkpoint_target = 0.9
    /// torn_pages = "double-write" # or images, atomic, unprotected
    ///
    /// [tablespace.main]
    /// directory = "/var/lib/engine"
    /// cache = "direct"            # or buffered
    /// queue_depth = 64
    ///
    /// [tablespace.main.costs]     # of the device, kept busy; all three or none
    /// request_ns = 7400
    /// mebibyte_us = 807
    /// useful_depth = 64
    /// ```
    #[must_use]
    pub fn profile(mut self, file: impl AsRef<Path>) -> Self {
        self.profile = Some(file.as_ref().to_owned());
        self
    }

    /// Takes settings from the profile that were not set in code.
    pub(super) fn fill_in(&mut self) -> Result<(), Error> {
        let Some(file) = self.profile.take() else { return Ok(()) };
        let profile = Profile::load(&file)?;
        if self.frames.is_none() {
            self.memory = self.memory.take().or(profile.memory);
        }
        self.memory_max = self.memory_max.take().or(profile.memory_max);
        self.page_size = self.page_size.take().or(profile.page_size);
        self.backend = self.backend.or(profile.backend);
        self.queue_depth = self.queue_depth.or(profile.queue_depth);
        let frame_wait = profile.frame_wait_ms.map(Duration::from_millis);
        self.frame_wait = self.frame_wait.or(frame_wait);
        self.huge_pages = self.huge_pages.or(profile.huge_pages);
        self.combine_limit = self.combine_limit.take().or(profile.combine_limit);
        let every = profile.checkpoint_seconds.map(Duration::from_secs);
        self.checkpoint_every = self.checkpoint_every.or(every);
        self.checkpoint_log = self.checkpoint_log.take().or(profile.checkpoint_log);
        self.checkpoint_target = self.checkpoint_target.or(profile.checkpoint_target);
        self.readahead = self.readahead.or(profile.readahead);
        self.torn_pages = self.torn_pages.or(profile.torn_pages);
        for (name, more) in profile.tablespaces {
            let known = self.tablespaces.iter().position(|space| space.name == name);
            let at = match known {
                Some(at) => at,
                None => {
                    let directory = more.directory.ok_or_else(|| Error::Setting {
                        setting: "the directory of a tablespace",
                        value: format!("not given for `{name}`"),
                        expected: "give it in the profile, or make the tablespace in code"
                            .to_owned(),
                    })?;
                    self.tablespaces.push(Tablespace::new(name, directory));
                    self.tablespaces.len() - 1
                }
            };
            let space = &mut self.tablespaces[at];
            space.cache = space.cache.or(more.cache);
            space.queue_depth = space.queue_depth.or(more.queue_depth);
            space.costs = space.costs.or(more.costs);
        }
        Ok(())
    }
}

impl Profile {
    /// Reads the profile at `path`.
    ///
    /// # Errors
    /// [`Error::Profile`] when it cannot be read, or when [`Profile::parse`] rejects it.
    fn load(path: &Path) -> Result<Profile, Error> {
        let refused = |why| Error::Profile { file: path.into(), why };
        let bytes = std::fs::read(path).map_err(|error| {
            refused(format!("{error}; check the path, or build the pool without a profile"))
        })?;
        let text = std::str::from_utf8(&bytes).map_err(|error| {
            let line = line_at(&bytes, error.valid_up_to());
            refused(format!("line {line}: this is not UTF-8; save the file as UTF-8"))
        })?;
        Profile::parse(text, path)
    }

    /// Parses `text`, which was read from `path`. The path is only used in the error's message.
    ///
    /// # Errors
    /// [`Error::Profile`] with the line: it is not TOML, a key is unknown, or a value has the wrong type. Whether a
    /// value is valid (for example a page size that is not a power of two) is checked when the pool is built.
    fn parse(text: &str, path: &Path) -> Result<Profile, Error> {
        toml::from_str(text)
            .map_err(|error| Error::Profile { file: path.into(), why: why(text, &error) })
    }
}

/// Describes the error in `text`: the line with its number, the reason, and the fix.
fn why(text: &str, error: &toml::de::Error) -> String {
    let at = error.span().map_or(0, |span| span.start);
    let number = line_at(text.as_bytes(), at);
    let line = text.lines().nth(number - 1).unwrap_or_default().trim();
    let mut quoted: String = line.chars().take(QUOTED_CHARS_MAX).collect();
    if quoted.len() < line.len() {
        quoted.push_str("...");
    }
    format!("line {number}, `{quoted}`: {}; correct or remove it", error.message())
}

/// The line, from 1, of the byte at `at`; the last line for the end of the file.
fn line_at(text: &[u8], at: usize) -> usize {
    let before = &text[..at.min(text.len().saturating_sub(1))];
    1 + before.iter().filter(|byte| **byte == b'\n').count()
}

/// The names for a [`Prefer`].
#[derive(serde::Deserialize)]
#[serde(rename_all = "lowercase")]
enum BackendWord {
    Auto,
    Uring,
    Aio,
    Threads,
    Sync,
}

fn backend<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Prefer>, D::Error> {
    Ok(Some(match word(deserializer)? {
        BackendWord::Auto => Prefer::Auto,
        BackendWord::Uring => Prefer::Only(Kind::Uring),
        BackendWord::Aio => Prefer::Only(Kind::Aio),
        BackendWord::Threads => Prefer::Only(Kind::Threads),
        BackendWord::Sync => Prefer::Only(Kind::Sync),
    }))
}

/// [`DeviceCosts`] as written in a profile.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct CostsTable {
    request_ns: u32,
    mebibyte_us: u32,
    useful_depth: u32,
}

fn costs<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<DeviceCosts>, D::Error> {
    let Table(costs): Table<CostsTable> = Table::deserialize(deserializer)?;
    Ok(Some(DeviceCosts {
        request: Duration::from_nanos(costs.request_ns.into()),
        mebibyte: Duration::from_micros(costs.mebibyte_us.into()),
        useful_depth: costs.useful_depth,
    }))
}

fn readahead<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<ReadaheadStrategy>, D::Error> {
    let word = String::deserialize(deserializer)?;
    let unknown = |_| de::Error::invalid_value(Unexpected::Str(&word), &READAHEAD_NAMES);
    word.parse().map(Some).map_err(unknown)
}

fn torn_pages<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<TornPages>, D::Error> {
    let word = String::deserialize(deserializer)?;
    let unknown = |_| de::Error::invalid_value(Unexpected::Str(&word), &TORN_PAGES_NAMES);
    word.parse().map(Some).map_err(unknown)
}

/// The names for a [`CacheMode`].
#[derive(serde::Deserialize)]
#[serde(rename_all = "lowercase")]
enum CacheWord {
    Buffered,
    Direct,
}

fn cache<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<CacheMode>, D::Error> {
    Ok(Some(match word(deserializer)? {
        CacheWord::Buffered => CacheMode::Buffered,
        CacheWord::Direct => CacheMode::Direct,
    }))
}

/// One of an enum's names, from a string only: the toml crate would also accept a table, such as `[backend.uring]`, and
/// ignore its contents.
fn word<'de, D, W>(deserializer: D) -> Result<W, D::Error>
where
    D: Deserializer<'de>,
    W: Deserialize<'de>,
{
    W::deserialize(String::deserialize(deserializer)?.into_deserializer())
}

/// An empty path would mean the working directory wherever a name is joined to it.
fn directory<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<PathBuf>, D::Error> {
    let path = String::deserialize(deserializer)?;
    if path.is_empty() {
        return Err(de::Error::invalid_value(Unexpected::Str(""), &"the path of a directory"));
    }
    Ok(Some(path.into()))
}

fn tablespaces<'de, D>(deserializer: D) -> Result<BTreeMap<String, TablespaceProfile>, D::Error>
where
    D: Deserializer<'de>,
{
    let Table(named): Table<BTreeMap<String, Table<_>>> = Table::deserialize(deserializer)?;
    Ok(named.into_iter().map(|(name, Table(tablespace))| (name, tablespace)).collect())
}

/// A table and nothing else: a derived struct would also accept an array, its fields unnamed.
struct Table<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Table<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Table<T>, D::Error> {
        deserializer.deserialize_any(TableVisitor(PhantomData))
    }
}

struct TableVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for TableVisitor<T> {
    type Value = Table<T>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a table under a heading such as [tablespace.main]")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Table<T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(Table)
    }
}

/// A count; serde's own error message would say "a usize".
fn count<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: TryFrom<u64>,
{
    let count = deserializer.deserialize_any(CountVisitor)?;
    let too_large = |_| de::Error::invalid_value(Unexpected::Unsigned(count), &CountVisitor);
    T::try_from(count).map(Some).map_err(too_large)
}

struct CountVisitor;

impl Visitor<'_> for CountVisitor {
    type Value = u64;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a whole number, not negative and without quotes")
    }

    fn visit_u64<E: de::Error>(self, count: u64) -> Result<u64, E> {
        Ok(count)
    }

    fn visit_i64<E: de::Error>(self, count: i64) -> Result<u64, E> {
        let refused = |_| E::invalid_value(Unexpected::Signed(count), &self);
        u64::try_from(count).map_err(refused)
    }
}

/// From an integer or a string. Text that is not a size fails here, so that the error has the place in the file.
impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Size, D::Error> {
        deserializer.deserialize_any(SizeVisitor)
    }
}

struct SizeVisitor;

impl Visitor<'_> for SizeVisitor {
    type Value = Size;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a size such as \"8KiB\", \"64k\", \"1.5 GiB\" or 8192")
    }

    fn visit_u64<E: de::Error>(self, bytes: u64) -> Result<Size, E> {
        Ok(Size::from(bytes))
    }

    fn visit_i64<E: de::Error>(self, bytes: i64) -> Result<Size, E> {
        let refused = |_| E::invalid_value(Unexpected::Signed(bytes), &self);
        u64::try_from(bytes).map(Size::from).map_err(refused)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Size, E> {
        let refused = |expected| E::custom(format_args!("{text:?} is no size: {expected}"));
        size::parse(text).map(|_| Size::from(text)).map_err(refused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::de::value::{Error as PlainError, F64Deserializer};

    fn parse(text: &str) -> Result<Profile, Error> {
        Profile::parse(text, Path::new("forebay.toml"))
    }

    /// The error message for a rejected profile.
    fn why_not(text: &str) -> String {
        match parse(text) {
            Err(Error::Profile { file, why }) => {
                assert_eq!(&*file, Path::new("forebay.toml"));
                why
            }
            other => panic!("[PRO-1] it is not refused: {other:?}"),
        }
    }

    /// The worked example of [`PoolBuilder::profile`].
    fn example() -> String {
        let docs = include_str!("profile.rs").lines().map(str::trim_start);
        let docs = docs.filter_map(|line| line.strip_prefix("///"));
        let example = docs.skip_while(|line| *line != " ```toml").skip(1);
        example
            .take_while(|line| *line != " ```")
            .fold(String::new(), |text, line| text + line.trim_start() + "\n")
    }

    #[test]
    fn the_worked_example_is_understood() {
        let profile = parse(&example()).unwrap();
        assert_eq!(profile.memory.unwrap().bytes("memory").unwrap(), 2 << 30);
        assert_eq!(profile.memory_max.unwrap().bytes("memory").unwrap(), 8 << 30);
        assert_eq!(profile.page_size.unwrap().bytes("page size").unwrap(), 8192);
        assert_eq!(profile.backend, Some(Prefer::Auto));
        assert_eq!(profile.queue_depth, Some(256));
        assert_eq!(profile.frame_wait_ms, Some(500));
        assert_eq!(profile.huge_pages, Some(true));
        assert_eq!(profile.tablespaces.keys().collect::<Vec<_>>(), ["main"]);
        let main = &profile.tablespaces["main"];
        assert_eq!(main.directory.as_deref(), Some(Path::new("/var/lib/engine")));
        assert_eq!(main.cache, Some(CacheMode::Direct));
        assert_eq!(main.queue_depth, Some(64));
        assert_eq!(main.costs, Some(DeviceCosts::default()));
        assert_eq!(profile.readahead, Some(ReadaheadStrategy::Adaptive));
        assert_eq!(profile.torn_pages, Some(TornPages::DoubleWrite));
    }

    #[test]
    fn what_is_not_said_is_not_set() {
        let profile = parse("# nothing\n[tablespace.a]\n[tablespace.b]\n").unwrap();
        assert!(profile.memory.is_none() && profile.page_size.is_none());
        assert_eq!(profile.backend, None);
        assert_eq!((profile.queue_depth, profile.frame_wait_ms), (None, None));
        assert_eq!(profile.huge_pages, None);
        assert_eq!(profile.tablespaces.keys().collect::<Vec<_>>(), ["a", "b"]);
        let a = &profile.tablespaces["a"];
        assert!(a.directory.is_none());
        assert_eq!((a.cache, a.queue_depth), (None, None));
        assert!(parse("").unwrap().tablespaces.is_empty());
    }

    #[test]
    fn every_backend_and_cache_mode_goes_by_its_own_name() {
        for kind in Kind::ALL {
            let profile = parse(&format!("backend = \"{kind}\"")).unwrap();
            assert_eq!(profile.backend, Some(Prefer::Only(kind)));
        }
        for cache in [CacheMode::Buffered, CacheMode::Direct] {
            let profile = parse(&format!("[tablespace.a]\ncache = \"{cache}\"")).unwrap();
            assert_eq!(profile.tablespaces["a"].cache, Some(cache));
        }
    }

    #[test]
    fn pro_2_an_unknown_key_is_reported_with_its_line_and_all_the_known_ones() {
        let error_text =
            why_not("# mine\nqueue_depth = 1\nmemry = \"2GiB\" # much\nhuge_pages = true");
        let expected = "line 3, `memry = \"2GiB\" # much`: unknown field `memry`, expected one of \
                        `memory`, `memory_max`, `page_size`, `backend`, `queue_depth`, \
                        `frame_wait_ms`, `huge_pages`, `combine_limit`, `checkpoint_seconds`, \
                        `checkpoint_log`, `checkpoint_target`, `readahead`, `torn_pages`, `tablespace`; \
                        correct or remove it";
        assert_eq!(error_text, expected, "[PRO-2]");
        let error_text = why_not("\n[tablespace.a]\ndirectory = \"a\"\nmemory = \"2GiB\"\n");
        let expected = "line 4, `memory = \"2GiB\"`: unknown field `memory`, expected one of \
                        `directory`, `cache`, `queue_depth`, `costs`; correct or remove it";
        assert_eq!(error_text, expected, "[PRO-2]");
        assert!(why_not("\n[tablespaces.a]").starts_with("line 2, `[tablespaces.a]`: unknown"));
        assert!(
            why_not("tablespace.a = {\n cach = 1}").starts_with("line 2, `cach = 1}`: unknown")
        );
    }

    #[test]
    fn pro_1_a_wrong_value_is_refused_with_what_is_expected() {
        let (size, count) = ("expected a size such as", "expected a whole number, not negative");
        let backends = "expected one of `auto`, `uring`, `aio`, `threads`, `sync`";
        for (line, complaint) in [
            ("memory = \"2 gigs\"", "\"2 gigs\" is no size: write a size such as 8KiB"),
            ("memory = \"16EiB\"", "write a size of less than 16 EiB"),
            ("memory = -1", size),
            ("page_size = 1.5", size),
            ("page_size = true", size),
            ("page_size = [8192]", size),
            ("backend = \"io_uring\"", backends),
            ("backend = \"Uring\"", backends),
            ("backend = 3", "expected a string"),
            ("backend = { uring = {} }", "expected a string"),
            ("queue_depth = -1", count),
            ("queue_depth = 1.5", count),
            ("queue_depth = \"64\"", count),
            ("queue_depth = 99999999999999999999", count),
            ("frame_wait_ms = \"1s\"", count),
            ("frame_wait_ms = 1979-05-27", count),
            ("huge_pages = \"yes\"", "expected a boolean"),
            ("huge_pages = 1", "expected a boolean"),
            ("tablespace = 5", "expected a table under a heading such as [tablespace.main]"),
            ("tablespace.a = 5", "expected a table under a heading such as [tablespace.main]"),
            ("tablespace.a = []", "expected a table under a heading such as [tablespace.main]"),
            ("tablespace.a.cache = \"raw\"", "expected `buffered` or `direct`"),
            ("tablespace.a.cache = true", "expected a string"),
            ("tablespace.a.directory = 5", "expected a string"),
            ("tablespace.a.directory = \"\"", "expected the path of a directory"),
            ("tablespace.a.queue_depth = -1", count),
            ("readahead = \"fast\"", "expected os, hint, max, prefetch, async or adaptive"),
            ("torn_pages = \"never\"", "expected unprotected, images, double-write or atomic"),
            ("tablespace.a.costs = 5", "expected a table under a heading such as"),
            ("tablespace.a.costs = { request_ns = 1, mebibyte_us = 2 }", "missing field"),
        ] {
            let error_text = why_not(&format!("# first\n\n{line}\n# last\n"));
            assert!(error_text.starts_with(&format!("line 3, `{line}`: ")), "[PRO-2] {error_text}");
            assert!(error_text.contains(complaint), "{line}: {error_text}");
            assert!(error_text.ends_with("; correct or remove it"), "{error_text}");
        }
    }

    #[test]
    fn pro_2_what_is_no_toml_is_reported_with_its_line() {
        for (text, line) in [
            ("\nmemory 5\n", "line 2, `memory 5`: "),
            ("\n\nmemory =", "line 3, `memory =`: "),
            ("\nmemory = \"2GiB\n", "line 2, `memory = \"2GiB`: "),
            ("memory = 1\r\nmemory = 2\r\n", "line 2, `memory = 2`: "),
            ("[tablespace.a]\n[tablespace.b]\n[tablespace.a]", "line 3, `[tablespace.a]`: "),
            ("\n[tablespace.a", "line 2, `[tablespace.a`: "),
            ("a = [1,\n2,\n", "line 2, `2,`: "),
            ("\nmemory = \"\"\"\n2GiB\n", "line 3, `2GiB`: "),
        ] {
            let error_text = why_not(text);
            assert!(error_text.starts_with(line), "[PRO-2] {text:?}: {error_text}");
        }
    }

    #[test]
    fn of_a_long_line_the_beginning_is_quoted() {
        let error_text = why_not(&format!("x = \"{}\"", "\u{e9}".repeat(1000)));
        let quoted = format!("`x = \"{}...`", "\u{e9}".repeat(QUOTED_CHARS_MAX - 5));
        assert!(error_text.contains(&quoted), "{error_text}");
        assert!(error_text.len() < 500, "{error_text}");
    }

    #[test]
    fn a_file_is_loaded_or_its_error_names_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("forebay.toml");
        let why_not = |expected_file: &Path| match Profile::load(expected_file) {
            Err(Error::Profile { file, why }) if *file == *expected_file => why,
            other => panic!("[PRO-1] {other:?}"),
        };
        let missing = why_not(&path);
        assert!(missing.contains("No such file"), "{missing}");
        assert!(missing.ends_with("; check the path, or build the pool without a profile"));
        assert!(why_not(directory.path()).contains("directory"));

        std::fs::write(&path, b"memory = 8192\n\nbackend = \"\xff\"\n").unwrap();
        assert_eq!(why_not(&path), "line 3: this is not UTF-8; save the file as UTF-8", "[PRO-2]");

        std::fs::write(&path, "\u{feff}memory = 8192\r\n").unwrap();
        let profile = Profile::load(&path).unwrap();
        assert_eq!(profile.memory.unwrap().bytes("memory").unwrap(), 8192);
    }

    #[test]
    fn it_deserializes_from_an_integer_or_a_string_and_from_nothing_else() {
        let from_text = |text: &str| Size::deserialize(text.into_deserializer());
        let error_text: Result<Size, PlainError> = from_text("64k");
        assert_eq!(error_text.unwrap().bytes("memory").unwrap(), 64 << 10);
        let error_text = from_text("2 gigs").unwrap_err().to_string();
        assert!(error_text.contains("\"2 gigs\" is no size: write a size such as"), "{error_text}");

        let from_number = |number: i64| Size::deserialize(number.into_deserializer());
        let error_text: Result<Size, PlainError> = from_number(8192);
        assert_eq!(error_text.unwrap().bytes("memory").unwrap(), 8192);
        let error_text = from_number(-1).unwrap_err().to_string();
        assert!(error_text.contains("`-1`, expected a size such as"), "{error_text}");

        let fraction: F64Deserializer<PlainError> = 1.5.into_deserializer();
        let error_text = Size::deserialize(fraction).unwrap_err().to_string();
        assert!(error_text.contains("`1.5`, expected a size such as"), "{error_text}");
    }
}
