//! Elevators of the user's own: heeded where they are right, and found out where they are not.

use std::sync::mpsc;

use forebay::{CheckpointOptions, Elevator, Error, IoView, Pages, Sorted};

use super::rig::Rig;
use crate::site::{Site, on_disk};

/// By block, the last one first.
#[derive(Debug)]
struct Down(usize);

impl Elevator for Down {
    fn name(&self) -> &'static str {
        "down"
    }

    fn begin(&mut self, pages: &mut Pages<'_>) {
        pages.sort_by_place();
        self.0 = pages.len();
    }

    fn next(&mut self, _: &Pages<'_>, has_room: &dyn Fn(usize) -> bool) -> Option<usize> {
        (self.0 > 0 && has_room(0)).then(|| self.0 - 1)
    }

    fn took(&mut self, first: usize, _count: usize) {
        self.0 = first;
    }
}

/// What is wrong with an elevator.
#[derive(Debug, Clone, Copy)]
enum Fault {
    /// It names the first page over and over.
    Stuck,
    /// It names every page, and the first one once more before the last.
    Repeats,
    /// It names none.
    GivesUp,
    /// It names one that is not there.
    PastEnd,
    Panics,
}

#[derive(Debug)]
struct Wrong {
    fault: Fault,
    at: usize,
}

impl Elevator for Wrong {
    fn name(&self) -> &'static str {
        "wrong"
    }

    fn begin(&mut self, pages: &mut Pages<'_>) {
        pages.sort_by_place();
    }

    fn next(&mut self, pages: &Pages<'_>, has_room: &dyn Fn(usize) -> bool) -> Option<usize> {
        match self.fault {
            _ if !has_room(0) => None,
            Fault::Stuck => Some(0),
            Fault::Repeats if self.at + 1 == pages.len() => Some(0),
            Fault::Repeats => Some(self.at),
            Fault::GivesUp => None,
            Fault::PastEnd => Some(pages.len()),
            Fault::Panics => panic!("the elevator panics, as the test wants it"),
        }
    }

    fn took(&mut self, first: usize, count: usize) {
        self.at = first + count;
    }
}

#[test]
fn an_order_of_ones_own_is_heeded() {
    let site = Site::new();
    let rig = Rig::new(&site, 64, 40);
    rig.change_all(0, 0..30);
    let options = CheckpointOptions::now().combine(false).elevator(Down(0));
    let report = rig.pool.checkpoint(options).unwrap();
    assert_eq!((report.pages, report.elevator), (30, "down"));
    let seen = rig.disks[0].seen();
    let writes = seen.iter().filter(|it| it.op == forebay_io::Op::Write).map(|it| it.position);
    let writes: Vec<u64> = writes.collect();
    assert!(writes.len() == 30 && writes.is_sorted_by(|a, b| a > b), "{writes:?}");
}

/// Sorts by place, and asks for the tablespaces of all pages again and again while files go.
#[derive(Debug)]
struct Asking(Sorted, mpsc::Receiver<()>, mpsc::Sender<()>);

impl Elevator for Asking {
    fn name(&self) -> &'static str {
        "asking"
    }

    fn begin(&mut self, pages: &mut Pages<'_>) {
        let all = |pages: &Pages<'_>| -> Vec<usize> {
            (0..pages.len()).map(|at| pages.tablespace(at)).collect()
        };
        let before = all(pages);
        self.2.send(()).unwrap();
        self.1.recv().unwrap();
        assert_eq!(all(pages), before, "a file that has gone since is where it was");
        self.0.begin(pages);
    }

    fn next(&mut self, pages: &Pages<'_>, has_room: &dyn Fn(usize) -> bool) -> Option<usize> {
        self.0.next(pages, has_room)
    }

    fn took(&mut self, first: usize, count: usize) {
        self.0.took(first, count);
    }
}

#[test]
fn a_file_that_goes_meanwhile_stays_in_its_tablespace() {
    let site = Site::new();
    let rig = Rig::new(&site, 64, 8);
    (0..2).for_each(|file| drop(rig.change_all(file, 0..8)));
    let ((begun, wait), (go, gone)) = (mpsc::channel(), mpsc::channel());
    let options = CheckpointOptions::now().elevator(Asking(Sorted::default(), gone, begun));
    let checkpoint = rig.pool.start_checkpoint(options).unwrap();
    wait.recv().unwrap();
    rig.files[1].drop_file().unwrap();
    go.send(()).unwrap();
    let report = checkpoint.wait().unwrap();
    assert_eq!((report.pages, report.pages_gone), (8, 8));
}

#[test]
fn an_elevator_that_is_wrong_moves_no_redo_point() {
    for fault in [Fault::Stuck, Fault::Repeats, Fault::GivesUp, Fault::PastEnd, Fault::Panics] {
        let site = Site::new();
        let rig = Rig::new(&site, 64, 40);
        let lsns = rig.change_all(0, 0..30);
        let options = CheckpointOptions::now().combine(false).elevator(Wrong { fault, at: 0 });
        let error = rig.pool.checkpoint(options).map(|report| report.pages).unwrap_err();
        let typed =
            matches!(error, Error::Elevator { elevator: "wrong", .. } | Error::CheckpointPanicked);
        assert!(typed, "{fault:?}: {error}");
        assert_eq!(rig.log.redo_points(), [], "[CKP-1] {fault:?}");
        assert!(rig.pool.view().iter().all(|frame| frame.io == IoView::None), "{fault:?}");

        let report = rig.checkpoint().unwrap();
        assert_eq!(rig.log.redo_points(), [report.redo], "{fault:?}");
        let found: Vec<u64> = (0..30).map(|block| on_disk(&rig.files[0], block)).collect();
        assert_eq!(found, lsns, "{fault:?}");
    }
}
