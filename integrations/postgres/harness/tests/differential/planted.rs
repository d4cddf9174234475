//! The comparison itself: what is made to differ, it finds.

use forebay_postgres_harness::suite::Case;

use crate::pair::{Load, Pair, must};
use crate::scripts::{How, Script, Scripts, Step};
use crate::{clean_log, no_pins, pair, serve, text};

/// What is done to the second side alone, and a query that shows it.
const PLANTED: [(&str, &str); 8] = [
    ("update item set b = 59 where id = 4711", "select id, b from item where id = 4711"),
    ("delete from child where id = 77", "select count(*) from child"),
    ("set extra_float_digits = -10", "select p <-> point(1, 2) from item where id = 5"),
    (
        "set enable_indexscan = off; set enable_bitmapscan = off",
        "select id from item where a = 7 and b > 3 limit 3",
    ),
    (
        "create or replace function boom(int) returns int language sql as 'select $1'",
        "select boom(110)",
    ),
    ("select nextval('calls')", "select called(1)"),
    ("set client_min_messages = warning", "select announce(3)"),
    ("set default_transaction_read_only = on", "update tag set a = a"),
];

pub(crate) fn is_found(case: &Case) -> Result<(), String> {
    let server = serve(case)?;
    for (planted, query) in PLANTED {
        let mut pair = Pair::new(&server, Load::Nothing, case.seed)?;
        let step = Step { sql: query.to_owned(), how: How::Exact };
        let script = Script { kind: "planted", steps: vec![step], query: query.to_owned() };
        pair.run(&script).map_err(|why| format!("before anything is planted: {why}"))?;
        must(&mut pair.sessions[1], planted)?;
        if pair.run(&script).is_ok() {
            return Err(format!("`{planted}` on one side goes unnoticed by `{query}`"));
        }
    }
    let mut pair = Pair::new(&server, Load::Nothing, case.seed)?;
    // By scripts from a seed, too: a row in twenty of an index's table is another's.
    must(&mut pair.sessions[1], "update item set d = d + 1, b = b + 1 where id % 20 = 3")?;
    let mut scripts = Scripts::new(case.seed, server.major(), pair::collations(&server)?);
    if (0..100).all(|_| pair.run(&scripts.next()).is_ok()) {
        return Err(
            "a hundred scripts do not notice that a twentieth of the rows differs".to_owned()
        );
    }
    drop(pair);
    let mark = server.mark_log().map_err(text)?;
    let mut session = pair::connect(&server, "ours", Load::Nothing)?;
    must(&mut session, "do $$ begin raise warning 'planted'; end $$")?;
    if clean_log(&server, mark).is_ok() {
        return Err("a warning in the log goes unnoticed".to_owned());
    }
    must(
        &mut session,
        "begin; declare c cursor for select id from item order by a; fetch 1 from c",
    )?;
    if no_pins(&server).is_ok() {
        return Err("a pinned page goes unnoticed".to_owned());
    }
    Ok(())
}
