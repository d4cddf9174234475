//! Damage to an index behind the last row that a query takes.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt as _;

use forebay_postgres_harness::suite::{Case, must, text};

use crate::{PRELOADED, connect, serve_with, variant};

const BLOCK: usize = 8192;
/// Bytes of a page's header, after which line pointers lie; in the metapage, its contents.
const HEADER: usize = 24;

/// A nested loop of which the first 500 rows do not need the last leaf of the inner index.
const TABLE: &str = "create table few (id int, item int);
    insert into few select g, case when g > 500 then 16383 else hashint4(g) & 8191 end from generate_series(1, 600) g;
    create index few_id on few (id)";
const QUERY: &str =
    "select f.id, i.note from few f join items i on i.id = f.item order by f.id limit 500";

/// The link from an index's root to its last leaf: the root's block, where in it the link lies, and the leaf's block.
fn last_link(file: &File) -> Result<(u64, usize, u64), String> {
    let mut page = [0; BLOCK];
    let number = |at: usize, page: &[u8]| u32::from_ne_bytes(page[at..at + 4].try_into().unwrap());
    file.read_exact_at(&mut page, 0).map_err(text)?;
    // Behind the magic number and the version.
    let root = u64::from(number(HEADER + 8, &page));
    file.read_exact_at(&mut page, root * BLOCK as u64).map_err(text)?;
    // The last line pointer ends where free space begins; its low 15 bits are where the entry lies.
    let lower = usize::from(u16::from_ne_bytes(page[12..14].try_into().unwrap()));
    let entry = number(lower - 4, &page) as usize & 0x7fff;
    // The more significant half of a block's number is the first.
    Ok((root, entry, u64::from(number(entry, &page).rotate_left(16))))
}

pub(crate) fn is_left(case: &Case) -> Result<(), String> {
    // With those of the server's assertions that are in its headers.
    let extension = variant(case, "asserts", &["COPT=-O0 -DUSE_ASSERT_CHECKING"])?;
    let mut server = serve_with(case, &extension, "1MB")?;
    let mut session = connect(&server, &[])?;
    must(&mut session, TABLE)?;
    must(&mut session, "vacuum analyze few")?;
    let expected = must(&mut session, QUERY)?;
    let path = must(&mut session, "select pg_relation_filepath('items_id')")?.join("");
    let path = server.data_directory().join(path);
    drop(session);

    let mut settings = vec![("shared_buffers", "1MB")];
    if case.installation.major >= 18 {
        settings.push(("ignore_checksum_failure", "on"));
    }
    for damage in ["the leaf is empty", "the link leads behind the index's end"] {
        server.stop().map_err(text)?;
        let file = OpenOptions::new().read(true).write(true).open(&path).map_err(text)?;
        let (root, link, leaf) = last_link(&file)?;
        if damage == "the leaf is empty" {
            file.write_all_at(&[0; BLOCK], leaf * BLOCK as u64).map_err(text)?;
        } else {
            // Block 0x7fff0000.
            let place = root * BLOCK as u64 + link as u64;
            file.write_all_at(&[0xff, 0x7f, 0, 0], place).map_err(text)?;
        }
        server.start(&settings).map_err(text)?;
        let count = server.hint_count().map_err(text)?;
        for settings in [&[], PRELOADED] {
            let before = count.now().map_err(text)?;
            let rows = must(&mut connect(&server, settings)?, QUERY);
            let rows = rows.map_err(|why| format!("{damage}, {settings:?}: {why}"))?;
            if rows != expected {
                return Err(format!("{damage}, {settings:?}: {} other rows", rows.len()));
            }
            if !settings.is_empty() && count.now().map_err(text)? == before {
                return Err(format!("{damage}: it has not looked ahead"));
            }
        }
        // Stock meets it with the next row.
        let next = QUERY.replace("limit 500", "limit 501");
        if must(&mut connect(&server, &[])?, &next).is_ok_and(|rows| rows.len() > 500) {
            return Err(format!("{damage}: not so"));
        }
    }
    Ok(())
}
