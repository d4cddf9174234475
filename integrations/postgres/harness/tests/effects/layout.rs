//! The extension, built for a server that keeps the state of an index scan in another order.

use std::fs;

use forebay_postgres_harness::Extension;
use forebay_postgres_harness::suite::{Case, equal, must, text};

use crate::{JOIN, PRELOADED, connect, serve_with, variant};

const FIELDS: [&str; 2] = ["int\t\t\tlastItem;", "int\t\t\titemIndex;"];

/// Built with a header in which two fields have each other's place: no size changes.
fn planted(case: &Case) -> Result<Extension, String> {
    let header = case.installation.headers.join("access/nbtree.h");
    let header = fs::read_to_string(header).map_err(text)?;
    for field in FIELDS {
        equal(field, header.matches(field).count(), 1)?;
    }
    let header =
        header.replace(FIELDS[0], "@").replace(FIELDS[1], FIELDS[0]).replace('@', FIELDS[1]);
    let mut extension = variant(case, "planted", &[])?;
    let headers = extension.build.join("headers");
    fs::create_dir_all(headers.join("access")).map_err(text)?;
    fs::write(headers.join("access/nbtree.h"), header).map_err(text)?;
    extension.variables = vec![format!("COPT=-O0 -I{}", headers.display())];
    Ok(extension)
}

pub(crate) fn is_refused(case: &Case) -> Result<(), String> {
    let server = serve_with(case, &planted(case)?, "1MB")?;
    let expected = must(&mut connect(&server, &[])?, JOIN)?;
    let count = server.hint_count().map_err(text)?;
    let before = count.now().map_err(text)?;
    let mut session = connect(&server, PRELOADED)?;
    let refused = session.run(JOIN);
    equal("rows", refused.rows, expected.clone())?;
    let words = "WARNING 01000: forebay does not look ahead in index scans";
    equal("the first query", refused.notices, vec![words.to_owned()])?;
    let again = session.run(JOIN);
    equal("the next query", again.notices, Vec::new())?;
    equal("its rows", again.rows, expected)?;
    equal("hints", count.now().map_err(text)? - before, 0)
}
