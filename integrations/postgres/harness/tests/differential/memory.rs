//! A backend that scans a hundred thousand times.

use forebay_postgres_harness::Session;
use forebay_postgres_harness::suite::{Case, text};

use crate::pair::{Load, connect, make_database, must};
use crate::{clean_log, load, no_pins, serve};

/// Scans of one round, before and after which memory is read.
const ROUND: u32 = 10_000;
const ROUNDS: u32 = 10;
/// What the process may grow by in all rounds after the first seven, when its caches are full; a leak of two bytes for each scan is 60,000.
const GROWTH_MAX: u64 = 48 << 10;

/// Executor starts and ends, rescans, scans left early, cut by an error or by the end of their subtransaction.
const SCANS: &str = "do $$
declare r record; total bigint := 0; c refcursor;
begin
    for i in 1..ROUND / 10 loop
        select count(*), max(b) into r from item where a = i % 400;
        select id into r from item where a = i % 400 order by a, b desc limit 1;
        select count(*) into r from child where item = any (array[i, i + 1, i + 7]);
        perform c.k from item t join child c on c.item = t.id where t.a = i % 400 limit 3;
        select b, a, d into r from item where b = i % 60 limit 4;
        begin
            perform boom(id) from child where k = i % 1000;
        exception when sqlstate 'P7777' then total := total + 1;
        end;
        open c for select * from part where k between i % 900 and i % 900 + 5;
        fetch c into r;
        close c;
        begin
            open c for select id from item where d < 20 order by d desc nulls last;
            fetch c into r;
            raise exception using errcode = 'P7778';
        exception when sqlstate 'P7778' then null;
        end;
        execute format('select count(*) from tag where a = %s', i % 400) into r;
        for r in select id from item where (a, b) >= (399, 0) order by a desc limit 5 loop
            total := total + r.id;
        end loop;
    end loop;
end $$";

pub(crate) fn does_not_grow(case: &Case) -> Result<(), String> {
    let server = serve(case)?;
    make_database(&server, "ours")?;
    let mark = server.mark_log().map_err(text)?;
    let loaded = load(case, case.seed);
    let mut session = connect(&server, "ours", loaded)?;
    // Every scan is one of a b-tree, and reads.
    must(&mut session, "drop index item_a_hash")?;
    must(
        &mut session,
        "set enable_seqscan = off; set enable_bitmapscan = off; set enable_hashjoin = off; set enable_mergejoin = off",
    )?;
    let hints = server.hint_count().map_err(text)?;
    let before = hints.now().map_err(text)?;
    let mut seen = Vec::new();
    for _ in 0..ROUNDS {
        must(&mut session, &SCANS.replace("ROUND", &ROUND.to_string()))?;
        seen.push((session.private_memory().map_err(text)?, contexts(&mut session)?));
    }
    let (first, last) = (seen[6], seen[seen.len() - 1]);
    if last.0 > first.0 + GROWTH_MAX || last.1 > first.1 + GROWTH_MAX {
        return Err(format!(
            "memory grows; bytes of the process and of its contexts, each round: {seen:?}"
        ));
    }
    let given = hints.now().map_err(text)? - before;
    eprintln!("{}: {seen:?}, {given} hints", case.installation.version);
    if loaded != Load::Nothing && given < u64::from(ROUND) {
        return Err(format!("{given} hints in all: it has hardly looked ahead"));
    }
    no_pins(&server)?;
    clean_log(&server, mark)?;
    Ok(())
}

fn contexts(session: &mut Session) -> Result<u64, String> {
    let rows =
        session.rows("select sum(total_bytes) from pg_backend_memory_contexts").map_err(text)?;
    rows.first().and_then(|it| it.parse().ok()).ok_or_else(|| format!("no sum in {rows:?}"))
}
