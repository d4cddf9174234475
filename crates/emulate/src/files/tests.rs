//! Files and directories, without a server.

use super::*;

const MB: u64 = 1 << 20;
const EXACT: Growth = Growth { exact: true, keep_size: false };
const OWNER: Owner = Owner { user: 7, group: 8 };

fn files() -> Files {
    Files::new(64 * MB, Place::Middle, (OWNER, 0o755), &["disk"], crate::scheduler::today)
}

fn name(text: &str) -> &OsStr {
    OsStr::new(text)
}

fn make(files: &mut Files, parent: u64, text: &str, directory: bool) -> u64 {
    files.make((parent, name(text)), directory, 0o644, OWNER).unwrap().inode
}

fn names(files: &Files, directory: u64) -> Vec<String> {
    let listed = files.list(directory, 0).unwrap();
    listed.map(|(_, _, _, name)| name.to_string_lossy().into_owned()).collect()
}

#[test]
fn names_are_made_found_moved_and_removed() {
    let mut files = files();
    let directory = make(&mut files, ROOT, "d", true);
    let file = make(&mut files, directory, "f", false);
    assert_eq!(files.look_up(directory, name("f")).unwrap().inode, file, "[FIL-1]");
    let twice = files.make((directory, name("f")), false, 0, OWNER);
    assert_eq!(twice, Err(FilesError::Exists));
    assert_eq!(files.remove((ROOT, name("d")), true), Err(FilesError::NotEmpty));
    assert_eq!(files.remove((ROOT, name("d")), false), Err(FilesError::IsADirectory));
    files.rename((directory, name("f")), (ROOT, name("g")), true).unwrap();
    assert_eq!(names(&files, ROOT), ["d", "g"]);
    assert_eq!(files.remove((ROOT, name("g")), true), Err(FilesError::NotADirectory));
    files.remove((ROOT, name("d")), true).unwrap();
    files.remove((ROOT, name("g")), false).unwrap();
    assert_eq!(files.look_up(ROOT, name("g")), Err(FilesError::NotFound), "[FIL-1]");
    assert!(names(&files, ROOT).is_empty());
}

#[test]
fn a_directory_does_not_go_into_itself_and_reserved_names_are_nobodys() {
    let mut files = files();
    let outer = make(&mut files, ROOT, "outer", true);
    let inner = make(&mut files, outer, "inner", true);
    let into = files.rename((ROOT, name("outer")), (inner, name("x")), true);
    assert_eq!(into, Err(FilesError::IntoItself));
    assert_eq!(files.make((ROOT, name("disk")), false, 0, OWNER), Err(FilesError::Reserved));
    let over = files.rename((ROOT, name("outer")), (ROOT, name("disk")), true);
    assert_eq!(over, Err(FilesError::Reserved));
    assert_eq!(files.remove((ROOT, name("disk")), false), Err(FilesError::Reserved));
    make(&mut files, outer, "disk", false);
}

#[test]
fn a_file_moved_with_its_directory_has_its_new_path() {
    let mut files = files();
    let outer = make(&mut files, ROOT, "a", true);
    let inner = make(&mut files, outer, "b", true);
    let file = make(&mut files, inner, "c", false);
    assert_eq!(&*files.span(file, 0..1).unwrap().0, "a/b/c");
    files.rename((ROOT, name("a")), (ROOT, name("z")), true).unwrap();
    assert_eq!(&*files.span(file, 0..1).unwrap().0, "z/b/c");
    assert_eq!(files.parent(inner), outer);
}

#[test]
fn an_unlinked_file_lives_while_it_is_open_and_then_frees_its_space() {
    let mut files = files();
    let before = files.free_bytes();
    let file = make(&mut files, ROOT, "f", false);
    files.open(file).unwrap();
    files.place(file, 0..3 * MB, Growth::WRITE, &mut Vec::new()).unwrap();
    assert!(files.remove((ROOT, name("f")), false).unwrap().is_empty(), "it is open");
    assert_eq!(files.attributes(file).unwrap().links, 0);
    assert_eq!(files.span(file, 0..9 * MB).unwrap().1[0].len, 3 * MB);
    files.close(file);
    assert!(files.attributes(file).is_ok(), "the kernel knows of it still");
    let freed = files.forget(file, 1);
    assert_eq!(freed.iter().map(|range| range.end - range.start).sum::<u64>(), 3 * MB);
    assert_eq!(files.attributes(file), Err(FilesError::NotFound), "[FIL-1]");
    assert_eq!(files.free_bytes(), before);
}

#[test]
fn a_name_taken_over_by_a_rename_leaves_its_old_file_to_its_users() {
    let mut files = files();
    let (old, new) = (make(&mut files, ROOT, "f", false), make(&mut files, ROOT, "f.new", false));
    let without = files.rename((ROOT, name("f.new")), (ROOT, name("f")), false);
    assert_eq!(without, Err(FilesError::Exists));
    files.rename((ROOT, name("f.new")), (ROOT, name("f")), true).unwrap();
    assert_eq!(files.look_up(ROOT, name("f")).unwrap().inode, new);
    assert_eq!(files.attributes(old).unwrap().links, 0);
    assert_eq!(names(&files, ROOT), ["f"]);
}

#[test]
fn what_is_cut_off_is_reported_so_that_it_can_be_zeroed() {
    let mut files = files();
    let file = make(&mut files, ROOT, "f", false);
    let mut placed = Vec::new();
    files.place(file, 0..10_000, EXACT, &mut placed).unwrap();
    assert!(placed.iter().eq([&(32 * MB..32 * MB + 12_288)]), "{placed:?}");
    let zeros = files.resize(file, 5000).unwrap();
    // The third block is freed; in the second, the bytes after 5000 become zeros.
    assert_eq!(
        zeros,
        [32 * MB + 8192..32 * MB + 12_288, 32 * MB + 5000..32 * MB + 8192],
        "[FIL-2]"
    );
    assert!(files.resize(file, 9000).unwrap().is_empty());
    let hole = Stretch { len: 9000 - 8192, device_offset: None };
    assert_eq!(files.span(file, 8192..20_000).unwrap().1, [hole]);
}

#[test]
fn a_hole_within_one_block_leaves_the_block_in_place() {
    let mut files = files();
    let file = make(&mut files, ROOT, "f", false);
    files.place(file, 0..8192, EXACT, &mut Vec::new()).unwrap();
    let hole = files.punch(file, 100..200).unwrap();
    assert!(hole.iter().eq([&(32 * MB + 100..32 * MB + 200)]), "{hole:?}");
    assert_eq!(
        files.punch(file, 4000..4200).unwrap(),
        [32 * MB + 4000..32 * MB + 4096, 32 * MB + 4096..32 * MB + 4200]
    );
    assert_eq!(files.attributes(file).unwrap().held_bytes, 8192);
}

#[test]
fn a_listing_continued_after_removals_misses_nothing() {
    let mut files = files();
    for number in 0..100 {
        make(&mut files, ROOT, &format!("f{number}"), false);
    }
    let mut seen = Vec::new();
    let mut cookie = 0;
    loop {
        let page: Vec<_> = files
            .list(ROOT, cookie)
            .unwrap()
            .take(7)
            .map(|(at, _, _, name)| (at, name.to_owned()))
            .collect();
        let Some((last, _)) = page.last() else { break };
        cookie = *last;
        for (_, name) in page {
            files.remove((ROOT, &name), false).unwrap();
            seen.push(name);
        }
    }
    assert_eq!(seen.len(), 100);
}
