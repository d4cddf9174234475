//! The log and the control file, torn and damaged at every byte.

use std::fs;
use std::path::Path;

use forebay::{Lsn, Wal};
use forebay_io::Volume;
use tempfile::TempDir;

use crate::engine::control::Control;
use crate::engine::disk::Disk;
use crate::engine::error::Error;
use crate::engine::log::{Log, Opened, read};
use crate::engine::op::{Change, Entry, FileName, Op, PageName, Record};

fn file() -> FileName {
    FileName { slot: 3, space: 1, serial: 77 }
}

/// A record of every kind.
fn records() -> Vec<Record> {
    let change = |block| Change { file: file(), block, counter: 7, delta: -5 - i64::from(block) };
    let ops = [
        Op::Create(file()),
        Op::Extend { file: file(), from: 0, to: 9 },
        Op::Transfer((0..4).map(change).collect()),
        Op::Truncate { file: file(), to: 2 },
        Op::Transfer(Vec::new()),
        Op::Drop(file()),
    ];
    let entries = (1..).zip(ops).map(|(serial, op)| Entry { worker: 5, serial, op });
    let mut records: Vec<Record> = entries.map(Record::Entry).collect();
    let page = PageName { file: Some(file()), block: 8 };
    records.push(Record::Image { page, bytes: vec![9; 100] });
    records.push(Record::Image { page: PageName::ledger(2), bytes: vec![1] });
    records
}

fn disk() -> Disk {
    Disk::open(&Volume::system(), None).unwrap()
}

/// A log with a redo point at its start.
fn begun(directory: &Path) -> Log {
    let log = Log::open(&disk(), directory).unwrap().log;
    log.set_redo(Lsn::NONE).unwrap();
    log
}

fn reopened(directory: &Path) -> Opened {
    Log::open(&disk(), directory).unwrap()
}

fn said(opened: &Opened) -> Vec<Record> {
    opened.records.iter().map(|(_, record)| record.clone()).collect()
}

/// A directory with a log of [`records`], and where each of them ends.
fn written() -> (TempDir, Vec<Lsn>) {
    let directory = tempfile::tempdir().unwrap();
    let log = begun(directory.path());
    let ends: Vec<Lsn> = records().iter().map(|record| log.append(record)).collect();
    log.flush_to(log.end()).unwrap();
    (directory, ends)
}

#[test]
fn a_record_decodes_to_itself_and_its_beginnings_to_nothing() {
    for record in records() {
        let bytes = record.encode();
        assert_eq!(Record::decode(&bytes).as_ref(), Some(&record));
        for len in 0..bytes.len() {
            assert_eq!(Record::decode(&bytes[..len]), None, "{record:?} to {len}");
        }
    }
}

#[test]
fn what_was_flushed_is_read_and_what_was_not_is_not() {
    let (directory, ends) = written();
    let opened = reopened(directory.path());
    assert_eq!(said(&opened), records());
    let lsns: Vec<Lsn> = opened.records.iter().map(|(lsn, _)| *lsn).collect();
    assert_eq!(lsns, ends);
    opened.log.append(&records()[0]);
    drop(opened);
    assert_eq!(said(&reopened(directory.path())), records());
}

#[test]
fn an_empty_log_has_no_records() {
    let directory = tempfile::tempdir().unwrap();
    let opened = reopened(directory.path());
    assert_eq!((opened.redo, opened.records.len(), opened.log.end()), (None, 0, Lsn::NONE));
    drop(begun(directory.path()));
    let opened = reopened(directory.path());
    assert_eq!((opened.redo, opened.records.len()), (Some(Lsn::NONE), 0));
}

#[test]
fn a_log_torn_at_any_byte_ends_at_the_record_before() {
    let (directory, ends) = written();
    let bytes = fs::read(directory.path().join("log")).unwrap();
    for len in 0..bytes.len() {
        let whole = ends.iter().filter(|end| end.0 <= len as u64).count();
        let short = read(&bytes[..len], 0);
        assert_eq!(short.len(), whole, "cut at {len}");
        let mut zeroed = bytes.clone();
        zeroed[len..].fill(0);
        // Bytes that were zero anyway are not damaged.
        assert!(read(&zeroed, 0).len() >= whole, "zeroes from {len}");
        let read: Vec<Record> = read(&zeroed, 0).into_iter().map(|(_, record)| record).collect();
        assert_eq!(read, records()[..read.len()], "zeroes from {len}");
    }
}

#[test]
fn a_spoilt_byte_ends_the_log_at_its_record() {
    let (directory, ends) = written();
    let bytes = fs::read(directory.path().join("log")).unwrap();
    for at in 0..bytes.len() {
        let mut spoilt = bytes.clone();
        spoilt[at] ^= 0x10;
        let before = ends.iter().filter(|end| end.0 <= at as u64).count();
        assert_eq!(read(&spoilt, 0).len(), before, "byte {at}");
    }
}

#[test]
fn a_record_counts_only_at_its_own_place() {
    let (directory, ends) = written();
    let bytes = fs::read(directory.path().join("log")).unwrap();
    let second = &bytes[ends[0].0 as usize..];
    assert_eq!(read(second, ends[0].0).len(), records().len() - 1);
    assert_eq!(read(second, 0).len(), 0);
}

#[test]
fn what_stood_behind_a_torn_record_never_comes_back() {
    let (directory, ends) = written();
    let path = directory.path().join("log");
    let mut bytes = fs::read(&path).unwrap();
    // The second record is damaged, those after it are not.
    bytes[ends[0].0 as usize + 9] ^= 1;
    fs::write(&path, bytes).unwrap();
    let opened = reopened(directory.path());
    assert_eq!(said(&opened), records()[..1]);
    // The same record again: everything after it would be valid again.
    opened.log.append(&records()[1]);
    opened.log.flush_to(opened.log.end()).unwrap();
    drop(opened);
    assert_eq!(said(&reopened(directory.path())), records()[..2]);
}

#[test]
fn reading_begins_at_the_redo_point() {
    let (directory, ends) = written();
    reopened(directory.path()).log.set_redo(ends[3]).unwrap();
    let opened = reopened(directory.path());
    assert_eq!((opened.redo, said(&opened)), (Some(ends[3]), records()[4..].to_vec()));
    assert_eq!(opened.log.end(), *ends.last().unwrap());
}

#[test]
fn a_log_that_ends_before_the_redo_point_is_an_error() {
    let (directory, ends) = written();
    reopened(directory.path()).log.set_redo(ends[3]).unwrap();
    let path = directory.path().join("log");
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..ends[2].0 as usize]).unwrap();
    let error = Log::open(&disk(), directory.path()).unwrap_err();
    assert!(matches!(error, Error::LogLost { redo, .. } if redo == ends[3]), "{error}");
}

#[test]
fn a_torn_redo_point_leaves_the_one_before() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("control");
    let mut control = Control::open(&disk(), &path).unwrap();
    assert_eq!(control.redo(), None);
    for redo in 1..6 {
        control.set(Lsn(redo)).unwrap();
        let after = fs::read(&path).unwrap();
        assert_eq!(Control::open(&disk(), &path).unwrap().redo(), Some(Lsn(redo)));
        let place = redo as usize % 2 * 4096;
        for at in place..place + 28 {
            let mut torn = after.clone();
            torn[at] = !torn[at];
            fs::write(&path, &torn).unwrap();
            let found = Control::open(&disk(), &path).unwrap().redo();
            assert_eq!(found, (redo > 1).then(|| Lsn(redo - 1)), "byte {at}");
        }
        fs::write(&path, &after).unwrap();
    }
}
