//! What is tried on the server, and the resulting proposals.
//!
//! effective_io_concurrency is searched on a ladder, to which the disk's measurement adds its own value, and proved,
//! for each disk that has tables; on the main disk, io_combine_limit and the extension's distance_max are, too.
//! random_page_cost is computed by `costs` and proved. The extension `forebay`, if it can be loaded, is proved by
//! switching it off and on. A setting that no query can show, because no read-only statement uses it or because it
//! needs a restart, is reported with the disk's measurement as its evidence, and stays unproved.

use super::Proposal;
use super::costs::{self, Crossing};
use super::counts;
use super::disks::{self, Disk, applies_to};
use super::given;
use super::load::Load;
use super::methods;
use super::prove::{After, Proof, Site, Value, refusal};
use super::query::{MADE, Query, Shape};
use super::server::{
    COMPLETION, EFFECTIVE, MAINTENANCE, RANDOM, SEQUENTIAL, Server, Setting, Table, Tablespace,
};
use crate::args::PostgresArgs;
use forebay_measure::progress::Progress;
use forebay_measure::report::{Advice, AppliesTo, Record, Verdict};
use forebay_measure::statistics::{BOUND, Judgement};
use forebay_measure::units::shown_size;
use forebay_session::{Config, Connection};

/// Number of tables of a disk by which its settings are proved.
const TABLES: usize = 2;

/// Shapes that use effective_io_concurrency on every version; any of the user's queries may.
const USING_CONCURRENCY: &[Shape] = &[Shape::Bitmap, Shape::SparseBitmap, Shape::Given];

/// Shapes that read several blocks at once, from 17 on; bitmap scans do from 18 on.
fn using_combining(server: &Server) -> &'static [Shape] {
    match server.major {
        18.. => &[Shape::Sequential, Shape::Bitmap, Shape::Given],
        _ => &[Shape::Sequential, Shape::Given],
    }
}

/// Shapes that use the extension.
const USING_EXTENSION: &[Shape] =
    &[Shape::IndexRange, Shape::Bitmap, Shape::SparseBitmap, Shape::Join, Shape::Given];

/// Shapes for which the planner compares page costs.
const USING_PAGE_COSTS: &[Shape] = &[Shape::Share, Shape::Given];

/// The results.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// The queries by which the server's settings were proved, with the parts that they have not read yet.
    pub(super) queries: Vec<Query>,
    pub(super) proposals: Vec<Proposal>,
    pub(super) verdicts: Vec<Verdict>,
    pub(super) records: Vec<Record>,
    pub(super) crossings: Vec<Crossing>,
    pub(super) remarks: Vec<String>,
}

/// Tries everything that may be advised, in the session of the run and, with the user's queries, in theirs.
///
/// # Errors
/// A server error on our own statements, or an interruption.
pub(super) fn all(
    args: &PostgresArgs,
    config: &Config,
    (connection, given): (Connection, Option<(Connection, Vec<Query>)>),
    server: &Server,
    disks: &[Disk],
) -> anyhow::Result<Found> {
    let (session, given) = given.unzip();
    let mut site = Site::new(args, server, connection, session);
    let mut found = Found::default();
    each_disk(args, config, &mut site, disks, given.as_deref(), &mut found)?;
    spare(&server.tablespaces, disks, &mut found.proposals);
    for disk in disks {
        found.proposals.extend(unproved(server, disk));
        match methods::proposal(server, disk).filter(|_| disk.is_main) {
            Some(Ok(proposal)) => found.proposals.push(proposal),
            Some(Err(remark)) => found.remarks.push(remark),
            None => {}
        }
    }
    found.records = std::mem::take(&mut site.records);
    found.remarks.extend(site.remarks);
    Ok(found)
}

/// Tries what can be proved on each of `disks`.
fn each_disk(
    args: &PostgresArgs,
    config: &Config,
    site: &mut Site<'_>,
    disks: &[Disk],
    given: Option<&[Query]>,
    found: &mut Found,
) -> anyhow::Result<()> {
    for disk in disks {
        let mut queries = match given {
            // The user's queries may read from any disk, so they are for the server's own setting.
            Some(given) if disk.is_main => given.to_vec(),
            Some(_) => continue,
            None => made(site, disk)?,
        };
        if queries.is_empty() {
            continue;
        }
        for ladder in ladders(site.server, disk) {
            climb(args, site, (disk, &ladder), &mut queries, found)?;
        }
        if given.is_none()
            && let Err(why) = refusal(page_costs(args, site, disk, found))?
        {
            site.remark(format!("{RANDOM} is not tried on {}: {why}.", disk.name));
        }
        if disk.is_main {
            extension(args, config, site, disk, &mut queries, found)?;
            found.queries = queries;
        }
    }
    Ok(())
}

/// Measures the gain of `changes`, which are in effect: with the same `queries`, or with new ones for the same tables;
/// for random_page_cost with those between the shares of its crossing. None if no query uses what they set.
///
/// # Errors
/// As [`all`].
pub(super) fn after(
    args: &PostgresArgs,
    config: &Config,
    server: &Server,
    (changes, crossings): (&[&Advice], &[Crossing]),
    queries: Option<Vec<Query>>,
    load: &mut Option<Load>,
) -> anyhow::Result<Option<After>> {
    let mut before: Vec<Value> = Vec::new();
    let mut using: Vec<Shape> = Vec::new();
    let mut crossed = None;
    for change in changes {
        let was = (change.setting.clone(), change.current.clone().unwrap_or_default());
        let (shapes, value) = match change.setting.as_str() {
            EFFECTIVE => (USING_CONCURRENCY, was),
            COMBINE => (using_combining(server), was),
            DISTANCE => (USING_EXTENSION, was),
            // Reads from memory do not gain from it.
            RANDOM if args.drop_caches => {
                crossed = Some([was.clone(), (RANDOM.to_owned(), change.advised.clone())]);
                (USING_PAGE_COSTS, was)
            }
            // A session can only switch off a library that was loaded at its start.
            PRELOAD if change.advised.split(", ").any(|word| word == "forebay") => {
                (USING_EXTENSION, (ENABLED.to_owned(), "off".to_owned()))
            }
            _ => continue,
        };
        before.push(value);
        using.extend(shapes);
    }
    if before.is_empty() {
        return Ok(None);
    }
    if load.is_none() && server.sees_load {
        *load = Some(Load::watch(config)?);
    }
    let mut connection = Connection::open(config)?;
    let given = args.queries.as_ref().map(|_| given::session(args, config, &mut connection));
    let mut site = Site::new(args, server, connection, given.transpose()?);
    let disks = disks::of(server);
    let main = disks.iter().find(|disk| disk.is_main);
    let mut queries = match (queries, main) {
        (Some(queries), _) => queries,
        (None, Some(disk)) => made(&mut site, disk)?,
        (None, None) => Vec::new(),
    };
    if let (Some([was, now]), Some(disk)) = (&crossed, main) {
        for crossing in crossings.iter().filter(|it| it.disk == disk.name) {
            if let Some(table) = server.tables.iter().find(|it| it.name == crossing.table) {
                match refusal(costs::between(&mut site, table, crossing, [was, now]))? {
                    Ok(between) => queries.extend(between),
                    Err(why) => site.remark(format!("{RANDOM} is not measured again: {why}.")),
                }
            }
        }
    }
    site.after(before, (&mut queries, &using), args.rounds).map(Some)
}

/// The tables on `disk` to which the server's `setting` applies, largest first.
fn tables_of<'s>(server: &'s Server, disk: &Disk, setting: &str) -> Vec<&'s Table> {
    let is_here = |table: &&Table| {
        let own = server.tablespace(table.tablespace).and_then(|it| it.own.get(setting));
        disk.tablespaces.contains(&table.tablespace) && own.is_none()
    };
    server.tables.iter().filter(is_here).collect()
}

/// Queries of every shape on the largest tables of `disk`, if the server plans them as intended.
fn made(site: &mut Site<'_>, disk: &Disk) -> anyhow::Result<Vec<Query>> {
    for tablespace in site.server.tablespaces.iter().filter(|it| disk.tablespaces.contains(&it.oid))
    {
        if let Some(own) = tablespace.own.get(EFFECTIVE) {
            site.remark(format!(
                "Tablespace {} has its own {EFFECTIVE} ({own}), which hides the server's: its tables are left out.",
                tablespace.name
            ));
        }
    }
    let mut queries = Vec::new();
    let mut progress = Progress::new((TABLES * MADE.len()) as u64);
    for table in tables_of(site.server, disk, EFFECTIVE).into_iter().take(TABLES) {
        site.report_if_cached(table);
        if table.index.is_none() {
            site.remark(format!(
                "{} has no plain b-tree on a number or a time with statistics: only stretches of it are read.",
                table.name
            ));
        }
        for shape in MADE {
            if let Some(mut query) = Query::made(shape, table)
                && site.is_planned(&query)?
            {
                site.fit(&mut query, table, &mut progress)?;
                queries.push(query);
            }
        }
    }
    Ok(queries)
}

/// A numeric setting of a session, and the values tried in addition to the present one and the disk measurement's.
struct Ladder {
    setting: &'static str,
    values: &'static [u32],
    using: &'static [Shape],
}

/// The ladders for `disk`, in the order in which they are tried. Settings that the server lacks are left out.
fn ladders(server: &Server, disk: &Disk) -> Vec<Ladder> {
    let mut ladders = vec![Ladder {
        setting: EFFECTIVE,
        values: &[1, 16, 64, 256, 1000],
        using: USING_CONCURRENCY,
    }];
    if disk.is_main {
        // In blocks. More than 32 need 18.
        let (setting, values) = (COMBINE, &[4, 16, 32]);
        ladders.push(Ladder { setting, values, using: using_combining(server) });
        let (setting, values) = (DISTANCE, &[64, 256, 1000]);
        ladders.push(Ladder { setting, values, using: USING_EXTENSION });
    }
    ladders.retain(|ladder| server.setting(ladder.setting).is_some());
    ladders
}

/// Searches a ladder and proves the best value, for the server or for the tablespaces on another disk.
fn climb(
    args: &PostgresArgs,
    site: &mut Site<'_>,
    (disk, ladder): (&Disk, &Ladder),
    queries: &mut [Query],
    found: &mut Found,
) -> anyhow::Result<()> {
    let server = site.server;
    let &Ladder { setting: name, values, using: shapes } = ladder;
    let Some(setting) = server.setting(name) else { return Ok(()) };
    let mut values: Vec<u32> = values.to_vec();
    values.extend(setting.value.parse::<u32>());
    let on_disk = disk.advice(server, name);
    let hoped = on_disk.map(|it| it.advised.clone());
    values.extend(hoped.as_ref().and_then(|value| value.parse::<u32>().ok()));
    // From 18 on this limit also caps the effect of higher values.
    let limit = server.setting(COMBINE_MAX).filter(|_| name == COMBINE);
    if let Some(limit) = limit.and_then(|it| it.value.parse::<u32>().ok()) {
        values.push(limit);
        values.retain(|value| *value <= limit);
    }
    values.sort_unstable();
    values.dedup();
    let values: Vec<String> = values.iter().map(u32::to_string).collect();
    let is_using = |query: &&Query| shapes.contains(&query.shape);
    let mut using: Vec<Query> = queries.iter().filter(is_using).cloned().collect();
    if using.is_empty() {
        site.remark(format!("{name} is not tried on {}: no query there uses it.", disk.name));
        return Ok(());
    }
    let mut progress =
        Progress::new(u64::from(args.rounds) * 2 * queries.len() as u64 + 12 * using.len() as u64);
    let best = site.search(name, (&values, hoped.as_ref()), &mut using, &mut progress)?;
    // The proof does not read again what the search has read.
    for query in queries.iter_mut() {
        if let Some(used) = using.iter().find(|used| used.label == query.label) {
            query.clone_from(used);
        }
    }
    let Some(best) = best else { return Ok(()) };
    found.remarks.extend(limit.filter(|limit| limit.value == best).and_then(larger));
    if best == setting.value {
        found
            .remarks
            .push(format!("{name} = {best} on {} is as good as any that was tried.", disk.name));
        return Ok(());
    }
    let change = [(name.to_owned(), setting.value.clone()), (name.to_owned(), best)];
    let others = proposed(found, server, disk);
    let proof = site.prove(
        (applies_to(server), &others),
        [&change[0], &change[1]],
        (queries, shapes),
        args.rounds,
        &mut progress,
    )?;
    let Some(mut advice) = kept(proof, &change[1], found) else { return Ok(()) };
    if let Some(on_disk) = on_disk {
        advice.evidence += &format!(" On the disk: {}", on_disk.evidence);
    }
    found.proposals.extend(placed(&server.tablespaces, disk, overridden(&setting.source), &advice));
    Ok(())
}

/// Proves random_page_cost, computed from where scans of a table on `disk` cross.
fn page_costs(
    args: &PostgresArgs,
    site: &mut Site<'_>,
    disk: &Disk,
    found: &mut Found,
) -> anyhow::Result<()> {
    let server = site.server;
    let Some(setting) = server.setting(RANDOM) else { return Ok(()) };
    let tables = tables_of(server, disk, RANDOM);
    let Some(table) = costs::table(site, &tables) else { return Ok(()) };
    let mut progress = Progress::new(26 + 4 * u64::from(args.rounds));
    let Some(crossing) = costs::crossing(site, (&disk.name, table), &mut progress)? else {
        return Ok(());
    };
    let evidence = crossing.evidence(&setting.value);
    found.remarks.push(match (&crossing.page, server.setting(SEQUENTIAL)) {
        (Some(page), Some(set)) => page.text(&crossing.table, &set.value),
        _ => format!(
            "{SEQUENTIAL} cannot be computed: a sequential scan of {} is not significantly slower from a cold cache \
             than from memory.",
            crossing.table
        ),
    });
    found.crossings.push(crossing.clone());
    if crossing.is_met() {
        found
            .remarks
            .push(format!("{RANDOM} = {} is right for {}. {evidence}", setting.value, disk.name));
        return Ok(());
    }
    let values =
        [&setting.value, &crossing.advised].map(|value| (RANDOM.to_owned(), value.clone()));
    let change = [&values[0], &values[1]];
    let mut queries = costs::between(site, table, &crossing, change)?;
    if !crossing.is_reached() || queries.is_empty() {
        let why = if queries.is_empty() {
            "with bitmap scans allowed, both values give the same plans"
        } else {
            "no value makes the planner change plans at the crossing"
        };
        found.remarks.push(format!(
            "{RANDOM} = {} is not proposed on {}: {why}. {evidence}",
            crossing.advised, disk.name
        ));
        return Ok(());
    }
    let others = proposed(found, server, disk);
    let proof = site.prove(
        (AppliesTo::Postgres, &others),
        change,
        (&mut queries, USING_PAGE_COSTS),
        args.rounds,
        &mut progress,
    )?;
    let is_compared = |query: &&Query| proof.verdicts.iter().any(|it| it.row == query.label);
    let unknown = queries.iter().find(|query| query.shape == Shape::Count && !is_compared(query));
    let advice = kept(proof, &values[1], found);
    // The count may become many times slower, and that was not measured.
    if let (Some(advice), Some(query)) = (&advice, unknown) {
        found.remarks.push(format!(
            "{RANDOM} = {} is not proposed: it could not be compared by the {}.",
            advice.advised, query.label
        ));
    }
    let Some(mut advice) = advice.filter(|_| unknown.is_none()) else {
        found.remarks.push(evidence);
        return Ok(());
    };
    advice.evidence += &format!(" {evidence}");
    found.proposals.extend(placed(&server.tablespaces, disk, overridden(&setting.source), &advice));
    Ok(())
}

/// What is already proposed for `disk`; everything else is tried with it.
fn proposed(found: &Found, server: &Server, disk: &Disk) -> Vec<Value> {
    let is_of_disk = |name: &String| {
        let mut here = disk.tablespaces.iter().filter_map(|oid| server.tablespace(*oid));
        here.any(|it| it.name == *name)
    };
    let is_here = |it: &&Proposal| {
        it.advice.setting == EFFECTIVE && it.tablespace.as_ref().map_or(disk.is_main, is_of_disk)
    };
    let proposed = found.proposals.iter().find(is_here);
    proposed.map(|it| (EFFECTIVE.to_owned(), it.advice.advised.clone())).into_iter().collect()
}

/// Keeps --apply from setting a value that would also apply to tablespaces on other `disks`, where it was not proved:
/// the server's value applies to all tablespaces without their own.
fn spare(tablespaces: &[Tablespace], disks: &[Disk], proposals: &mut [Proposal]) {
    let others: Vec<u32> =
        disks.iter().filter(|it| !it.is_main).flat_map(|it| it.tablespaces.clone()).collect();
    for it in proposals.iter_mut().filter(|it| it.tablespace.is_none()) {
        let Advice { setting, current, .. } = &it.advice;
        if ![EFFECTIVE, RANDOM].contains(&setting.as_str()) {
            continue;
        }
        let is_bare =
            |one: &&Tablespace| others.contains(&one.oid) && !one.own.contains_key(setting);
        let current = current.as_deref().unwrap_or_default();
        let first: Vec<String> = tablespaces
            .iter()
            .filter(is_bare)
            .map(|one| format!("ALTER TABLESPACE {} SET ({setting} = {current})", one.name))
            .collect();
        if !first.is_empty() {
            let why = format!(
                "it would also apply to tablespaces on another disk, where it was not proved; first keep their \
                 present value with {}",
                first.join(", ")
            );
            it.not_applied.get_or_insert(why);
        }
    }
}

/// Proposals of what was proved on `disk`: for the whole server only if that is the main one; otherwise for its
/// tablespaces, except those with a value of their own, whose tables were left out.
fn placed(
    tablespaces: &[Tablespace],
    disk: &Disk,
    overridden: Option<String>,
    advice: &Advice,
) -> Vec<Proposal> {
    let proposal = |tablespace, not_applied| Proposal {
        tablespace,
        proved: true,
        not_applied,
        advice: advice.clone(),
    };
    if disk.is_main {
        return vec![proposal(None, overridden)];
    }
    let why = "it is a tablespace's own setting, which --apply leaves alone";
    let is_here = |it: &&Tablespace| {
        disk.tablespaces.contains(&it.oid) && !it.own.contains_key(&advice.setting)
    };
    let here = tablespaces.iter().filter(is_here);
    here.map(|it| proposal(Some(it.name.clone()), Some(why.to_owned()))).collect()
}

/// Tries the extension, if it is installed and not loaded already.
fn extension(
    args: &PostgresArgs,
    config: &Config,
    site: &mut Site<'_>,
    disk: &Disk,
    queries: &mut [Query],
    found: &mut Found,
) -> anyhow::Result<()> {
    let server = site.server;
    let Some(preloaded) = server.setting(PRELOAD).filter(|_| server.setting(ENABLED).is_none())
    else {
        return Ok(());
    };
    // In a separate session, because a loaded library stays loaded.
    let mut connection = Connection::open(config)?;
    if refusal(connection.rows("load 'forebay'"))?.is_err() {
        return Ok(());
    }
    if let Some(given) = &mut site.given
        && let Err(why) = refusal(given.rows("load 'forebay'"))?
    {
        site.remark(format!("The extension forebay is not tried by your queries: {why}."));
        return Ok(());
    }
    std::mem::swap(&mut site.connection, &mut connection);
    let others = proposed(found, server, disk);
    let change = ["off", "on"].map(|value| (ENABLED.to_owned(), value.to_owned()));
    let mut progress = Progress::new(u64::from(args.rounds) * 2 * queries.len() as u64);
    let [off, on] = &change;
    let proof = site.prove(
        (applies_to(server), &others),
        [off, on],
        (queries, USING_EXTENSION),
        args.rounds,
        &mut progress,
    )?;
    std::mem::swap(&mut site.connection, &mut connection);
    let Some(advice) = kept(proof, on, found) else { return Ok(()) };
    let before = preloaded.value.as_str();
    let advised =
        if before.is_empty() { "forebay".to_owned() } else { format!("{before}, forebay") };
    let advice =
        Advice { setting: PRELOAD.to_owned(), current: Some(before.to_owned()), advised, ..advice };
    found.proposals.push(Proposal {
        tablespace: None,
        proved: true,
        not_applied: overridden(&preloaded.source),
        advice,
    });
    Ok(())
}

const COMBINE: &str = "io_combine_limit";
const COMBINE_MAX: &str = "io_max_combine_limit";
/// Its maximum, in blocks.
const COMBINE_MOST: u64 = 128;
const DISTANCE: &str = "forebay.distance_max";
const PRELOAD: &str = "session_preload_libraries";
const ENABLED: &str = "forebay.enabled";

/// A remark that larger requests were better up to `limit`, the maximum that a session may set.
fn larger(limit: &Setting) -> Option<String> {
    let blocks = limit.value.parse::<u64>().ok().filter(|it| *it < COMBINE_MOST)?;
    let advised = (4 * blocks).min(COMBINE_MOST) * 8;
    Some(format!(
        "{COMBINE_MAX} = '{advised}kB' is worth trying: in the search, larger values of {COMBINE} were faster up to \
         {}, the limit that {COMBINE_MAX} sets. Changing that needs a restart; measure again afterwards.",
        shown_size(blocks * 8192)
    ))
}

/// The advice of a proof; if there is none, a remark says why.
fn kept(proof: Proof, (setting, value): &Value, found: &mut Found) -> Option<Advice> {
    if proof.advice.is_none() {
        let harmed = proof.verdicts.iter().find(|it| it.verdict == Judgement::Misses);
        let gains = proof.verdicts.iter().filter(|it| it.ratio.low > 1.0 / BOUND);
        let gains = gains.max_by(|a, b| a.ratio.value.total_cmp(&b.ratio.value));
        let why = match (harmed, gains) {
            (Some(it), Some(gains)) => format!(
                "{} becomes significantly slower ({:.2} of its speed), and {} {:.2} times as fast; weigh these \
                 yourself",
                it.row, it.ratio.value, gains.row, gains.ratio.value
            ),
            (Some(it), None) => format!("{} becomes significantly slower", it.row),
            _ => "the queries that use it did not gain significantly (more than 5 %)".to_owned(),
        };
        found.remarks.push(format!("{setting} = {value} is not proposed: {why}."));
    }
    found.verdicts.extend(proof.verdicts);
    proof.advice
}

/// Why ALTER SYSTEM has no effect on a setting whose value comes from `source`.
pub(super) fn overridden(source: &str) -> Option<String> {
    let counts = matches!(source, "default" | "configuration file");
    (!counts).then(|| format!("its value comes from: {source}, which hides what ALTER SYSTEM sets"))
}

/// Proposals from the measurement of `disk` that no query can prove.
fn unproved(server: &Server, disk: &Disk) -> Vec<Proposal> {
    let settings = [
        (MAINTENANCE, "no read-only statement uses it"),
        ("io_workers", "it cannot be set for a session"),
        ("wal_sync_method", "no read-only statement uses it"),
        ("read_ahead_kb", "it is a setting of the block device, not of PostgreSQL"),
    ];
    let proposal = |(name, why): (&str, &str)| {
        if name == "wal_sync_method" && !server.has_wal_next_to_data() {
            return None;
        }
        let advice = disk.advice(server, name)?.clone();
        // The laboratory compares with the default, which may differ from the present value.
        let current = match server.setting(name) {
            Some(setting) if Some(&setting.value) != advice.current.as_ref() => return None,
            Some(setting) => Some(setting.value.clone()),
            None => advice.current.clone(),
        };
        Some(disk.unproved(why, Advice { current, ..advice }))
    };
    let settings = settings.into_iter().filter(|_| disk.is_main);
    let spread = server.setting(COMPLETION).filter(|_| disk.is_main);
    settings.filter_map(proposal).chain(spread.and_then(|set| counts::spread(set, disk))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_place_sets_is_not_set_by_alter_system() {
        assert_eq!((overridden("default"), overridden("configuration file")), (None, None));
        for source in ["command line", "database", "user", "client", "environment variable"] {
            assert!(overridden(source).is_some_and(|why| why.contains(source)), "{source}");
        }
    }

    #[test]
    fn what_bars_larger_requests_is_reported_until_nothing_is_larger() {
        let limit = |value: &str| Setting { value: value.to_owned(), ..Setting::default() };
        let text = larger(&limit("16")).unwrap();
        assert!(
            text.starts_with("io_max_combine_limit = '512kB'") && text.contains("128.0 KiB"),
            "{text}"
        );
        assert!(larger(&limit("64")).unwrap().contains("'1024kB'"));
        assert_eq!(larger(&limit("128")), None);
    }

    #[test]
    fn what_is_proved_on_another_disk_is_for_its_tablespaces_without_a_value_of_their_own() {
        let setting = forebay_measure::report::sample::advice()[0].setting.clone();
        let tablespace = |oid, name: &str, own: Option<&str>| Tablespace {
            oid,
            name: name.to_owned(),
            directory: None,
            own: own.map(|own| (setting.clone(), own.to_owned())).into_iter().collect(),
            storage: None,
        };
        let all = [
            tablespace(1663, "pg_default", None),
            tablespace(2, "fast", None),
            tablespace(3, "own", Some("1")),
        ];
        let on = |is_main, tablespaces: &[u32]| {
            let name = "vdb".to_owned();
            let tablespaces = tablespaces.to_vec();
            let disk = Disk { name, tablespaces, is_main, room: Err(None), report: None };
            let proposals =
                placed(&all, &disk, None, &forebay_measure::report::sample::advice()[0]);
            proposals
                .into_iter()
                .map(|it| (it.tablespace, it.not_applied.is_some()))
                .collect::<Vec<_>>()
        };
        assert_eq!(on(false, &[2, 3]), [(Some("fast".to_owned()), true)]);
        assert_eq!(on(true, &[1663]), [(None, false)]);
    }

    #[test]
    fn what_would_count_on_another_disk_too_is_not_set_for_the_server() {
        let tablespace = |oid, name: &str, own: &[&str]| Tablespace {
            oid,
            name: name.to_owned(),
            directory: None,
            own: own.iter().map(|own| (EFFECTIVE.to_owned(), (*own).to_owned())).collect(),
            storage: None,
        };
        let disk = |is_main, tablespaces: &[u32]| {
            let (name, tablespaces) = ("vdb".to_owned(), tablespaces.to_vec());
            Disk { name, tablespaces, is_main, room: Err(None), report: None }
        };
        let why = |own: &[&str], setting: &str| {
            let advice = Advice {
                setting: setting.to_owned(),
                current: Some("1".to_owned()),
                ..forebay_measure::report::sample::advice()[0].clone()
            };
            let mut proposals =
                [Proposal { tablespace: None, proved: true, not_applied: None, advice }];
            let all = [tablespace(1663, "pg_default", &[]), tablespace(2, "slow", own)];
            spare(&all, &[disk(true, &[1663]), disk(false, &[2])], &mut proposals);
            proposals[0].not_applied.clone()
        };
        let first = "ALTER TABLESPACE slow SET (effective_io_concurrency = 1)";
        assert!(why(&[], EFFECTIVE).is_some_and(|why| why.ends_with(first)));
        assert_eq!(why(&["4"], EFFECTIVE), None, "it has its own");
        assert_eq!(why(&[], COMBINE), None, "no tablespace has one");
    }
}
