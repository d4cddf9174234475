//! The observer: a process tree's accesses and the names of its files, from kernel events and /proc.

use super::access::Access;
use super::calls::Calls;
use super::event::{Event, EventKind, Transfer};
use super::file_table::{FileName, FileTable};
use super::names::Names;
use super::relations::Relations;
use super::tracer::Tracer;

/// Maximum number of open and mapped files examined in one search for names: it takes some 30 ms, during which no
/// events are read.
const SEARCH_MAX: usize = 1 << 13;

/// See the module's description.
#[derive(Debug)]
pub(super) struct Observer {
    pub(super) tracer: Tracer,
    pub(super) tree: Tree,
    relations: Relations,
    /// Start of the watch, on the clock of the events.
    begun_ns: u64,
}

/// The process tree, as its events describe it.
#[derive(Debug)]
pub(super) struct Tree {
    /// The thread of this process that started the command: its events are ignored.
    pub(super) starter: Option<u32>,
    pub(super) names: Names,
    calls: Calls,
}

impl Tree {
    fn new(page_bytes: u64) -> Tree {
        Tree { starter: None, names: Names::default(), calls: Calls::new(page_bytes) }
    }

    /// Processes the first `count` of `events`. The descriptors that the remaining ones close are already closed, too.
    fn take(&mut self, events: &[Event], count: usize) {
        self.names.announce(events.iter().filter(|event| self.starter != Some(event.task)));
        events[..count].iter().for_each(|event| self.event(*event));
    }

    /// Ends the tasks that have exited, but whose exit events were lost.
    fn end_exited_tasks(&mut self, at_ns: u64) {
        for task in self.names.exited() {
            self.event(Event { at_ns, task, kind: EventKind::TaskExited });
        }
    }

    fn event(&mut self, mut event: Event) {
        let Tree { starter, names, calls } = self;
        let is_of_devices =
            matches!(event.kind, EventKind::Issue { .. } | EventKind::Requeue { .. });
        if *starter == Some(event.task) && !is_of_devices {
            // After its exit, a task of the process tree may get its number.
            *starter = starter.filter(|_| event.kind != EventKind::TaskExited);
            return;
        }
        match &mut event.kind {
            EventKind::Enter { descriptor, file, .. } => {
                *file = names.file(event.task, *descriptor, event.at_ns);
            }
            EventKind::Closed { first, last } => names.closed(event.task, &(*first..=*last)),
            EventKind::Exec { before } => names.executed(event.task, *before),
            EventKind::Started { other, is_thread } => {
                names.started(event.task, *other, *is_thread);
            }
            EventKind::TaskExited => names.ended(event.task),
            EventKind::Fault { .. } => names.met(event.task),
            EventKind::Submit { device, transfer, .. } => {
                *device = names.disk(*device);
                if names.is_stacked(*device) {
                    // This device issues no requests, but submits them to the devices below.
                    *transfer = Transfer::Other;
                }
            }
            EventKind::Issue { device, .. } | EventKind::Requeue { device, .. } => {
                *device = names.disk(*device);
            }
            _ => {}
        }
        calls.event(&event);
    }
}

impl Observer {
    /// Observes from now on. `page_bytes`: page size of the page cache.
    pub(super) fn new(tracer: Tracer, relations: Relations, page_bytes: u64) -> Observer {
        let tree = Tree::new(page_bytes);
        Observer { tracer, tree, relations, begun_ns: Tracer::now_ns() }
    }

    /// Time since the start, in nanoseconds.
    pub(super) fn elapsed_ns(&self) -> u64 {
        Tracer::now_ns().saturating_sub(self.begun_ns)
    }

    /// Calls `each` with the accesses since the last call, and their times in nanoseconds since the start. `is_last`:
    /// this is the last call.
    ///
    /// # Errors
    /// A system error.
    pub(super) fn take(
        &mut self,
        is_last: bool,
        each: impl FnMut((u64, Access)),
    ) -> anyhow::Result<()> {
        let Observer { tracer, tree, begun_ns, .. } = self;
        let dropped = tracer.dropped;
        tracer.read()?;
        let lost = tracer.dropped > dropped;
        if lost {
            tree.names.forget_descriptors();
        }
        let (events, count) = tracer.events();
        tree.take(events, count);
        if lost {
            tree.end_exited_tasks(Tracer::now_ns());
        }
        let calls = &mut tree.calls;
        if is_last {
            calls.end();
        }
        let since = |at_ns: u64| at_ns.saturating_sub(*begun_ns);
        calls.done.drain(..).map(|(at_ns, access)| (since(at_ns), access)).for_each(each);
        Ok(())
    }

    /// Updates the names in `file_table`. `devices`: those to name.
    pub(super) fn fill(&mut self, file_table: &mut FileTable, devices: impl Iterator<Item = u32>) {
        let Observer { tree: Tree { names, calls, .. }, relations, .. } = self;
        names.search(calls.files().iter().copied(), SEARCH_MAX);
        for (number, &key) in (0..).zip(calls.files()) {
            // A known path does not change; a missing one may be found now.
            let before = file_table.files.get(&number);
            if before.is_some_and(|called| called.path.is_some()) {
                continue;
            }
            let path = names.path(key, calls.called(key));
            if path.is_none() && before.is_some() {
                continue;
            }
            let relation = path.as_deref().and_then(|path| relations.name(path));
            let path = path.map(|path| path.display().to_string());
            let name = relation.or_else(|| path.clone()).unwrap_or_else(|| names.nameless(key));
            let mut called = FileName::new(name, path);
            // By now, or seen from here if the process has other mounts, another file may be at this path.
            called.state = called.state.filter(|state| state.inode == key.inode);
            file_table.files.insert(number, called);
        }
        for device in devices {
            file_table.devices.entry(device).or_insert_with(|| names.disk_name(device));
        }
        file_table.processes = names.processes();
        file_table.source = "kernel trace events, in a private instance".to_owned();
        let tracer = &self.tracer;
        if !tracer.lacking.is_empty() {
            file_table.source += &format!(
                "; not available here, as the kernel is too old or was built without the events: {}",
                tracer.lacking.join("; ")
            );
        }
        file_table.remarks.clear();
        if tracer.dropped > 0 {
            file_table.remarks.push(format!(
                "the kernel dropped events in {} places, because they were not read fast enough: the counts are too low",
                tracer.dropped
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::super::calls::CLOSED;
    use super::super::event::{Call, FileKey};
    use super::*;

    const PAGE: u64 = 4096;
    /// The largest possible task number: no machine has so many tasks.
    const EXITED: u32 = (1 << 22) - 1;

    /// The accesses that result from the events, which occur at intervals of 1 us.
    fn done(tree: &mut Tree, events: &[(u32, EventKind)]) -> Vec<Access> {
        let events =
            (1..).zip(events).map(|(at, &(task, kind))| Event { at_ns: at * 1000, task, kind });
        let events: Vec<Event> = events.collect();
        tree.take(&events, events.len());
        tree.calls.done.drain(..).map(|(_, access)| access).collect()
    }

    /// A write of five bytes.
    fn write(task: u32, descriptor: i32) -> [(u32, EventKind); 2] {
        let (call, bytes) = (Call::Write, 5);
        let enter = EventKind::Enter { call, descriptor, file: None, offset: None, bytes };
        [(task, enter), (task, EventKind::Exit { result: 5 })]
    }

    fn own_task() -> u32 {
        rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs()
    }

    #[test]
    fn what_starts_a_command_is_left_out_and_a_later_task_of_its_number_is_not() {
        let file = tempfile::tempfile().unwrap();
        let (own, descriptor) = (own_task(), file.as_raw_fd());
        let mut tree = Tree { starter: Some(own), ..Tree::new(PAGE) };
        let events =
            [&write(own, descriptor)[..], &[(own, EventKind::TaskExited)], &write(own, descriptor)];
        assert_eq!(done(&mut tree, &events.concat()), [Access::Write { file: 0, bytes: 5 }]);
    }

    #[test]
    fn what_a_thread_has_done_is_counted_though_it_has_exited_by_then() {
        let (file, task, exited) = (tempfile::tempfile().unwrap(), own_task(), EXITED);
        let started = (task, EventKind::Started { other: exited, is_thread: true });
        let mut tree = Tree::new(PAGE);
        let events = [&[started], &write(exited, file.as_raw_fd())[..]].concat();
        assert_eq!(done(&mut tree, &events), [Access::Write { file: 0, bytes: 5 }]);
        assert_eq!(tree.names.processes(), 1);
        done(&mut tree, &[(exited, EventKind::TaskExited)]);
        assert_eq!(tree.names.tasks(), 1, "[NAM-1]");
    }

    #[test]
    fn where_events_are_missing_descriptors_are_looked_up_again_and_tasks_may_have_ended() {
        let [first, second] = [0, 1].map(|_| tempfile::tempfile().unwrap());
        let (task, exited) = (own_task(), EXITED);
        let mut place = rustix::io::dup(&first).unwrap();
        let mut tree = Tree::new(PAGE);
        let started = (task, EventKind::Started { other: exited, is_thread: true });
        let number = place.as_raw_fd();
        assert_eq!(done(&mut tree, &[&[started], &write(task, number)[..]].concat()).len(), 1);
        rustix::io::dup2(&second, &mut place).unwrap();
        tree.names.forget_descriptors();
        tree.end_exited_tasks(9000);
        let expected = [Access::Exited { task: exited }, Access::Write { file: 1, bytes: 5 }];
        assert_eq!(done(&mut tree, &write(task, number)), expected);
        assert_eq!(tree.names.tasks(), 1, "[NAM-1]");
    }

    #[test]
    fn what_starts_and_closes_a_file_among_the_same_events_is_one_process_or_none() {
        let (file, task, exited) = (tempfile::tempfile().unwrap(), own_task(), EXITED);
        let (first, last) = (file.as_raw_fd(), file.as_raw_fd());
        for (is_thread, writes, processes) in [(true, 0, 1), (false, 1, 2)] {
            let mut tree = Tree::new(PAGE);
            let started = (task, EventKind::Started { other: exited, is_thread });
            let closed =
                [(exited, EventKind::Closed { first, last }), (exited, EventKind::TaskExited)];
            let events = [&write(task, first)[..], &[started], &closed].concat();
            let done = done(&mut tree, &events);
            let is_write = |access: &&Access| matches!(access, Access::Write { .. });
            assert_eq!(done.iter().filter(is_write).count(), writes, "{is_thread}");
            assert_eq!((tree.names.processes(), tree.names.tasks()), (processes, 1), "{is_thread}");
        }
    }

    #[test]
    fn of_a_thread_that_runs_another_program_nothing_is_kept() {
        let (own, thread) = (std::process::id(), own_task());
        let mut tree = Tree::new(PAGE);
        let events =
            [&write(thread, -1)[..], &[(own, EventKind::Exec { before: thread })]].concat();
        let exited = [thread, own].map(|task| Access::Exited { task });
        assert_eq!(done(&mut tree, &events), exited);
        done(&mut tree, &[(own, EventKind::TaskExited)]);
        assert_eq!((tree.names.tasks(), tree.calls.tasks()), (0, 0), "[NAM-1]");
    }

    #[test]
    fn writes_and_syncs_of_a_process_that_has_ended_are_counted() {
        const PROCESS: u32 = EXITED - 1;
        let [data, log] = [1, 2].map(|inode| FileKey { device: 8 << 20, inode });
        let own = FileKey { device: 0, inode: 8 << 20 };
        let call = |call, descriptor, offset, event: Option<EventKind>, result| {
            let enter = EventKind::Enter { call, descriptor, file: None, offset, bytes: 5 };
            let within = [Some(enter), event, Some(EventKind::Exit { result })];
            within.into_iter().flatten().map(|kind| (PROCESS, kind)).collect::<Vec<_>>()
        };
        let asked = EventKind::Requested { file: data, first: 0, last: 0 };
        let added = |file| EventKind::Added { file, first: 0, pages: 1 };
        let named = |file| EventKind::Named { file, offset: None };
        let events = [
            // A database that is written before it is read, and so known by its page cache.
            call(Call::Write, 3, Some(0), None, 5),
            call(Call::Read, 3, Some(0), Some(asked), 5),
            call(Call::Write, 3, Some(0), None, 6),
            call(Call::Sync, 3, None, None, 0),
            // A new file: first its filesystem reads some metadata.
            call(Call::Write, 4, None, Some(added(own)), 7),
            call(Call::Write, 4, None, Some(added(log)), 8),
            // One that only the filesystem names.
            call(Call::Write, 5, None, None, 9),
            call(Call::Sync, 5, None, Some(named(log)), 0),
            // Writes to a file that no event names, and to what may be a pipe.
            call(Call::Write, 6, Some(0), None, 10),
            call(Call::Sync, 6, None, None, 0),
            call(Call::Write, 7, None, None, 11),
            call(Call::Write, 7, None, None, -4),
            call(Call::Sync, 7, None, None, -22),
            vec![(PROCESS, EventKind::TaskExited)],
        ];
        let mut tree = Tree::new(PAGE);
        let mut seen = done(&mut tree, &events.concat());
        tree.calls.end();
        seen.extend(tree.calls.done.drain(..).map(|(_, access)| access));
        let sums = |file: u32| {
            let written = seen.iter().filter_map(|access| match access {
                Access::Write { file: of, bytes } if *of == file => Some(*bytes),
                _ => None,
            });
            let is_sync = |it: &&Access| matches!(it, Access::Sync { file: of, .. } if *of == file);
            (written.collect::<Vec<_>>(), seen.iter().filter(is_sync).count())
        };
        assert_eq!(tree.calls.files(), [data, log, CLOSED]);
        assert_eq!([0, 1, 2].map(sums), [(vec![5, 6], 1), (vec![7, 8, 9], 1), (vec![10], 1),]);
        assert_eq!(tree.names.nameless(CLOSED), "(closed too early to be named)");
    }

    #[test]
    fn what_is_held_for_a_name_is_counted_without_one_after_a_second() {
        let at = |at_ns, (task, kind)| Event { at_ns, task, kind };
        let mut tree = Tree::new(PAGE);
        let enter = EventKind::Enter {
            call: Call::Write,
            descriptor: 3,
            file: None,
            offset: Some(0),
            bytes: 5,
        };
        let events = [at(1, (EXITED, enter)), at(2, (EXITED, EventKind::Exit { result: 5 }))];
        tree.take(&events, 2);
        assert_eq!(tree.calls.done, []);
        tree.take(&[at(1_000_000_003, (EXITED, EventKind::TaskExited))], 1);
        let seen: Vec<Access> = tree.calls.done.drain(..).map(|(_, access)| access).collect();
        assert_eq!(seen, [Access::Write { file: 0, bytes: 5 }, Access::Exited { task: EXITED }]);
    }

    #[test]
    fn writes_by_a_descriptor_that_is_closed_by_now_are_not_counted_for_its_next_file() {
        let (file, task) = (tempfile::tempfile().unwrap(), own_task());
        let descriptor = file.as_raw_fd();
        let closed = (task, EventKind::Closed { first: descriptor, last: descriptor });
        let events = [&write(task, descriptor)[..], &[closed], &write(task, descriptor)].concat();
        assert_eq!(done(&mut Tree::new(PAGE), &events), [Access::Write { file: 0, bytes: 5 }]);
        // The same if the close is only processed with the next events.
        let mut tree = Tree::new(PAGE);
        let events = [&write(task, descriptor)[..], &[closed]].concat();
        let events = (1..).zip(events).map(|(at_ns, (task, kind))| Event { at_ns, task, kind });
        tree.take(&events.collect::<Vec<_>>(), 2);
        assert_eq!(tree.calls.done, []);
        assert_eq!(done(&mut tree, &[&[closed], &write(task, descriptor)[..]].concat()).len(), 1);
    }
}
