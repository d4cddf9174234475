//! The extension, built for a server that keeps the state of an index scan in another order.

use std::fs;

use forebay_postgres_harness::suite::{Case, equal, must, text};
use forebay_postgres_harness::{Disk, Extension, Server};

use crate::{JOIN, PLAN, TABLES};

const FIELDS: [&str; 2] = ["int\t\t\tlastItem;", "int\t\t\titemIndex;"];

/// The extension as for the case, but for a header in which two fields have each other's place: no size changes.
fn planted(case: &Case) -> Result<Extension, String> {
    let extension = case.extension.as_ref().ok_or("the extension has no Makefile")?;
    let mut build = extension.build.clone();
    build.set_file_name(format!("forebay-planted-{}", case.installation.major));
    let header = case.installation.headers.join("access/nbtree.h");
    let header = fs::read_to_string(header).map_err(text)?;
    for field in FIELDS {
        equal(field, header.matches(field).count(), 1)?;
    }
    let header =
        header.replace(FIELDS[0], "@").replace(FIELDS[1], FIELDS[0]).replace('@', FIELDS[1]);
    let headers = build.with_extension("headers");
    fs::create_dir_all(headers.join("access")).map_err(text)?;
    fs::write(headers.join("access/nbtree.h"), header).map_err(text)?;
    let flags = format!("COPT=-O0 -I{}", headers.display());
    Ok(Extension { build, variables: vec![flags], ..extension.clone() })
}

pub(crate) fn is_refused(case: &Case) -> Result<(), String> {
    let extension = planted(case)?;
    let settings = [("shared_buffers", "1MB"), ("session_preload_libraries", "forebay")];
    let server = Server::new(&case.installation, Some(&extension), Disk::Steady(60), &settings);
    let server = server.map_err(text)?;
    let mut session = server.connect("postgres", &[]).map_err(text)?;
    must(&mut session, TABLES)?;
    must(&mut session, "vacuum analyze orders")?;
    must(&mut session, "vacuum analyze items")?;
    must(&mut session, PLAN)?;
    let count = server.hint_count().map_err(text)?;
    must(&mut session, "set forebay.enabled = off")?;
    let expected = must(&mut session, JOIN)?;
    must(&mut session, "set forebay.enabled = on")?;
    let refused = session.run(JOIN);
    equal("rows", refused.rows, expected.clone())?;
    let words = "WARNING 01000: forebay does not look ahead in index scans";
    equal("the first query", refused.notices, vec![words.to_owned()])?;
    // Little was asked for until the first row that has another before it.
    let before = count.now().map_err(text)?;
    let again = session.run(JOIN);
    equal("the next query", again.notices, Vec::new())?;
    equal("its rows", again.rows, expected)?;
    equal("hints", count.now().map_err(text)? - before, 0)
}
