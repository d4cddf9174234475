//! The plan: the part of a record that is repeated.
//!
//! Of a long record, this is the part in which reads waited longest. Each task is repeated separately: its reads in
//! order, with the recorded time between the end of one and the start of the next. Worked example: a task that read for
//! 90 us and started its next read 10 us later does so again, however long the first read takes this time.
//!
//! A page that a read found in memory, although nothing in the plan had brought it there, was in memory before: it is
//! there again when the plan is replayed. Idle time before the first step and after the last is left out.
//!
//! Invariants:  [PLA-1] the length, the steps, the tasks and the open files of a plan are bounded
//! Failure:     what cannot be repeated (reads past the page cache or of mapped files, deleted or replaced files) is
//!              left out, and a remark says so.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use forebay_lookahead::{Block, Run};
use rangemap::RangeSet;

use crate::access::{Access, Read, ReadMode};
use crate::file_table::{FileName, State};
use crate::pattern::PatternDetector;
use crate::record::Record;
use forebay_measure::bad_input;
use forebay_measure::report::numbers;

/// Files below these are generated when they are read, and may never end.
const OF_THE_KERNEL: [&str; 3] = ["/proc", "/sys", "/dev"];

/// Maximum number of steps of a plan: some 200 MB of memory.
const STEPS_MAX: usize = 4 << 20;

/// Maximum number of tasks that read at once.
const TASKS_MAX: usize = 128;

/// The search for the part with the longest waits advances by the length of the part divided by this.
const LOOKS: u64 = 8;

/// One action of a task.
#[derive(Debug, Clone, Copy)]
pub(super) struct Step {
    /// Since the end of the previous step, or since the start of the plan.
    pub(super) after_ns: u64,
    /// Index into the plan's files.
    pub(super) file: usize,
    pub(super) offset: u64,
    pub(super) bytes: u64,
    pub(super) what: StepKind,
}

/// Kind of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StepKind {
    /// A read. `is_known`: it could have been known earlier.
    Read { is_known: bool },
    /// Advice, as posix_fadvise numbers it.
    Advise(u8),
}

#[derive(Debug, Clone, Default)]
pub(super) struct PlanFile {
    pub(super) path: PathBuf,
    pub(super) file_bytes: u64,
    /// Pages that are in memory when the plan starts.
    pub(super) resident: RangeSet<u64>,
    /// The most frequent size of its reads, in bytes: a power of two.
    pub(super) block_bytes: u64,
    /// Its first block in a numbering of the blocks of all files, which has gaps so that two files form no sequence.
    pub(super) first_block: u64,
}

/// See the module's description.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) page_bytes: u64,
    pub(super) files: Vec<PlanFile>,
    pub(super) tasks: Vec<Vec<Step>>,
    /// Since the start of the record, in nanoseconds.
    pub(super) from_ns: u64,
    pub(super) until_ns: u64,
    /// How long its reads waited when they were recorded, in nanoseconds.
    pub(super) waited_ns: u64,
    /// The same for the whole record.
    pub(super) waited_in_all_ns: u64,
    pub(super) remarks: Vec<String>,
}

/// A task of a plan under construction.
#[derive(Default)]
struct TaskSteps {
    steps: Vec<Step>,
    /// End of the last step.
    ended_ns: u64,
    waited_ns: u64,
}

impl TaskSteps {
    /// How many files it reads, or advises the kernel about.
    fn files(&self) -> usize {
        self.steps.iter().map(|step| step.file).collect::<HashSet<usize>>().len()
    }
}

/// A plan under construction.
#[derive(Default)]
struct PlanBuilder {
    tasks: BTreeMap<u32, TaskSteps>,
    /// Indexes into `files` by file number of the record; `None` for files that are left out.
    places: HashMap<u32, Option<usize>>,
    files: Vec<PlanFile>,
    sizes: Vec<[u32; 5]>,
    /// Pages of each file that something in the plan has brought into memory.
    brought: Vec<RangeSet<u64>>,
    patterns: PatternDetector,
    left_out: HashSet<&'static str>,
    written_since: usize,
    steps: usize,
    is_full: bool,
}

impl Plan {
    /// Makes a plan of at most `length` from `record`. `open_max`: maximum number of files that may be open; each task
    /// opens all that it reads.
    ///
    /// # Errors
    /// [`BadInput`](forebay_measure::BadInput): nothing in the record can be repeated.
    pub(super) fn new(
        record: &mut Record,
        length: Duration,
        open_max: usize,
    ) -> anyhow::Result<Plan> {
        let length_ns = (length.as_nanos() as u64).max(LOOKS);
        let (from_ns, waited_in_all_ns) = longest_waits(record, length_ns)?;
        let mut until_ns = record.until_ns.min(from_ns.saturating_add(length_ns));
        let mut builder = PlanBuilder::default();
        record.rewind()?;
        'all: while let Some(piece) = record.next()? {
            for (at_ns, access) in piece.accesses() {
                if at_ns > until_ns {
                    break 'all;
                }
                let begun_ns = at_ns.saturating_sub(took_ns(&access));
                if begun_ns >= from_ns {
                    builder.access(record, begun_ns - from_ns, at_ns - from_ns, &access);
                } else if let Access::Read(read) = access {
                    // A read of the plan that continues this one could have been known.
                    builder.patterns.read(read.task, read.file, read.pages());
                }
                if builder.steps == STEPS_MAX {
                    (until_ns, builder.is_full) = (at_ns, true); // [PLA-1]
                    break 'all;
                }
            }
        }
        record.rewind()?;
        builder.plan(record, from_ns, until_ns, waited_in_all_ns, open_max)
    }

    /// Whether the program has advised the kernel.
    pub(super) fn advises(&self) -> bool {
        self.tasks.iter().flatten().any(|step| matches!(step.what, StepKind::Advise(_)))
    }

    /// Number of steps of all tasks.
    pub(super) fn steps(&self) -> usize {
        self.tasks.iter().map(Vec::len).sum()
    }

    /// The blocks of a step, in the numbering of all files; empty beyond the end of the numbering.
    pub(super) fn blocks(&self, step: &Step) -> Range<Block> {
        let PlanFile { block_bytes, first_block, .. } = self.files[step.file];
        let of =
            |block: u64| Block::try_from(first_block.saturating_add(block)).unwrap_or(Block::MAX);
        let end = step.offset.saturating_add(step.bytes.max(1)).div_ceil(block_bytes);
        of(step.offset / block_bytes)..of(end)
    }

    /// The file of a run of such blocks, by its index, and its bytes.
    pub(super) fn bytes(&self, run: Run) -> (usize, Range<u64>) {
        let first = u64::from(run.first);
        let file = self.files.partition_point(|it| it.first_block <= first).saturating_sub(1);
        let PlanFile { block_bytes, first_block, .. } = self.files[file];
        let start = first - first_block;
        (file, start * block_bytes..(start + u64::from(run.blocks)) * block_bytes)
    }
}

/// The end of advice for `bytes` from `offset` on; 0 bytes mean to the end of the file.
pub(super) fn advised_end(offset: u64, bytes: u64) -> u64 {
    if bytes == 0 { u64::MAX } else { offset.saturating_add(bytes) }
}

fn took_ns(access: &Access) -> u64 {
    match access {
        Access::Read(Read { took_ns, .. }) | Access::Advise { took_ns, .. } => *took_ns,
        _ => 0,
    }
}

/// The start of the part of `length_ns` in which reads waited longest, and the waiting in the whole record, both in ns.
fn longest_waits(record: &mut Record, length_ns: u64) -> anyhow::Result<(u64, u64)> {
    let look_ns = length_ns / LOOKS;
    let mut waits: BTreeMap<u64, u64> = BTreeMap::new();
    record.rewind()?;
    while let Some(piece) = record.next()? {
        for (at_ns, access) in piece.accesses() {
            if let Access::Read(Read {
                waited_ns: Some(waited_ns), mode: ReadMode::Cached, ..
            }) = access
            {
                let sum = waits.entry(at_ns / look_ns).or_default();
                *sum = sum.saturating_add(waited_ns);
            }
        }
    }
    let all = waits.values().fold(0, |sum: u64, waited| sum.saturating_add(*waited));
    if record.until_ns <= length_ns {
        return Ok((0, all));
    }
    let of = |first: u64| {
        let within = waits.range(first..first + LOOKS).map(|(_, waited)| *waited);
        within.fold(0, u64::saturating_add)
    };
    let best = waits.keys().copied().max_by_key(|&first| (of(first), std::cmp::Reverse(first)));
    let last = record.until_ns - length_ns;
    Ok(((best.unwrap_or(0) * look_ns).min(last), all))
}

/// The path of `called`, and its state in the record and now; `None` if it cannot be read.
fn to_read_again(called: &FileName) -> Option<(PathBuf, State, State)> {
    let path = Path::new(called.path.as_deref()?);
    // A link may lead to one of the kernel's files.
    let path = path.canonicalize().ok().filter(|_| path.is_absolute())?;
    let of_the_kernel = OF_THE_KERNEL.iter().any(|root| path.starts_with(root));
    // Checked before opening: opening a device may start something, and opening a pipe waits for a writer.
    let now = State::of(&path).filter(|_| !of_the_kernel)?;
    File::open(&path).ok()?;
    Some((path, called.state?, now))
}

impl PlanBuilder {
    /// Adds an access from `begun_ns` to `at_ns` of the plan.
    fn access(&mut self, record: &Record, begun_ns: u64, at_ns: u64, access: &Access) {
        let page_bytes = record.page_bytes;
        match *access {
            Access::Read(read) => {
                let is_known = self.patterns.read(read.task, read.file, read.pages()).is_some();
                let pages = read.first..read.first + read.more + 1;
                self.left_out.extend(match read.mode {
                    ReadMode::Direct => Some("reads past the page cache"),
                    ReadMode::Unseen => Some("reads of mapped files and by io_uring"),
                    ReadMode::Cached => None,
                });
                let Some(index) = self.index(record, read.file) else { return };
                if read.mode == ReadMode::Direct {
                    return;
                }
                let (brought, file) = (&mut self.brought[index], &mut self.files[index]);
                if !read.missed && read.waited_ns.is_none() {
                    file.resident.extend(brought.gaps(&pages));
                }
                brought.insert(pages);
                if read.mode == ReadMode::Cached {
                    let bits = (read.bytes.max(page_bytes).ilog2().saturating_sub(12)).min(4);
                    self.sizes[index][bits as usize] += 1;
                    // A watch records reads beyond the end of the file only if it was truncated later.
                    let offset = read.first.saturating_mul(page_bytes);
                    if offset >= self.files[index].file_bytes {
                        return;
                    }
                    let (bytes, what) = (read.bytes, StepKind::Read { is_known });
                    let step = Step { after_ns: 0, file: index, offset, bytes, what };
                    self.step(read.task, begun_ns, at_ns, step);
                    let waited_ns = &mut self.tasks.entry(read.task).or_default().waited_ns;
                    *waited_ns = waited_ns.saturating_add(read.waited_ns.unwrap_or(0));
                }
            }
            Access::Ahead { file, first, pages } => {
                if let Some(index) = self.index(record, file) {
                    self.brought[index].insert(first..first + pages);
                }
            }
            Access::Advise { task, file, offset, bytes, advice, pages, .. } => {
                let Some(index) = self.index(record, file) else { return };
                if pages > 0 {
                    let (first, end) =
                        (offset / page_bytes, advised_end(offset, bytes).div_ceil(page_bytes));
                    if first < end {
                        self.brought[index].insert(first..end);
                    }
                }
                let what = StepKind::Advise(advice);
                let step = Step { after_ns: 0, file: index, offset, bytes, what };
                self.step(task, begun_ns, at_ns, step);
            }
            Access::Exited { task } => self.patterns.forget(task),
            _ => {}
        }
    }

    /// Appends `step` to those of the task.
    fn step(&mut self, task: u32, begun_ns: u64, at_ns: u64, step: Step) {
        let made = self.tasks.entry(task).or_default();
        made.steps.push(Step { after_ns: begun_ns.saturating_sub(made.ended_ns), ..step });
        made.ended_ns = at_ns;
        self.steps += 1;
    }

    /// The index of the file in the plan, to which it is added if it is new; `None` if it cannot be read.
    fn index(&mut self, record: &Record, number: u32) -> Option<usize> {
        if let Some(index) = self.places.get(&number) {
            return *index;
        }
        let index = match record.file_table.files.get(&number).and_then(to_read_again) {
            None => {
                self.left_out.insert("files that were deleted or cannot be opened");
                None
            }
            Some((_, then, now)) if now.is_another(then) => {
                self.left_out.insert("files that were replaced or cut off since");
                None
            }
            Some((path, then, now)) => {
                self.written_since += usize::from(now != then);
                self.files.push(PlanFile { path, file_bytes: now.bytes, ..PlanFile::default() });
                self.sizes.push([0; 5]);
                self.brought.push(RangeSet::new());
                Some(self.files.len() - 1)
            }
        };
        self.places.insert(number, index);
        index
    }

    fn plan(
        mut self,
        record: &Record,
        from_ns: u64,
        until_ns: u64,
        waited_in_all_ns: u64,
        open_max: usize,
    ) -> anyhow::Result<Plan> {
        let mut blocks = 0;
        for (file, sizes) in self.files.iter_mut().zip(&self.sizes) {
            let most = (0..sizes.len()).rev().max_by_key(|&bits| sizes[bits]).unwrap_or(0);
            file.block_bytes = record.page_bytes.max(4096 << most);
            file.first_block = blocks;
            blocks += file.file_bytes.div_ceil(file.block_bytes) + 2;
        }
        let mut remarks = Vec::new();
        if !self.left_out.is_empty() {
            let mut left_out: Vec<&str> = self.left_out.into_iter().collect();
            left_out.sort_unstable();
            remarks.push(format!("left out: {}", left_out.join("; ")));
        }
        if self.written_since > 0 {
            remarks.push(format!(
                "{} of {} files were written since: their new blocks may lie elsewhere on the disk",
                self.written_since,
                self.files.len()
            ));
        }
        if self.is_full {
            let seconds = numbers::seconds((until_ns - from_ns) as f64 / 1e9);
            remarks
                .push(format!("there are too many reads: only the first {seconds} are repeated"));
        }
        let is_read = |step: &Step| matches!(step.what, StepKind::Read { .. });
        let mut made: Vec<TaskSteps> = self.tasks.into_values().collect();
        made.retain(|task| task.steps.iter().any(is_read));
        if made.len() > TASKS_MAX || made.iter().map(TaskSteps::files).sum::<usize>() > open_max {
            // [PLA-1]
            made.sort_by_key(|task| std::cmp::Reverse(task.steps.len()));
            let mut open = 0;
            let fits = made.iter().take(TASKS_MAX).take_while(|task| {
                open += task.files();
                open <= open_max
            });
            let (all, fitting) = (made.len(), fits.count());
            made.truncate(fitting);
            let why = if open > open_max {
                ", as no more files may be open: `ulimit -Hn` says how many"
            } else {
                ""
            };
            remarks.push(format!(
                "of {all} tasks only the {fitting} that read most are repeated{why}"
            ));
        }
        let until_ns = from_ns + made.iter().map(|task| task.ended_ns).max().unwrap_or(0);
        let waited_ns = made.iter().fold(0_u64, |sum, task| sum.saturating_add(task.waited_ns));
        let mut tasks: Vec<Vec<Step>> = made.into_iter().map(|task| task.steps).collect();
        let idle_ns = tasks.iter().map(|steps| steps[0].after_ns).min().unwrap_or(0);
        tasks.iter_mut().for_each(|steps| steps[0].after_ns -= idle_ns);
        if tasks.is_empty() {
            let why = remarks.last().map_or(String::new(), |remark| format!(" ({remark})"));
            bad_input!("nothing in the record can be read again{why}");
        }
        Ok(Plan {
            page_bytes: record.page_bytes,
            files: self.files,
            tasks,
            from_ns: from_ns + idle_ns,
            until_ns,
            waited_ns,
            waited_in_all_ns,
            remarks,
        })
    }
}
