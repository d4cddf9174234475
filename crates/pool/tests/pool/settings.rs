//! Settings: invalid ones are refused with a reason, before anything is created.

use std::time::Duration;

use forebay::{
    BufferPool, Checksum, Error, FileOptions, PoolBuilder, Tablespace, TornPages, ZeroPages,
};
use forebay_io::Prefer;

use crate::site::{PAGE, Site, create, numbered, read, wait_until};

/// The setting for which `builder` is refused, and the whole message.
#[track_caller]
fn refused(builder: PoolBuilder) -> (&'static str, String) {
    match builder.build().unwrap_err() {
        error @ Error::Setting { setting, .. } => (setting, error.to_string()),
        other => panic!("{other}"),
    }
}

#[test]
fn a_pool_is_not_built_without_a_choice_of_checksums_and_of_protection() {
    let site = Site::new();
    let here = || BufferPool::builder().directory(site.path("main"));
    for (builder, missing) in [
        (here(), (true, true)),
        (here().checksum(Checksum::Off), (false, true)),
        (here().torn_pages(TornPages::Unprotected), (true, false)),
    ] {
        let error = builder.build().unwrap_err();
        let Error::Unchosen { checksum, torn_pages } = error else { panic!("{error}") };
        assert_eq!((checksum, torn_pages), missing);
        for choice in ["Checksum::Crc32c", "Checksum::Off"] {
            assert_eq!(error.to_string().contains(choice), checksum, "{error}");
        }
        for choice in ["DoubleWrite", "Images", "Atomic", "Unprotected"] {
            let choice = format!("TornPages::{choice}");
            assert_eq!(error.to_string().contains(&choice), torn_pages, "{error}");
        }
        assert!(!site.path("main").exists(), "nothing is made before all is chosen");
    }
    std::fs::write(site.path("profile"), "torn_pages = \"unprotected\"\n").unwrap();
    here().checksum(Checksum::Off).profile(site.path("profile")).build().unwrap();
}

#[test]
fn a_pool_that_makes_no_sense_is_refused_with_the_reason() {
    let site = Site::new();
    let here = || Site::chosen().directory(site.path("main"));
    let refusals: Vec<(&str, String)> = [
        here().page_size("3 KiB"),
        here().page_size("2 KiB"),
        here().page_size("128 KiB"),
        here().page_size(0),
        here().page_size("a lot"),
        here().page_size(-8192),
        here().frames(7),
        here().frames(u64::MAX),
        here().memory("32 KiB"),
        here().memory("never"),
        here().memory("1 GiB").frames(10),
        here().directory(site.path("other")),
        Site::chosen(),
        here().torn_pages(TornPages::DoubleWrite),
        here().torn_pages(TornPages::Images),
    ]
    .map(refused)
    .into();
    let settings: Vec<&str> = refusals.iter().map(|(setting, _)| *setting).collect();
    let (page, frames, memory) = ("page size", "the number of frames", "memory");
    let expected = [
        page,
        page,
        page,
        page,
        page,
        page,
        frames,
        frames,
        memory,
        memory,
        memory,
        "the name of a tablespace",
        "the number of tablespaces",
        "the checksum",
        "the checksum",
    ];
    assert_eq!(settings, expected);
    assert!(
        refusals.iter().all(|(_, text)| text.contains("should")
            || text.contains("give")
            || text.contains("choose")
            || text.contains("write")
            || text.contains("needs")
            || text.contains("name")),
        "{refusals:#?}"
    );
    assert!(!site.path("main").exists(), "nothing is made before all is checked");
    let error = here().queue_depth(0).build().unwrap_err();
    assert!(error.to_string().contains("queue depth"), "{error}");
}

#[test]
fn one_directory_is_for_one_pool_at_a_time() {
    let site = Site::new();
    let pool = site.pool(8);
    let error = site.builder(8).build().unwrap_err();
    let Error::InUse { directory, holder } = &error else {
        panic!("{error}");
    };
    assert_eq!(&**directory, site.path("main"));
    assert!(holder.contains(&std::process::id().to_string()), "{holder}");
    // A file keeps its pool alive, and the pool keeps its directory locked.
    let file = numbered(&pool, "table", 1, 3);
    drop(pool);
    assert!(matches!(site.builder(8).build(), Err(Error::InUse { .. })));
    assert_eq!(read(&file, 0), 3);
    drop(file);
    // A caller that closes a pool need not track the remaining handles.
    let pool = site.pool(8);
    let file = pool.open_file("table", &FileOptions::new()).unwrap();
    pool.close().unwrap();
    site.pool(8);
    assert!(matches!(file.read(0), Err(Error::Invalidated { .. })));
    assert!(matches!(pool.open_file("table", &create()), Err(Error::Closed)));
    // Nor can two tablespaces of one pool share a directory.
    std::os::unix::fs::symlink(site.path("main"), site.path("link")).unwrap();
    for again in ["main", "main/../main", "link"] {
        let (setting, complaint) =
            refused(site.builder(8).tablespace(Tablespace::new("again", site.path(again))));
        assert_eq!(setting, "the directory of a tablespace");
        assert!(complaint.contains("given to `main` and `again`"), "{complaint}");
    }
    site.pool(8);
}

#[test]
fn a_directory_that_cannot_be_made_is_named() {
    let site = Site::new();
    std::fs::write(site.path("plain"), "a file").unwrap();
    let error = Site::bare(8).directory(site.path("plain/main")).build().unwrap_err();
    assert!(matches!(error, Error::Io(forebay_io::Error::Name { .. })), "{error}");
    assert!(error.to_string().contains("plain/main"), "{error}");
    for space in [Tablespace::new("main", "a\0b"), Tablespace::new("main", "a\0b").must_exist(true)]
    {
        let error = Site::bare(8).tablespace(space).build().unwrap_err();
        assert!(error.to_string().contains("zero byte"), "{error}");
    }
    // All directories of a path are created.
    Site::bare(8).directory(site.path("a/b/c")).build().unwrap();
    assert!(site.path("a/b/c").is_dir());
}

#[test]
fn a_profile_sets_what_the_code_does_not() {
    let site = Site::new();
    let profile = site.path("forebay.toml");
    let text = format!(
        "memory = \"256 KiB\"\npage_size = \"16k\"\nbackend = \"threads\"\nframe_wait_ms = 10\n\
         [tablespace.main]\ndirectory = {:?}\n",
        site.path("main")
    );
    std::fs::write(&profile, text).unwrap();
    let pool = Site::chosen().profile(&profile).build().unwrap();
    assert_eq!((pool.page_bytes(), pool.frames()), (16 << 10, 16));
    assert_eq!(pool.backends(), [("main".to_owned(), forebay_io::Kind::Threads)]);
    let file = pool.open_file("table", &create()).unwrap();
    file.extend(20).unwrap();
    let pins: Vec<_> = (0..16).map(|block| file.pin(block).unwrap()).collect();
    // A busy machine may take longer now and then, but the wait is not the default of a second.
    wait_until("a wait as the profile has it", || {
        let error = file.pin(17).unwrap_err();
        matches!(error, Error::NoFreeFrame { waited, .. } if waited < Duration::from_millis(900))
    });
    drop(pins);
    drop((file, pool));

    // Settings in code override the profile.
    let code = Site::chosen().profile(&profile).frames(9).page_size("8k");
    let pool = code.tablespace(Tablespace::new("main", site.path("elsewhere"))).build().unwrap();
    assert_eq!((pool.page_bytes(), pool.frames()), (8 << 10, 9));
    assert!(site.path("elsewhere").exists());
    assert_eq!(pool.backends().len(), 1);
}

#[test]
fn a_profile_that_is_not_understood_is_refused_with_its_line() {
    let site = Site::new();
    let profile = site.path("forebay.toml");
    for (text, complaint) in [
        ("memory = \"1 GiB\"\nmemmory = 3\n", "line 2"),
        ("page_size = true\n", "line 1"),
        ("backend = \"fast\"\n", "line 1"),
        ("[tablespace.main]\ncache = \"warm\"\n", "line 2"),
    ] {
        std::fs::write(&profile, text).unwrap();
        let error = Site::chosen().profile(&profile).build().unwrap_err();
        assert!(matches!(&error, Error::Profile { why, .. } if why.contains(complaint)), "{error}");
    }
    let error = Site::chosen().profile(site.path("none")).build().unwrap_err();
    assert!(matches!(error, Error::Profile { .. }), "{error}");
    std::fs::write(&profile, "[tablespace.main]\ncache = \"buffered\"\n").unwrap();
    let (setting, _) = refused(Site::chosen().profile(&profile));
    assert_eq!(setting, "the directory of a tablespace");
}

#[test]
fn a_file_that_is_open_is_opened_again_in_the_same_way_or_not_at_all() {
    let site = Site::new();
    let pool = site.pool(8);
    let file = numbered(&pool, "table", 1, 3);
    let again = pool.open_file("table", &FileOptions::new()).unwrap();
    assert_eq!(again.id(), file.id());
    for (options, what) in [
        (FileOptions::new().read_only(true), "read-only"),
        (FileOptions::new().checksum(Checksum::Off), "checksum"),
        (FileOptions::new().zero_pages(ZeroPages::Refuse), "zeroes"),
    ] {
        let error = pool.open_file("table", &options).unwrap_err();
        assert!(matches!(&error, Error::OpenOtherwise { what: it, .. } if it.contains(what)));
    }
    let error = pool.open_file("table", &FileOptions::new().create_new(true)).unwrap_err();
    assert!(matches!(error, Error::Io(forebay_io::Error::Open { .. })), "{error}");
    file.close().unwrap();
    let options = FileOptions::new().checksum(Checksum::Off);
    assert_eq!(pool.open_file("table", &options).unwrap().blocks(), 1);
}

#[test]
fn a_file_removed_behind_the_pools_back_is_not_recreated_next_to_the_open_one() {
    let site = Site::new();
    let pool = site.pool(8);
    let file = numbered(&pool, "table", 1, 3);
    std::fs::remove_file(file.path()).unwrap();
    for options in [FileOptions::new(), create(), FileOptions::new().create_new(true)] {
        let error = pool.open_file("table", &options).unwrap_err();
        assert!(matches!(error, Error::Detached { replaced: false, .. }), "[REG-3] {error}");
    }
    assert!(!file.path().exists());
    assert_eq!(read(&file, 0), 3);
    file.close().unwrap();
    assert_eq!(pool.open_file("table", &create()).unwrap().blocks(), 0);
}

#[test]
fn a_name_stays_inside_its_tablespace() {
    let site = Site::new();
    let pool = site.pool(8);
    let outside = ["../table", "a/../../table", "/tmp/table", "", "a/", ".", "forebay.lock"];
    for name in outside {
        let error = pool.open_file(name, &create()).unwrap_err();
        assert!(matches!(error, Error::Setting { .. }), "{name}: {error}");
    }
    assert!(!site.path("table").exists());
    std::fs::create_dir(site.path("main/a")).unwrap();
    assert_eq!(numbered(&pool, "a/table", 1, 4).path(), site.path("main/a/table"));
    let error = pool.open_file("b/table", &create()).unwrap_err();
    assert!(matches!(error, Error::Io(forebay_io::Error::Open { .. })), "{error}");
    let error = pool.open_file("none", &FileOptions::new()).unwrap_err();
    assert!(matches!(error, Error::Io(forebay_io::Error::Open { .. })), "{error}");
    let error = pool.open_file("table", &create().tablespace("other")).unwrap_err();
    assert!(matches!(&error, Error::NoTablespace { name } if name == "other"), "{error}");
}

#[test]
fn the_place_of_the_checksum_lies_inside_the_page() {
    let site = Site::new();
    let pool = site.pool(8);
    for (offset, fits) in [(0, true), (PAGE - 4, true), (PAGE - 3, false), (usize::MAX, false)] {
        let options = create().checksum(Checksum::Crc32c { offset });
        let opened = pool.open_file(&format!("table {offset}"), &options);
        assert_eq!(opened.is_ok(), fits, "{offset}: {opened:?}");
    }
}

#[test]
fn a_read_only_file_is_read_and_nothing_else() {
    let site = Site::new();
    let pool = site.pool(8);
    numbered(&pool, "table", 20, 3).close().unwrap();
    let read_only = FileOptions::new().read_only(true);
    let file = pool.open_file("table", &read_only).unwrap();
    (0..20).for_each(|block| assert_eq!(read(&file, block), 3 + u64::from(block)));
    assert_eq!(pool.flush_and_sync().unwrap(), 0);
    assert!(matches!(file.write(0), Err(Error::ReadOnly { .. })));
    file.close().unwrap();
    let error = pool.open_file("none", &read_only).unwrap_err();
    assert!(matches!(error, Error::Io(forebay_io::Error::Open { .. })), "{error}");
}

#[test]
fn what_was_requested_and_could_not_be_had_is_reported() {
    let site = Site::new();
    let builder = site.builder(64).huge_pages(true).register_memory(true);
    let pool = builder.backend(Prefer::Auto).build().unwrap();
    let file = numbered(&pool, "table", 200, 0);
    (0..200).for_each(|block| assert_eq!(read(&file, block), u64::from(block)));
    // Whether the kernel agreed depends on the kernel; if there is a note, it is a sentence.
    assert!(pool.notes().iter().all(|note| note.len() > 20), "{:?}", pool.notes());
}
