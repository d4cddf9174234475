//! A damaged page of an index that the query does not come to.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt as _;

use forebay_postgres_harness::suite::{Case, must, text};

use crate::{PRELOADED, connect, serve};

const BLOCK: usize = 8192;
/// Bytes of a page's header, after which line pointers lie; in the metapage, its contents.
const HEADER: usize = 24;

/// A nested loop of which the first 500 rows do not need the last leaf of the inner index.
const TABLE: &str = "create table few (id int, item int);
    insert into few select g, case when g > 500 then 16383 else hashint4(g) & 8191 end from generate_series(1, 600) g;
    create index few_id on few (id)";
const QUERY: &str =
    "select f.id, i.note from few f join items i on i.id = f.item order by f.id limit 500";

pub(crate) fn behind_a_limit(case: &Case) -> Result<(), String> {
    let mut server = serve(case)?;
    let mut session = connect(&server, &[])?;
    must(&mut session, TABLE)?;
    must(&mut session, "vacuum analyze few")?;
    let expected = must(&mut session, QUERY)?;
    let path = must(&mut session, "select pg_relation_filepath('items_id')")?.join("");
    drop(session);
    server.stop().map_err(text)?;

    let path = server.data_directory().join(path);
    let file = OpenOptions::new().read(true).write(true).open(path).map_err(text)?;
    let mut page = [0; BLOCK];
    file.read_exact_at(&mut page, 0).map_err(text)?;
    let number = |at: usize, page: &[u8]| u32::from_ne_bytes(page[at..at + 4].try_into().unwrap());
    // Behind the magic number and the version.
    let root = u64::from(number(HEADER + 8, &page)) * BLOCK as u64;
    file.read_exact_at(&mut page, root).map_err(text)?;
    // The last line pointer ends where free space begins; its low 15 bits are where the entry lies.
    let lower = usize::from(u16::from_ne_bytes(page[12..14].try_into().unwrap()));
    let entry = number(lower - 4, &page) as usize & 0x7fff;
    // Block 0x7fff0000, which the index does not have.
    page[entry..entry + 4].copy_from_slice(&[0xff, 0x7f, 0, 0]);
    file.write_all_at(&page, root).map_err(text)?;

    let mut settings = vec![("shared_buffers", "1MB")];
    if case.installation.major >= 18 {
        settings.push(("ignore_checksum_failure", "on"));
    }
    server.start(&settings).map_err(text)?;
    let count = server.hint_count().map_err(text)?;
    for settings in [&[], PRELOADED] {
        let before = count.now().map_err(text)?;
        let rows = must(&mut connect(&server, settings)?, QUERY)?;
        if rows != expected {
            return Err(format!("{settings:?}: {} other rows", rows.len()));
        }
        if !settings.is_empty() && count.now().map_err(text)? == before {
            return Err("it has not looked ahead".to_owned());
        }
    }
    // It is damaged indeed.
    match must(&mut connect(&server, &[])?, &QUERY.replace("limit 500", "limit 501")) {
        Ok(_) => Err("the link is not damaged".to_owned()),
        Err(_) => Ok(()),
    }
}
