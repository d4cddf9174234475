//! Recovery: replays the log from the redo point on, on each page that does not have the record applied yet.
//!
//! The log is read twice. First to find the final state of files and blocks, and the images of pages. Then each record
//! is applied to those of its pages whose LSN is less than its own. A page that is cut off or dropped later in the log
//! is skipped: it may be missing, or damaged, or from a time after the cut.
//!
//! A page that fails its checksum is restored from its newest image in the log, even if the image is after the current
//! record: the LSN in the image says which records it contains, and a page may be changed between the moment it is
//! copied and the moment its image is appended. Waiting for the image and replaying the page's records only from there
//! would lose those changes; and an older image may have been copied before the redo point.
//!
//! At the end files are cut to the length in the catalog, and files that are not in the catalog are removed.
//!
//! Invariants:  recovery may be interrupted anywhere and started again

use std::collections::HashMap;
use std::fs;
use std::sync::Arc;
use std::sync::RwLock;
use std::sync::atomic::AtomicBool;

use forebay::{Block, BufferPool, FileOptions, Lsn, PageCodec, PageMut, PagedFile};

use super::disk::Disk;
use super::error::Error;
use super::log::{Log, Opened, Placed};
use super::op::{Entry, FileName, Op, PageName, Record, WORKERS};
use super::{Engine, Files, META, Open, Settings, open_file, page};

const META_BLOCKS: Block = 1 + WORKERS as Block;

/// Statistics of a recovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Recovered {
    /// There was no database.
    pub(crate) fresh: bool,
    /// Where replay began.
    pub(crate) redo: Lsn,
    pub(crate) records: usize,
    /// Pages that a record was applied to, and pages that already contained it.
    pub(crate) applied: usize,
    pub(crate) seen: usize,
    pub(crate) pages_from_images: usize,
    pub(crate) orphans: usize,
}

/// As [`Engine::open`]; also returns the statistics of the recovery.
pub(crate) fn open(settings: &Settings) -> Result<(Engine, Recovered), Error> {
    let disk = Disk::open(&settings.volume, settings.io.as_ref())?;
    let Opened { log, redo, records } = Log::open(&disk, &settings.log_directory())?;
    let log = Arc::new(log);
    let pool = settings.pool(&log)?;
    let mut done = Recovered {
        redo: redo.unwrap_or_default(),
        records: records.len(),
        ..Recovered::default()
    };
    let meta = FileOptions::new().create(redo.is_none()).tablespace(Settings::space_name(0));
    let meta = pool.open_file(META, &meta)?;
    if redo.is_none() {
        begin(&meta, &log)?;
        done.fresh = true;
    }
    let mut redone = Redo::new(settings, &pool, &meta, &records);
    for (lsn, record) in &records {
        if let Record::Entry(entry) = record {
            redone.repeat(*lsn, entry, &mut done)?;
        }
    }
    let files = catalog(&pool, &meta)?;
    done.orphans = remove_orphans(settings, &pool, &files)?;
    let engine = Engine {
        pool,
        log,
        meta,
        files: RwLock::new(files),
        stopped: AtomicBool::new(false),
        dawdle: settings.dawdle,
    };
    if settings.checkpoint_at_open {
        engine.checkpoint()?;
    }
    Ok((engine, done))
}

/// Creates an empty database: it exists once there is a redo point.
fn begin(meta: &PagedFile, log: &Log) -> Result<(), Error> {
    meta.truncate(0)?;
    meta.extend(META_BLOCKS)?;
    meta.sync()?;
    Ok(log.set_redo(Lsn::NONE)?)
}

/// A summary of the whole log, for replaying a part of it.
struct Redo<'a> {
    pool: &'a BufferPool,
    meta: &'a PagedFile,
    /// Where in the log a file is cut, and to how many blocks.
    cuts: HashMap<FileName, Vec<(Lsn, Block)>>,
    drops: HashMap<FileName, Lsn>,
    images: HashMap<PageName, &'a [u8]>,
    codec: Option<&'a dyn PageCodec>,
    open: HashMap<FileName, PagedFile>,
}

impl<'a> Redo<'a> {
    fn new(
        settings: &'a Settings,
        pool: &'a BufferPool,
        meta: &'a PagedFile,
        records: &'a [Placed],
    ) -> Redo<'a> {
        let mut cuts: HashMap<FileName, Vec<(Lsn, Block)>> = HashMap::new();
        let mut images: HashMap<PageName, &[u8]> = HashMap::new();
        let mut drops = HashMap::new();
        for (lsn, record) in records {
            let cut = match record {
                Record::Image { page, bytes } => {
                    // The newest one: an older one may have been copied before the redo point.
                    images.insert(*page, bytes);
                    continue;
                }
                Record::Entry(Entry { op: Op::Truncate { file, to }, .. }) => (file, *to),
                // The added blocks begin as zeroes, whatever they contain.
                Record::Entry(Entry { op: Op::Extend { file, from, .. }, .. }) => (file, *from),
                Record::Entry(Entry { op: Op::Drop(file), .. }) => {
                    drops.insert(*file, *lsn);
                    continue;
                }
                Record::Entry(_) => continue,
            };
            cuts.entry(*cut.0).or_default().push((*lsn, cut.1));
        }
        let codec = settings.codec.as_deref();
        Redo { pool, meta, cuts, drops, images, codec, open: HashMap::new() }
    }

    /// True if the file does not exist at the end of the log because it was dropped after `lsn`.
    fn is_dropped(&self, lsn: Lsn, file: FileName) -> bool {
        self.drops.get(&file).is_some_and(|at| *at > lsn)
    }

    /// True if the page as of `lsn` does not exist any more at the end of the log.
    fn is_cut_off(&self, lsn: Lsn, name: PageName) -> bool {
        let Some(file) = name.file else {
            return false;
        };
        let cuts = self.cuts.get(&file).map_or(&[][..], Vec::as_slice);
        self.is_dropped(lsn, file) || cuts.iter().any(|(at, to)| *at > lsn && *to <= name.block)
    }

    fn repeat(&mut self, lsn: Lsn, entry: &Entry, done: &mut Recovered) -> Result<(), Error> {
        self.repeat_deed(lsn, &entry.op)?;
        for name in entry.pages() {
            if self.is_cut_off(lsn, name) {
                continue;
            }
            let file = match name.file {
                None => self.meta.clone(),
                Some(file) => self.file(file)?,
            };
            let mut page = self.page(&file, name, done)?;
            let damaged = |damage| Error::Damaged { page: name, damage };
            page::check(&page, name).map_err(damaged)?;
            if page::lsn(&page) >= lsn {
                done.seen += 1;
                continue;
            }
            page::expects(&page, name, entry).map_err(damaged)?;
            page::apply(&mut page, name, entry, lsn);
            page.mark_dirty(lsn);
            done.applied += 1;
        }
        Ok(())
    }

    /// Applies the record to the files themselves.
    fn repeat_deed(&mut self, lsn: Lsn, op: &Op) -> Result<(), Error> {
        match op {
            Op::Extend { file: name, from, to } if !self.is_dropped(lsn, *name) => {
                let file = self.file(*name)?;
                // Zeroes, even if an earlier cut, before the redo point, was lost.
                file.truncate(*from)?;
                let blocks = file.blocks();
                let page = PageName { file: Some(*name), block: blocks };
                if blocks < *from && !self.is_cut_off(lsn, page) {
                    return Err(Error::MissingPage { page });
                }
                file.extend(to - blocks)?;
            }
            Op::Truncate { file, to } if !self.is_dropped(lsn, *file) => {
                self.file(*file)?.truncate(*to)?;
            }
            Op::Drop(name) => {
                let there = self.file(*name);
                self.open.remove(name);
                match there {
                    Ok(file) => file.drop_file()?,
                    Err(Error::MissingFile { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn file(&mut self, name: FileName) -> Result<PagedFile, Error> {
        if let Some(file) = self.open.get(&name) {
            return Ok(file.clone());
        }
        let file = existing(self.pool, name)?;
        self.open.insert(name, file.clone());
        Ok(file)
    }

    /// Returns the page to change, restored from its image if it is damaged.
    fn page<'p>(
        &self,
        file: &'p PagedFile,
        name: PageName,
        done: &mut Recovered,
    ) -> Result<PageMut<'p>, Error> {
        match file.write(name.block) {
            Err(forebay::Error::Corrupt { .. } | forebay::Error::Codec { .. }) => {}
            Err(forebay::Error::PastEnd { .. }) => return Err(Error::MissingPage { page: name }),
            page => return Ok(page?),
        }
        let image = self.images.get(&name).ok_or(Error::TornPage { page: name })?;
        let mut page = file.init(name.block)?;
        page.copy_from_slice(image);
        if let Some(codec) = self.codec {
            let file = name.file.map_or(META.to_owned(), FileName::on_disk);
            codec.decode(&file, name.block, &mut page).expect("an image is of its page");
        }
        let lsn = page::lsn(&page);
        page.mark_dirty(lsn);
        done.pages_from_images += 1;
        Ok(page)
    }
}

/// Opens a file that must exist.
fn existing(pool: &BufferPool, name: FileName) -> Result<PagedFile, Error> {
    match open_file(pool, name, false) {
        Err(Error::Pool(forebay::Error::Io(forebay_io::Error::Open { source, .. })))
            if source.raw() == 2 =>
        {
            Err(Error::MissingFile { file: name })
        }
        opened => opened,
    }
}

/// The files in the catalog, cut to the length in the catalog.
fn catalog(pool: &BufferPool, meta: &PagedFile) -> Result<Files, Error> {
    let name = PageName::CATALOG;
    let slots = {
        let page = meta.read(name.block)?;
        page::check(&page, name).map_err(|damage| Error::Damaged { page: name, damage })?;
        page::slots(&page)
    };
    let mut files = Vec::new();
    for (slot, entry) in (0..).zip(slots) {
        let Some((space, blocks)) = entry.live else {
            files.push(None);
            continue;
        };
        let name = FileName { slot, space, serial: entry.serial };
        let file = existing(pool, name)?;
        if file.blocks() < blocks {
            let page = PageName { file: Some(name), block: file.blocks() };
            return Err(Error::MissingPage { page });
        }
        file.truncate(blocks)?;
        files.push(Some(Open { name, file, blocks }));
    }
    Ok(files)
}

/// Removes files that are not in the catalog; returns their number.
fn remove_orphans(settings: &Settings, pool: &BufferPool, files: &Files) -> Result<usize, Error> {
    let mut orphans = 0;
    for space in 0..settings.spaces {
        let directory = settings.space_directory(space);
        let failed = |source: std::io::Error| {
            Error::Io(forebay_io::Error::Open {
                file: directory.as_path().into(),
                source: source.into(),
            })
        };
        for entry in fs::read_dir(&directory).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            let Some(name) = name.to_str().and_then(|name| FileName::parse(space, name)) else {
                continue;
            };
            let known = files[usize::from(name.slot)].as_ref().is_some_and(|it| it.name == name);
            if !known {
                open_file(pool, name, false)?.drop_file()?;
                orphans += 1;
            }
        }
    }
    Ok(orphans)
}
