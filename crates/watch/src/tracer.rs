//! The tracer: kernel events of a process tree, and the requests to all devices.
//!
//! It has two trace instances. One follows the process tree by the kernel's list of tasks, to which the kernel adds the
//! tasks that these start. A request is issued to a device by any task that happens to run, so the other instance
//! records the requests of all tasks. A task moves between processors, and each processor has its own buffer: events
//! are sorted by time, and those newer than the start of a round of reading wait for the next round.
//!
//! Concurrency: one owner.
//! Failure:     an event that this kernel does not have is left out, and the result says what is missing.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::ops::RangeInclusive;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use rustix::fs::OFlags;
use rustix::time::{ClockId, clock_gettime};

use super::event::{Call, Event, EventKind, FileKey, Transfer};
use super::ring::{self, Field, Layout};
use forebay_measure::bad_input;
use forebay_measure::tracefs::Tracefs;
use forebay_measure::undo_log::{self, Undo};

/// Buffer size of one instance for all processors, and its limits for one processor: at 50,000 requests a second, which
/// is 20 MB/s, the smallest buffer lasts for 50 ms.
const BUFFERS_KIB: usize = 256 << 10;
const BUFFER_KIB: RangeInclusive<usize> = 1024..=8192;

/// The advice of posix_fadvise that equals the system call readahead, and the argument of fadvise64 with the advice.
const WILL_NEED: u8 = 3;
const ADVICE: usize = 3;

/// The initial PID namespace, whose numbers are in events, as /proc shows it; the kernel's number for it is fixed.
const FIRST_NAMESPACE: &str = "pid:[4026531836]";

/// The flag of clone for a thread.
const NEW_THREAD: u64 = 0x10000;

/// Maximum bytes of a list of tasks per write: the kernel may accept only one page, and would split a number.
const LIST_BYTES: usize = 4000;

/// The idle task, which reads and writes nothing. Kernels before 5.16 refuse a number that no task can have.
const IDLE_TASK: u32 = 0;

/// System calls, their kinds, and which of their arguments is an offset and which a length.
const CALLS: [(&str, Call, Option<usize>, Option<usize>); 14] = [
    ("read", Call::Read, None, Some(2)),
    ("pread64", Call::Read, Some(3), Some(2)),
    ("readv", Call::Read, None, None),
    ("preadv", Call::Read, Some(3), None),
    ("preadv2", Call::Read, Some(3), None),
    ("write", Call::Write, None, Some(2)),
    ("pwrite64", Call::Write, Some(3), Some(2)),
    ("writev", Call::Write, None, None),
    ("pwritev", Call::Write, Some(3), None),
    ("pwritev2", Call::Write, Some(3), None),
    ("fsync", Call::Sync, None, None),
    ("fdatasync", Call::Sync, None, None),
    ("fadvise64", Call::Advise(0), Some(1), Some(2)),
    ("readahead", Call::Advise(WILL_NEED), Some(1), Some(2)),
];

/// System calls that close descriptors or give them other files, and which arguments are the first and last of these.
const CLOSING: [(&str, usize, usize); 4] =
    [("close", 0, 0), ("dup2", 1, 1), ("dup3", 1, 1), ("close_range", 0, 1)];

/// The argument of close_range with its flags, and the flag that delays the close until exec.
const CLOSE_FLAGS: usize = 2;
const CLOSE_LATER: u64 = 4;

/// Other events of the process tree, and what is missing without them.
const OF_TREE: [(&str, Option<&str>); 14] = [
    ("filemap/mm_filemap_get_pages", Some("reads by io_uring, and those that name no offset")),
    ("filemap/mm_filemap_add_to_page_cache", Some("what the kernel reads ahead")),
    ("filemap/mm_filemap_fault", Some("reads of mapped files")),
    ("iomap/iomap_dio_rw_begin", Some("offsets of direct reads at the file position")),
    ("sched/sched_switch", Some("waits")),
    ("block/block_bio_queue", Some("which file a request to a device is for")),
    // These show the file of a descriptor that is already closed. Without them its writes and syncs have no known file.
    ("ext4/ext4_sync_file_enter", None),
    ("ext4/ext4_write_begin", None),
    ("ext4/ext4_da_write_begin", None),
    ("xfs/xfs_file_fsync", None),
    ("xfs/xfs_file_buffered_write", None),
    ("task/task_newtask", None),
    ("sched/sched_process_exec", None),
    ("sched/sched_process_exit", None),
];

/// Conditions of events: a switch to uninterruptible sleep, in which a task waits for a device, or for a lock; and less
/// than a page, as a large write would give an event for each page, and new pages are seen anyway.
const FILTERS: [(&str, &str); 3] = [
    ("sched/sched_switch", "prev_state & 2"),
    ("ext4/ext4_write_begin", "len < 4096"),
    ("ext4/ext4_da_write_begin", "len < 4096"),
];

const OF_DEVICES: [&str; 2] = ["block/block_rq_issue", "block/block_rq_requeue"];

/// How records of one kind are decoded to an [`Event`].
#[derive(Debug, Clone, Copy)]
enum Decoder {
    Enter {
        call: Call,
        descriptor: Field,
        offset: Option<Field>,
        bytes: Option<Field>,
        advice: Option<Field>,
    },
    Exit {
        result: Field,
    },
    Closed {
        first: Field,
        last: Field,
        flags: Option<Field>,
    },
    Exec {
        before: Field,
    },
    Started {
        other: Field,
        flags: Field,
    },
    TaskExited,
    Requested {
        file: [Field; 2],
        first: Field,
        last: Field,
    },
    Added {
        file: [Field; 2],
        first: Field,
        order: Option<Field>,
    },
    Fault {
        file: [Field; 2],
        page: Field,
    },
    Named {
        file: [Field; 2],
        offset: Option<Field>,
    },
    Slept,
    Submit(Request),
    Issue(Request),
    Requeue(Request),
}

#[derive(Debug, Clone, Copy)]
struct Request {
    device: Field,
    sector: Field,
    sectors: Field,
    letters: Field,
}

impl Request {
    fn of(self, record: &[u8]) -> (u32, u64, u64, Transfer) {
        let number = |field: Field| field.of(record);
        let transfer = Transfer::parse(self.letters.bytes_of(record));
        (number(self.device) as u32, number(self.sector), number(self.sectors), transfer)
    }
}

/// A trace instance.
#[derive(Debug)]
struct Instance {
    path: PathBuf,
    undo: Undo,
}

/// Delivers events from its start until it is dropped.
#[derive(Debug)]
pub(super) struct Tracer {
    /// Of both instances. Fields are dropped in order: all pipes close before an instance is removed, as it would be
    /// busy otherwise.
    pipes: Vec<File>,
    tree: Instance,
    devices: Instance,
    /// The instances' paths may lead through it.
    _tracefs: Tracefs,
    /// Indexed by the type number at the start of a record.
    decoders: Vec<Option<Decoder>>,
    /// Bytes before the first event of a page; `page`: room for one page.
    head_bytes: usize,
    page: Vec<u8>,
    /// Events that were read, in time order.
    waiting: Vec<Event>,
    /// How many of them are ready, see [`Tracer::events`].
    ready: usize,
    /// How many times the kernel reported dropped events.
    pub(super) dropped: u64,
    /// What is missing because this kernel lacks the event for it.
    pub(super) lacking: Vec<&'static str>,
}

impl Tracer {
    /// Creates and enables the instances, for a process tree that is still empty.
    ///
    /// # Errors
    /// [`BadInput`](forebay_measure::BadInput): this user may not trace, this kernel lacks the events, or this PID namespace has
    /// other process numbers than the events.
    pub(super) fn start() -> anyhow::Result<Tracer> {
        if fs::read_link("/proc/self/ns/pid").is_ok_and(|it| it != Path::new(FIRST_NAMESPACE)) {
            bad_input!(
                "in a container, or another PID namespace, processes have other numbers than in the kernel's trace events: \
                 watch from outside of it"
            );
        }
        let tracefs = Tracefs::open()?;
        let [tree, devices] = ["tree", "devices"].map(|purpose| Instance::new(&tracefs, purpose));
        let (tree, devices) = (tree?, devices?);
        tree.set("options/event-fork", "1")?;
        // An empty list would mean all tasks.
        tree.set("set_event_pid", &IDLE_TASK.to_string())?;
        // The kernel returns it in one read.
        let mut header = vec![0; 4096];
        let count = File::open(tree.path.join("events/header_page"))?.read(&mut header)?;
        let data = Layout::parse(&String::from_utf8_lossy(&header[..count]))
            .field("data")
            .context("unknown form of trace pages")?;
        let mut pipes = tree.pipes()?;
        pipes.extend(devices.pipes()?);
        let mut tracer = Tracer {
            pipes,
            tree,
            devices,
            _tracefs: tracefs,
            decoders: Vec::new(),
            head_bytes: data.offset,
            page: vec![0; data.offset + data.bytes],
            waiting: Vec::new(),
            ready: 0,
            dropped: 0,
            lacking: Vec::new(),
        };
        tracer.enable()?;
        Ok(tracer)
    }

    fn enable(&mut self) -> anyhow::Result<()> {
        let mut calls = 0;
        for (name, call, offset, bytes) in CALLS {
            let Some(layout) = self.tree.layout(&format!("syscalls/sys_enter_{name}")) else {
                continue;
            };
            let argument = |index: Option<usize>| index.and_then(|index| layout.argument(index));
            let Some(descriptor) = layout.argument(0) else { continue };
            let (offset, bytes) = (argument(offset), argument(bytes));
            let advice = argument(Some(ADVICE)).filter(|_| call == Call::Advise(0));
            self.add(layout.id, Decoder::Enter { call, descriptor, offset, bytes, advice });
            let exit = self.tree.layout(&format!("syscalls/sys_exit_{name}"));
            let Some((exit, result)) = exit.and_then(|it| Some((it.id, it.field("ret")?))) else {
                continue;
            };
            self.add(exit, Decoder::Exit { result });
            self.tree.set(&format!("events/syscalls/sys_enter_{name}/enable"), "1")?;
            self.tree.set(&format!("events/syscalls/sys_exit_{name}/enable"), "1")?;
            calls += 1;
        }
        for (name, first, last) in CLOSING {
            let event = format!("syscalls/sys_enter_{name}");
            let Some(layout) = self.tree.layout(&event) else { continue };
            let [first, last] = [first, last].map(|index| layout.argument(index));
            let (Some(first), Some(last)) = (first, last) else { continue };
            let flags = layout.argument(CLOSE_FLAGS).filter(|_| first != last);
            self.add(layout.id, Decoder::Closed { first, last, flags });
            self.tree.set(&format!("events/{event}/enable"), "1")?;
        }
        if calls == 0 {
            self.lacking.push("waits, writes, syncs");
        }
        for (event, lacking) in OF_TREE {
            let Some(layout) = self.tree.layout(event) else {
                self.lacking.extend(lacking);
                continue;
            };
            let Some(kind) = decoder(event, &layout) else { continue };
            self.add(layout.id, kind);
            if let Some((_, filter)) = FILTERS.iter().find(|(name, _)| *name == event) {
                self.tree.set(&format!("events/{event}/filter"), filter)?;
            }
            self.tree.set(&format!("events/{event}/enable"), "1")?;
        }
        for event in OF_DEVICES {
            let layout = self.devices.layout(event);
            let Some((id, kind)) = layout.and_then(|it| Some((it.id, decoder(event, &it)?))) else {
                bad_input!(
                    "this kernel has no trace event {event}: it was built without block tracing"
                );
            };
            self.add(id, kind);
            self.devices.set(&format!("events/{event}/enable"), "1")?;
        }
        Ok(())
    }

    fn add(&mut self, id: u16, kind: Decoder) {
        let id = usize::from(id);
        self.decoders.resize(self.decoders.len().max(id + 1), None);
        self.decoders[id] = Some(kind);
    }

    /// Follows the tasks `ids`, and all tasks that these start from now on. Tasks that have exited do no harm. All are
    /// written at once, as each write to a list in use waits some 10 ms, until no processor uses the old list.
    ///
    /// # Errors
    /// A system error.
    pub(super) fn follow(&self, ids: &[u32]) -> anyhow::Result<()> {
        let path = self.tree.path.join("set_event_pid");
        let mut file = OpenOptions::new().append(true).open(path)?;
        pieces(ids)
            .iter()
            .try_for_each(|piece| file.write_all(piece.as_bytes()))
            .context("tasks cannot be followed")
    }

    /// Reads new events.
    ///
    /// # Errors
    /// A system error.
    pub(super) fn read(&mut self) -> anyhow::Result<()> {
        let horizon_ns = Tracer::now_ns();
        let Tracer { pipes, decoders, head_bytes, page, waiting, ready, dropped, .. } = self;
        waiting.drain(..*ready);
        for pipe in pipes {
            loop {
                let count = match pipe.read(page) {
                    Ok(0) => break,
                    Ok(count) => count,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                    Err(error) => return Err(error).context("trace events cannot be read"),
                };
                let mut last_ns = 0;
                let missed = ring::read(&page[..count], *head_bytes, |at_ns, record| {
                    last_ns = at_ns;
                    waiting.extend(event(decoders, at_ns, record));
                });
                *dropped += u64::from(missed);
                // On a busy machine there are always newer events.
                if last_ns > horizon_ns {
                    break;
                }
            }
        }
        // Each buffer is in time order, which makes this sort fast.
        waiting.sort_by_key(|event| event.at_ns);
        *ready = waiting.partition_point(|event| event.at_ns <= horizon_ns);
        Ok(())
    }

    /// All events that were read, in time order, and how many of them are ready: no earlier ones can follow. The next
    /// read removes the ready ones and keeps the others.
    pub(super) fn events(&self) -> (&[Event], usize) {
        (&self.waiting, self.ready)
    }

    /// The current time in ns, on the clock of the events.
    pub(super) fn now_ns() -> u64 {
        let now = clock_gettime(ClockId::Monotonic);
        now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
    }

    /// Stops tracing, and removes the instances.
    ///
    /// # Errors
    /// The instances could not be removed; the message says what to do by hand.
    pub(super) fn stop(self) -> anyhow::Result<()> {
        drop(self.pipes);
        self.tree.undo.undo()?;
        self.devices.undo.undo()
    }
}

impl Instance {
    fn new(tracefs: &Tracefs, purpose: &str) -> anyhow::Result<Instance> {
        let (undo, path) = undo_log::make_trace_instance(tracefs, purpose)?;
        let instance = Instance { path, undo };
        instance.set("trace_clock", "mono")?;
        // Each processor of the machine has a buffer, not only those that this process may run on.
        let processors = fs::read_dir(instance.path.join("per_cpu"))?.count();
        let each_kib =
            (BUFFERS_KIB / processors.max(1)).clamp(*BUFFER_KIB.start(), *BUFFER_KIB.end());
        instance.set("buffer_size_kb", &each_kib.to_string())?;
        Ok(instance)
    }

    /// The files from which the events of each processor are read.
    fn pipes(&self) -> anyhow::Result<Vec<File>> {
        let opened = fs::read_dir(self.path.join("per_cpu"))?.map(|entry| {
            let path = entry?.path().join("trace_pipe_raw");
            let flags = OFlags::NONBLOCK.bits() as i32;
            let pipe = OpenOptions::new().read(true).custom_flags(flags).open(&path);
            pipe.with_context(|| format!("cannot open {}", path.display()))
        });
        opened.collect()
    }

    fn set(&self, file: &str, value: &str) -> anyhow::Result<()> {
        let path = self.path.join(file);
        fs::write(&path, value)
            .with_context(|| format!("cannot write {value} to {}", path.display()))
    }

    /// The layout of an event, if this kernel has it.
    fn layout(&self, event: &str) -> Option<Layout> {
        let text =
            fs::read_to_string(Path::join(&self.path, format!("events/{event}/format"))).ok()?;
        Some(Layout::parse(&text))
    }
}

/// `ids` in the form that the kernel takes, in pieces of whole lines.
fn pieces(ids: &[u32]) -> Vec<String> {
    // The longest number has 10 digits, and a newline follows.
    ids.chunks(LIST_BYTES / 11)
        .map(|ids| ids.iter().map(|id| format!("{id}\n")).collect())
        .collect()
}

/// How records of this event are decoded; `None` if the kernel has other names for its fields.
fn decoder(event: &str, layout: &Layout) -> Option<Decoder> {
    let field = |name: &str| layout.field(name);
    let file = || Some([field("s_dev")?, field("i_ino")?]);
    let request = || {
        let [device, sector, sectors] = ["dev", "sector", "nr_sector"].map(field);
        Some(Request {
            device: device?,
            sector: sector?,
            sectors: sectors?,
            letters: field("rwbs")?,
        })
    };
    Some(match event {
        "filemap/mm_filemap_get_pages" => {
            Decoder::Requested { file: file()?, first: field("index")?, last: field("last_index")? }
        }
        "filemap/mm_filemap_add_to_page_cache" => {
            Decoder::Added { file: file()?, first: field("index")?, order: field("order") }
        }
        "filemap/mm_filemap_fault" => Decoder::Fault { file: file()?, page: field("index")? },
        "iomap/iomap_dio_rw_begin" => {
            Decoder::Named { file: [field("dev")?, field("ino")?], offset: Some(field("pos")?) }
        }
        name if name.starts_with("ext4/") || name.starts_with("xfs/") => {
            Decoder::Named { file: [field("dev")?, field("ino")?], offset: None }
        }
        "sched/sched_switch" => Decoder::Slept,
        "sched/sched_process_exec" => Decoder::Exec { before: field("old_pid")? },
        "task/task_newtask" => {
            Decoder::Started { other: field("pid")?, flags: field("clone_flags")? }
        }
        "sched/sched_process_exit" => Decoder::TaskExited,
        "block/block_bio_queue" => Decoder::Submit(request()?),
        "block/block_rq_issue" => Decoder::Issue(request()?),
        "block/block_rq_requeue" => Decoder::Requeue(request()?),
        _ => return None,
    })
}

/// Decodes a record.
fn event(decoders: &[Option<Decoder>], at_ns: u64, record: &[u8]) -> Option<Event> {
    const ID: Field = Field { offset: 0, bytes: 2 };
    const TASK: Field = Field { offset: 4, bytes: 4 };
    let number = |field: Field| field.of(record);
    let key = |[device, inode]: [Field; 2]| FileKey {
        device: number(device) as u32,
        inode: number(inode),
    };
    let kind = match (*decoders.get(number(ID) as usize)?)? {
        Decoder::Enter { call, descriptor, offset, bytes, advice } => EventKind::Enter {
            call: advice.map_or(call, |advice| Call::Advise(number(advice) as u8)),
            descriptor: number(descriptor) as i32,
            file: None,
            // preadv2 takes -1 for the file's current position.
            offset: offset.map(number).filter(|&offset| offset as i64 >= 0),
            bytes: bytes.map_or(0, number),
        },
        Decoder::Exit { result } => EventKind::Exit { result: number(result) as i64 },
        Decoder::Closed { flags: Some(flags), .. } if number(flags) & CLOSE_LATER != 0 => {
            return None;
        }
        Decoder::Closed { first, last, .. } => {
            // For "to the last", close_range takes a number that no descriptor has.
            let [first, last] =
                [first, last].map(|it| i32::try_from(number(it) as u32).unwrap_or(i32::MAX));
            EventKind::Closed { first, last }
        }
        Decoder::Exec { before } => EventKind::Exec { before: number(before) as u32 },
        Decoder::Started { other, flags } => EventKind::Started {
            other: number(other) as u32,
            is_thread: number(flags) & NEW_THREAD != 0,
        },
        Decoder::TaskExited => EventKind::TaskExited,
        Decoder::Requested { file, first, last } => {
            EventKind::Requested { file: key(file), first: number(first), last: number(last) }
        }
        Decoder::Added { file, first, order } => {
            let order = order.map_or(0, number).min(20);
            EventKind::Added { file: key(file), first: number(first), pages: 1 << order }
        }
        Decoder::Fault { file, page } => EventKind::Fault { file: key(file), page: number(page) },
        Decoder::Named { file, offset } => {
            EventKind::Named { file: key(file), offset: offset.map(number) }
        }
        Decoder::Slept => EventKind::Slept,
        Decoder::Submit(request) => {
            let (device, sector, sectors, transfer) = request.of(record);
            EventKind::Submit { device, sector, sectors, transfer }
        }
        Decoder::Issue(request) => {
            let (device, sector, sectors, transfer) = request.of(record);
            EventKind::Issue { device, sector, sectors, transfer }
        }
        Decoder::Requeue(request) => {
            let (device, _, sectors, transfer) = request.of(record);
            EventKind::Requeue { device, sectors, transfer }
        }
    };
    Some(Event { at_ns, task: number(TASK) as u32, kind })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_tasks_begins_with_one_that_every_kernel_takes() {
        let most = fs::read_to_string("/proc/sys/kernel/pid_max").unwrap();
        assert!(IDLE_TASK < most.trim().parse().unwrap());
    }

    #[test]
    fn many_tasks_are_followed_by_few_writes_and_no_number_is_torn() {
        for count in [0, 1, 363, 364, 5000] {
            let ids: Vec<u32> = (0..count).map(|id| u32::MAX - id).collect();
            let pieces = pieces(&ids);
            assert!(pieces.iter().all(|it| it.len() < 4096 && it.ends_with('\n')));
            assert_eq!(pieces.len(), ids.len().div_ceil(363));
            let all: Vec<u32> = pieces.concat().lines().map(|it| it.parse().unwrap()).collect();
            assert_eq!(all, ids);
        }
    }
}
