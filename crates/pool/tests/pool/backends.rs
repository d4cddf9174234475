//! One pool over every backend, buffered and direct, with pages of every size.

use forebay::{FileOptions, Tablespace};
use forebay_io::{CacheMode, Kind, Prefer};

use crate::disk::Disk;
use crate::site::{SUMS, Site, create, number_in, set, skip};

/// Random changes to more pages than there are frames, by two threads; closed and read again.
fn works(site: &Site, name: &str, kind: Kind, cache: CacheMode, page_bytes: usize, register: bool) {
    let open = || {
        let main = Tablespace::new("main", site.path(name)).cache(cache);
        let builder = Site::chosen().frames(32).page_size(page_bytes).checksum(SUMS);
        builder.backend(Prefer::Only(kind)).register_memory(register).tablespace(main).build()
    };
    let pool = match open() {
        Ok(pool) => pool,
        Err(error) => return skip(&format!("backends: {name}"), &error.to_string()),
    };
    assert_eq!(pool.backends(), [("main".to_owned(), kind)]);
    let file = match pool.open_file("table", &create()) {
        Ok(file) => file,
        Err(error) => return skip(&format!("backends: {name}"), &error.to_string()),
    };
    file.extend(80).unwrap();
    std::thread::scope(|scope| {
        for part in 0..2 {
            let file = &file;
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(u64::from(part));
                for _ in 0..300 {
                    let block = random.u32(..40) * 2 + part;
                    let mut page = file.write(block).unwrap();
                    let number = number_in(&page);
                    set(&mut page, number + 1);
                }
            });
        }
    });
    file.flush_file().unwrap();
    let sum = |file: &forebay::PagedFile| -> u64 {
        (0..80).map(|block| number_in(&file.read(block).unwrap())).sum()
    };
    assert_eq!(sum(&file), 600, "{name}");
    drop(file);
    pool.close().unwrap();
    let pool = open().unwrap();
    assert_eq!(sum(&pool.open_file("table", &FileOptions::new()).unwrap()), 600, "{name}");
}

#[test]
fn every_backend_carries_the_pool_buffered_and_direct() {
    let site = Site::new();
    for kind in Kind::ALL {
        for cache in [CacheMode::Buffered, CacheMode::Direct] {
            if kind.serves(cache) {
                works(&site, &format!("{kind} {cache:?}"), kind, cache, 4096, false);
            }
        }
    }
}

#[test]
fn pages_of_every_size_come_back() {
    let site = Site::new();
    for page_bytes in [4 << 10, 8 << 10, 16 << 10, 64 << 10] {
        for cache in [CacheMode::Buffered, CacheMode::Direct] {
            works(
                &site,
                &format!("{page_bytes} {cache:?}"),
                Kind::Threads,
                cache,
                page_bytes,
                false,
            );
        }
    }
}

#[test]
fn registered_memory_carries_the_pool() {
    let site = Site::new();
    works(&site, "registered", Kind::Uring, CacheMode::Direct, 8192, true);
}

#[test]
fn aio_is_refused_for_buffered_files_with_the_reason() {
    let site = Site::new();
    let error = site.builder(8).backend(Prefer::Only(Kind::Aio)).build().unwrap_err();
    assert!(error.to_string().contains("aio"), "{error}");
}

#[test]
fn one_file_is_not_open_buffered_and_direct_at_once() {
    let site = Site::new();
    let buffered = site.pool(8);
    let file = buffered.open_file("table", &create()).unwrap();
    std::fs::create_dir_all(site.path("other")).unwrap();
    std::fs::hard_link(file.path(), site.path("other/table")).unwrap();
    let other = Tablespace::new("other", site.path("other")).cache(CacheMode::Direct);
    let direct = Site::bare(8).tablespace(other).build().unwrap();
    let error = direct.open_file("table", &FileOptions::new()).unwrap_err();
    match error {
        forebay::Error::Io(forebay_io::Error::MixedModes { .. }) => {}
        other => skip("backends: mixed modes", &other.to_string()),
    }
}

#[test]
fn what_the_pool_reads_by_is_never_a_surprise() {
    let site = Site::new();
    let pool = site.builder(8).register_memory(true).build().unwrap();
    let notes = pool.notes();
    let says = |what: &str| notes.iter().any(|note| note.contains(what));
    let (_, kind) = &pool.backends()[0];
    // Where the system refuses uring (step `no-uring`), the note gives the reason; elsewhere there is no note.
    let refused = *kind != Kind::Uring && cfg!(target_os = "linux") && !cfg!(forebay_portable);
    assert_eq!(says("tablespace main: I/O by"), refused, "{notes:?}");
    assert_eq!(says("io_uring_setup: "), refused, "{notes:?}");
    let registered = says("registering I/O memory");
    assert_eq!(
        says("memory should be registered"),
        *kind != Kind::Uring && !registered,
        "{notes:?}"
    );

    drop(pool);
    let (io, _) = Disk::open();
    let given = Tablespace::new("given", site.path("given")).io(io);
    let pool = Site::bare(8).register_memory(true).tablespace(given).build().unwrap();
    assert!(pool.notes().iter().any(|note| note.contains("not registered")), "{:?}", pool.notes());
}
