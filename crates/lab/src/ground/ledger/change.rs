//! What a run changes outside itself, and the lines by which a ledger remembers it.
//!
//! A ledger is text, one JSON object a line. The first says whose it is; then come notes, each with a
//! number, and strikes. A later note of the same number replaces the earlier one, which is how a
//! change becomes better known (the loop device that was found free). Worked example, in which the
//! readahead is still to be put back and the directory is not:
//!
//! ```text
//! {"line":"process","schema":"forebay-ledger/1","pid":4711,"started":88123,"boot":"5d1…","command":"forebay lab"}
//! {"line":"note","number":0,"at_us":17,"change":{"what":"directory","path":"/mnt/.forebay-lab-x","contents":true}}
//! {"line":"note","number":1,"at_us":23,"change":{"what":"readahead","file":"/sys/…","found_kib":8192,"set_kib":[0]}}
//! {"line":"struck","number":0}
//! ```
//!
//! Invariants:  [CHG-1] a line that was not written to its end says nothing, and is the last one
//!              [CHG-2] what is outstanding is what was noted and not struck out, in order of time
//! Failure:     a whole line that cannot be understood makes the ledger unreadable: to guess would be
//!              to leave something behind, or to undo what is not ours.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::undo;

/// Names the form of these lines.
pub(super) const SCHEMA: &str = "forebay-ledger/1";

/// Something outside this process that a run changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "kebab-case")]
pub enum Change {
    /// A number of the kernel's is set: how far it reads ahead on a device.
    Readahead {
        /// The file that holds it.
        #[serde(with = "path_text")]
        file: PathBuf,
        /// What it held, in KiB.
        found_kib: u64,
        /// All that the run has set it to, in KiB.
        set_kib: Vec<u64>,
        /// What the file was of, if its name may stand for something else later: a mount without a device.
        #[serde(default)]
        of: Option<String>,
    },
    /// Something is mounted that the run made and nobody else has a use for.
    Mount {
        /// Where.
        #[serde(with = "path_text")]
        point: PathBuf,
        /// What: the source or, where that says nothing, the type that the list of mounts shows.
        source: String,
    },
    /// A file is shown as a block device.
    Loop {
        /// The file.
        #[serde(with = "path_text")]
        backing_file: PathBuf,
        /// The device, once it is known which one.
        attached: Option<Attached>,
    },
    /// A directory is made.
    Directory {
        /// Where.
        #[serde(with = "path_text")]
        path: PathBuf,
        /// Whether it goes with all that is in it; a mount point goes only when it is empty.
        contents: bool,
    },
}

impl Change {
    /// The readahead in `file`, found at `found_kib` and not set yet.
    pub(crate) fn readahead(file: &Path, found_kib: u64) -> Change {
        let of = undo::stands_for(file);
        Change::Readahead { file: file.to_owned(), found_kib, set_kib: Vec::new(), of }
    }

    /// Whether it is still there after the machine was started anew.
    pub(super) fn survives_boot(&self) -> bool {
        matches!(self, Change::Directory { .. })
    }

    /// Notes that a readahead will be `kib`; other changes have none.
    pub(crate) fn will_be_kib(&mut self, kib: u64) {
        if let Change::Readahead { set_kib, .. } = self
            && !set_kib.contains(&kib)
        {
            set_kib.push(kib);
        }
    }

    #[cfg(test)]
    pub(super) fn is_about(&self, path: &Path) -> bool {
        match self {
            Change::Readahead { file: about, .. }
            | Change::Mount { point: about, .. }
            | Change::Loop { backing_file: about, .. }
            | Change::Directory { path: about, .. } => about == path,
        }
    }
}

/// A loop device, and which of its uses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attached {
    /// Kernel name, such as `loop3`.
    pub name: String,
    /// The kernel's number of this use of the device: a device that was detached and attached again
    /// has another one. Unknown to kernels before 5.15.
    pub sequence: Option<u64>,
}

/// A process, so that it is not taken for a later one with the same number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Process {
    pub(super) pid: u32,
    /// When it started, in the kernel's ticks since it booted; `None` where that is not told.
    pub(super) started: Option<u64>,
    /// Which boot of the machine.
    pub(super) boot: Option<String>,
    /// What it was called with.
    pub(super) command: String,
}

/// One line of a ledger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "kebab-case")]
pub(super) enum Line {
    Process {
        schema: String,
        #[serde(flatten)]
        process: Process,
    },
    Note {
        number: u64,
        /// Wall clock, in microseconds since 1970: the order between ledgers.
        at_us: u64,
        change: Change,
    },
    Struck {
        number: u64,
    },
}

impl Line {
    /// With the end of the line.
    pub(super) fn text(&self) -> serde_json::Result<String> {
        serde_json::to_string(self).map(|text| text + "\n")
    }
}

/// A change that was noted and not struck out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Outstanding {
    pub(super) number: u64,
    /// When it was noted first.
    pub(super) at_us: u64,
    pub(super) change: Change,
}

/// A change, and which of several ledgers it is from.
pub(super) type InLedger = (usize, Outstanding);

/// What a ledger says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Contents {
    /// Whose it is; `None` when not even that line was written to its end.
    pub(super) process: Option<Process>,
    /// Oldest first.
    pub(super) outstanding: Vec<Outstanding>,
    /// Bytes of whole lines: where the next one goes.
    pub(super) whole_bytes: usize,
}

/// A ledger that cannot be understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line} cannot be understood ({why})")]
pub struct Unreadable {
    /// From 1.
    pub line: usize,
    /// What the parser said.
    pub why: String,
}

impl Contents {
    /// Reads the bytes of a ledger.
    ///
    /// # Errors
    /// [`Unreadable`]: a whole line is of another form, or of a later version of this one.
    pub(super) fn parse(bytes: &[u8]) -> Result<Contents, Unreadable> {
        let whole_bytes = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        let mut process = None;
        let mut notes: BTreeMap<u64, Outstanding> = BTreeMap::new();
        for (index, text) in bytes[..whole_bytes].split_inclusive(|&byte| byte == b'\n').enumerate()
        {
            let unreadable = |why: String| Unreadable { line: index + 1, why };
            match serde_json::from_slice(text).map_err(|error| unreadable(error.to_string()))? {
                Line::Process { schema, .. } if schema != SCHEMA => {
                    return Err(unreadable(format!("it is of the form {schema}")));
                }
                Line::Process { process: whose, .. } => process = Some(whose),
                Line::Note { number, at_us, change } => {
                    let at_us = notes.get(&number).map_or(at_us, |earlier| earlier.at_us);
                    notes.insert(number, Outstanding { number, at_us, change });
                }
                Line::Struck { number } => drop(notes.remove(&number)),
            }
        }
        Ok(Contents { process, outstanding: notes.into_values().collect(), whole_bytes })
    }
}

/// `outstanding` of several ledgers in the order in which it is undone, the newest first, without
/// what goes by itself: a directory inside a filesystem that is unmounted for good.
///
/// Each is given with the ledger it is from, by its place in `ledgers`; what goes by itself comes
/// second.
pub(super) fn undoing_order(ledgers: &[&[Outstanding]]) -> (Vec<InLedger>, Vec<InLedger>) {
    let mut all: Vec<InLedger> = Vec::new();
    for (ledger, outstanding) in ledgers.iter().enumerate() {
        all.extend(outstanding.iter().map(|one| (ledger, one.clone())));
    }
    let points: Vec<PathBuf> = all
        .iter()
        .filter_map(|(_, one)| match &one.change {
            Change::Mount { point, .. } => Some(point.clone()),
            _ => None,
        })
        .collect();
    let inside = |path: &Path| points.iter().any(|point| path != point && path.starts_with(point));
    all.sort_by_key(|(_, one)| std::cmp::Reverse((one.at_us, one.number)));
    all.into_iter().partition(|(_, one)| match &one.change {
        Change::Directory { path, .. } => !inside(path),
        _ => true,
    })
}

/// Paths as text, and those that are no text as bytes: no path is beyond a ledger.
mod path_text {
    use std::ffi::OsString;
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    use std::path::{Path, PathBuf};

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    #[serde(untagged)]
    enum Written {
        Text(String),
        Bytes(Vec<u8>),
    }

    pub(super) fn serialize<S: Serializer>(path: &Path, out: S) -> Result<S::Ok, S::Error> {
        let bytes = path.as_os_str().as_bytes();
        let written = match std::str::from_utf8(bytes) {
            Ok(text) => Written::Text(text.to_owned()),
            Err(_) => Written::Bytes(bytes.to_vec()),
        };
        written.serialize(out)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
        Ok(match Written::deserialize(from)? {
            Written::Text(text) => PathBuf::from(text),
            Written::Bytes(bytes) => PathBuf::from(OsString::from_vec(bytes)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(path: &str) -> Change {
        Change::Directory { path: path.into(), contents: true }
    }

    fn mount(point: &str) -> Change {
        Change::Mount { point: point.into(), source: "/dev/loop3".to_owned() }
    }

    fn note(number: u64, at_us: u64, change: Change) -> Line {
        Line::Note { number, at_us, change }
    }

    fn text(lines: &[Line]) -> Vec<u8> {
        lines.iter().map(|line| line.text().unwrap()).collect::<String>().into_bytes()
    }

    fn outstanding(number: u64, at_us: u64, change: Change) -> Outstanding {
        Outstanding { number, at_us, change }
    }

    #[test]
    fn every_kind_of_change_is_read_as_it_was_written() {
        use std::os::unix::ffi::OsStringExt;
        let odd = PathBuf::from(std::ffi::OsString::from_vec(b"/mnt/\xff \n\"x".to_vec()));
        let changes = [
            Change::Readahead {
                file: odd.clone(),
                found_kib: 8192,
                set_kib: vec![0, 128],
                of: Some("fuse nvme on /x, mount 7".to_owned()),
            },
            mount("/mnt/a b"),
            Change::Loop { backing_file: odd.clone(), attached: None },
            Change::Loop {
                backing_file: "/x".into(),
                attached: Some(Attached { name: "loop0".to_owned(), sequence: Some(9) }),
            },
            Change::Directory { path: odd, contents: false },
        ];
        let lines: Vec<Line> = (0..).zip(changes).map(|(n, one)| note(n, n, one)).collect();
        let read = Contents::parse(&text(&lines)).unwrap();
        let again: Vec<Line> = read
            .outstanding
            .into_iter()
            .map(|one| note(one.number, one.at_us, one.change))
            .collect();
        assert_eq!(again, lines);
    }

    #[test]
    fn what_is_struck_out_is_not_outstanding_and_a_later_note_replaces_the_earlier() {
        let process = Process {
            pid: 4711,
            started: Some(88_123),
            boot: Some("5d1".to_owned()),
            command: "forebay lab".to_owned(),
        };
        let whose = Line::Process { schema: SCHEMA.to_owned(), process: process.clone() };
        let lines = [
            whose,
            note(0, 10, directory("/a/.forebay-lab-x")),
            note(1, 11, mount("/b")),
            note(2, 12, mount("/c")),
            Line::Struck { number: 1 },
            note(0, 13, directory("/z/.forebay-lab-x")),
        ];
        let read = Contents::parse(&text(&lines)).unwrap();
        assert_eq!(read.process, Some(process));
        let expected =
            [outstanding(0, 10, directory("/z/.forebay-lab-x")), outstanding(2, 12, mount("/c"))];
        assert_eq!(read.outstanding, expected, "[CHG-2]");
    }

    #[test]
    fn a_torn_last_line_says_nothing_wherever_it_is_torn() {
        let kept = text(&[note(0, 10, mount("/a"))]);
        let torn = text(&[note(1, 11, mount("/b"))]);
        for length in 0..torn.len() {
            let bytes = [&kept[..], &torn[..length]].concat();
            let read = Contents::parse(&bytes).unwrap();
            assert_eq!(read.outstanding, [outstanding(0, 10, mount("/a"))], "[CHG-1]");
            assert_eq!(read.whole_bytes, kept.len(), "[CHG-1]");
        }
        assert_eq!(Contents::parse(b"").unwrap(), Contents::default());
    }

    #[test]
    fn a_whole_line_of_another_form_is_told_and_not_guessed_at() {
        let mut bytes = text(&[note(0, 10, mount("/a"))]);
        bytes.extend(
            b"{\"line\":\"note\",\"number\":1,\"at_us\":1,\"change\":{\"what\":\"swap\"}}\n",
        );
        let error = Contents::parse(&bytes).unwrap_err();
        assert_eq!(error.line, 2);
        assert!(error.why.contains("swap"), "{error}");
        let later = b"{\"line\":\"process\",\"schema\":\"forebay-ledger/2\",\"pid\":1,\"started\":1,\"boot\":null,\"command\":\"\"}\n";
        assert!(Contents::parse(later).unwrap_err().to_string().contains("forebay-ledger/2"));
    }

    #[test]
    fn the_newest_change_of_all_ledgers_is_undone_first() {
        let server = [outstanding(0, 20, mount("/emulated"))];
        let lab = [
            outstanding(0, 10, directory("/emulated")),
            outstanding(1, 30, directory("/other/.forebay-lab-y")),
            outstanding(2, 30, mount("/fs")),
            outstanding(3, 40, directory("/fs/.forebay-lab-z")),
        ];
        let (order, gone) = undoing_order(&[&server, &lab]);
        let places: Vec<(usize, u64)> = order.iter().map(|(at, one)| (*at, one.number)).collect();
        assert_eq!(places, [(1, 2), (1, 1), (0, 0), (1, 0)]);
        let places: Vec<(usize, u64)> = gone.iter().map(|(at, one)| (*at, one.number)).collect();
        assert_eq!(places, [(1, 3)], "it goes with /fs; the mount point /emulated does not");
    }
}
