//! Inspects the server: its version, settings, tablespaces with the disks under them, memory and tables.
//!
//! Each role and each host sees a part of this. What cannot be seen is left out, and reported in [`Server::missing`].
//!
//! Source:      PostgreSQL's documentation, "System Views", for pg_settings.source and pg_file_settings.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context;
use postgres::Client;
use serde::{Deserialize, Serialize};

use forebay_measure::bad_input;
use forebay_measure::facts::{Host, Storage};
use forebay_session::{Config, Connection, Refused, Row, is_local, rows};

/// Settings that are read: those that may be advised, and those that a measurement depends on.
const SETTINGS: [&str; 26] = [
    EFFECTIVE,
    MAINTENANCE,
    RANDOM,
    SEQUENTIAL,
    "cpu_tuple_cost",
    "cpu_operator_cost",
    "shared_buffers",
    "effective_cache_size",
    "io_method",
    "io_workers",
    "io_combine_limit",
    "io_max_combine_limit",
    "huge_pages",
    "wal_sync_method",
    "max_wal_size",
    "wal_segment_size",
    "checkpoint_timeout",
    "checkpoint_completion_target",
    "checkpoint_flush_after",
    "bgwriter_delay",
    "bgwriter_lru_maxpages",
    "bgwriter_lru_multiplier",
    "shared_memory_size_in_huge_pages",
    "forebay.distance_max",
    "session_preload_libraries",
    "forebay.enabled",
];
pub(super) const COMPLETION: &str = "checkpoint_completion_target";
pub(super) const METHOD: &str = "io_method";
pub(super) const EFFECTIVE: &str = "effective_io_concurrency";
pub(super) const RANDOM: &str = "random_page_cost";
pub(super) const SEQUENTIAL: &str = "seq_page_cost";
pub(super) const MAINTENANCE: &str = "maintenance_io_concurrency";

/// The default of [`COMPLETION`] since 14.
pub(super) const COMPLETION_DEFAULT: f64 = 0.9;

/// PostgreSQL's methods, and the laboratory's backends that read in the same way.
pub(super) const METHODS: [(&str, &str); 3] =
    [("worker", "threads"), (URING, "uring"), ("sync", "sync")];
pub(super) const URING: &str = "io_uring";

/// OID of pg_default.
pub(super) const DEFAULT_TABLESPACE: u32 = 1663;

/// Smaller tables, in blocks, are no evidence about a disk.
const TABLE_BLOCKS_MIN: u64 = 512;
/// How many of the largest tables are inspected.
const TABLES_MAX: usize = 20;

/// The results of the inspection.
#[derive(Debug, Serialize)]
pub(super) struct Server {
    /// As the server reports it, such as `15.14 (Debian 15.14-0+deb12u1)`.
    pub(super) version: String,
    pub(super) major: u32,
    pub(super) identity: Identity,
    pub(super) database: String,
    pub(super) superuser: bool,
    pub(super) standby: bool,
    /// Whether this role may see what other sessions do.
    pub(super) sees_load: bool,
    /// Whether its files are on this machine.
    pub(super) local: bool,
    pub(super) data_directory: Option<PathBuf>,
    /// Of the machine, in bytes.
    pub(super) memory_bytes: Option<u64>,
    /// How much of it the server's control group may use, in bytes.
    pub(super) memory_limit_bytes: Option<u64>,
    pub(super) settings: Vec<Setting>,
    pub(super) tablespaces: Vec<Tablespace>,
    /// The largest tables that this role may read, largest first.
    pub(super) tables: Vec<Table>,
    /// Version of the extension `forebay`: installed in this database, and available to it.
    pub(super) forebay: [Option<String>; 2],
    /// The schema of pg_buffercache, if it can evict pages (from 17 on, for superusers).
    pub(super) evicts_by: Option<String>,
    /// What is not possible here, and why.
    pub(super) missing: Vec<String>,
}

/// Identifies a server. A standby has its primary's system identifier, and often its port and directory.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Identity {
    pub(super) system_identifier: String,
    pub(super) port: String,
    /// As the server reports it, if this role may see it.
    data_directory: Option<String>,
    /// The address of the connection, or the directories of the server's sockets, if this role may see them.
    address: Option<String>,
    standby: bool,
}

/// Query for what distinguishes servers. pg_settings omits what a role may not see.
const IDENTITY: &str = "select (select system_identifier from pg_control_system()), current_setting('port'), \
     (select setting from pg_settings where name = 'data_directory'), \
     coalesce(host(inet_server_addr()), (select setting from pg_settings where name = 'unix_socket_directories')), \
     pg_is_in_recovery()";

impl Identity {
    fn of(row: &Row) -> Identity {
        Identity {
            system_identifier: row.text(0).to_owned(),
            port: row.text(1).to_owned(),
            data_directory: row.some(2),
            address: row.some(3),
            standby: row.is_true(4),
        }
    }

    /// The server that `client` is connected to.
    ///
    /// # Errors
    /// A server error.
    pub(super) fn read(client: &mut Client) -> anyhow::Result<Identity> {
        let rows = rows(client, IDENTITY)?;
        Ok(Identity::of(rows.first().context("the server does not say who it is")?))
    }

    /// How `other` differs, in words, if it is another server; none if nothing shows that.
    pub(super) fn differs(&self, other: &Identity) -> Option<String> {
        let role = |it: &Identity| if it.standby { "a standby" } else { "no standby" }.to_owned();
        let parts = |it: &Identity| {
            [
                ("system identifier", Some(it.system_identifier.clone())),
                ("port", Some(it.port.clone())),
                ("data directory", it.data_directory.clone()),
                ("address", it.address.clone()),
                ("state", Some(role(it))),
            ]
        };
        let both = parts(self).into_iter().zip(parts(other));
        both.into_iter().find_map(|((what, one), (_, other))| {
            let (one, other) = (one?, other?);
            (one != other).then(|| format!("its {what} is {one}, and here it is {other}"))
        })
    }
}

/// A setting, with its value in this session.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Setting {
    pub(super) name: String,
    pub(super) value: String,
    pub(super) unit: String,
    /// Where the value comes from, such as `default`, `configuration file`, `command line`, `database`.
    pub(super) source: String,
    /// When it may be changed, such as `user`, `sighup`, `postmaster`.
    pub(super) context: String,
    pub(super) file: Option<String>,
    /// The values that this server knows, if the setting is an enum.
    pub(super) choices: Vec<String>,
}

/// A tablespace and its location.
#[derive(Debug, Serialize)]
pub(super) struct Tablespace {
    pub(super) oid: u32,
    pub(super) name: String,
    pub(super) directory: Option<PathBuf>,
    /// Its own settings, which take precedence over the server's.
    pub(super) own: BTreeMap<String, String>,
    pub(super) storage: Option<Storage>,
}

/// A table that may be read.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Table {
    pub(super) oid: u32,
    /// Schema-qualified and quoted.
    pub(super) name: String,
    pub(super) tablespace: u32,
    pub(super) blocks: u64,
    pub(super) rows: f64,
    /// Relative to the data directory.
    pub(super) file: Option<PathBuf>,
    pub(super) index: Option<Index>,
}

/// A plain b-tree on a column whose type allows generated ranges.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Index {
    pub(super) oid: u32,
    pub(super) name: String,
    pub(super) file: Option<PathBuf>,
    /// Its first column, quoted, and that column's type.
    pub(super) column: String,
    pub(super) kind: String,
    /// How far the order of the rows follows the index, 0 to 1.
    pub(super) correlation: f64,
    /// Whether each value has one row or a few.
    pub(super) distinct: bool,
    /// Histogram bounds: equally many rows lie between any two neighbours.
    pub(super) bounds: Vec<String>,
}

impl Server {
    /// Inspects everything.
    ///
    /// # Errors
    /// [`BadInput`](forebay_measure::BadInput) for a version other than 14 to 18; a server error, or an interruption.
    pub(super) fn read(
        connection: &mut Connection,
        config: &Config,
        data: Option<&Path>,
    ) -> anyhow::Result<Server> {
        let row = connection.row(
            "select current_setting('server_version_num')::int / 10000, current_setting('server_version'), \
             pg_is_in_recovery(), rolsuper, current_setting('data_directory', true), current_database(), \
             extract(epoch from pg_postmaster_start_time())::bigint \
             from pg_roles where rolname = current_user",
        );
        let row = match row {
            // Only superusers and members of pg_read_all_settings see data_directory.
            Err(error) if is_refusal(&error, "42501") => connection.row(
                "select current_setting('server_version_num')::int / 10000, current_setting('server_version'), \
                 pg_is_in_recovery(), false, null, current_database(), \
                 extract(epoch from pg_postmaster_start_time())::bigint",
            )?,
            row => row?,
        };
        let version = row.text(1).to_owned();
        let major = row.number(0).unwrap_or(0);
        if !(14..=18).contains(&major) {
            bad_input!("the server is PostgreSQL {version}; this command knows 14 to 18");
        }
        let mut missing = Vec::new();
        let data_directory = data.map(Path::to_owned).or_else(|| row.some(4).map(PathBuf::from));
        let local = is_local(config).then_some(()).ok_or("it is on another machine");
        let local = local.and_then(|()| match &data_directory {
            None => Err("this role may not see where its files are (name them with --data-dir, or be a superuser)"),
            Some(directory) => is_of(directory, row.number(6)),
        });
        if let Err(why) = local {
            missing.push(format!("The disks are not looked at: {why}."));
        }
        let mut server = Server {
            version,
            major,
            standby: row.is_true(2),
            superuser: row.is_true(3),
            sees_load: connection
                .row("select pg_has_role('pg_read_all_stats', 'usage')")?
                .is_true(0),
            identity: Identity::of(&connection.row(IDENTITY)?),
            database: row.text(5).to_owned(),
            local: local.is_ok(),
            data_directory,
            memory_bytes: None,
            memory_limit_bytes: None,
            settings: settings(connection)?,
            tablespaces: Vec::new(),
            tables: tables(connection)?,
            forebay: [None, None],
            evicts_by: None,
            missing,
        };
        let forebay = "select installed_version, default_version from pg_available_extensions where name = 'forebay'";
        if let Some(row) = connection.rows(forebay)?.first() {
            server.forebay = [row.some(0), row.some(1)];
        }
        if server.major >= 17 && server.superuser {
            let schema = "select quote_ident(nspname) from pg_extension e join pg_namespace n on n.oid = extnamespace \
                          where extname = 'pg_buffercache'";
            server.evicts_by = connection.rows(schema)?.first().and_then(|row| row.some(0));
        }
        server.look_at_disks(connection)?;
        if server.local {
            server.memory_bytes = Host::read().memory_bytes;
            server.memory_limit_bytes = server.data_directory.as_deref().and_then(memory_limit);
        }
        if server.standby {
            server.missing.push(
                "The server is a standby: what is advised here is for its own queries.".to_owned(),
            );
        }
        if !server.superuser {
            let what = "This role is no superuser: --apply may be refused, and tables that it may not read are left out.";
            server.missing.push(what.to_owned());
        }
        if !server.sees_load {
            let what = "The load is not watched: this role may not see what others do (pg_read_all_stats): choose a \
                        quiet hour.";
            server.missing.push(what.to_owned());
        }
        if server.tables.is_empty() {
            let what = format!(
                "No table of 4 MiB or more that this role may read is in the database {}: connect to another one, or ANALYZE it, since sizes \
                 are taken from its statistics.",
                server.database
            );
            server.missing.push(what);
        }
        Ok(server)
    }

    /// A setting, if this version has it.
    pub(super) fn setting(&self, name: &str) -> Option<&Setting> {
        self.settings.iter().find(|setting| setting.name == name)
    }

    /// The laboratory's backends for a disk of this server: hints up to 17, then those for the methods it was built
    /// with.
    pub(super) fn backends(&self) -> Vec<&'static str> {
        let Some(setting) = self.setting(METHOD) else { return vec!["sync"] };
        let is_there = |(method, _): &&(&str, &str)| setting.choices.iter().any(|it| it == method);
        METHODS.iter().filter(is_there).map(|(_, backend)| *backend).collect()
    }

    /// The tablespace with this OID.
    pub(super) fn tablespace(&self, oid: u32) -> Option<&Tablespace> {
        self.tablespaces.iter().find(|tablespace| tablespace.oid == oid)
    }

    /// Whether its WAL is on the filesystem of its tables, if that can be determined.
    pub(super) fn has_wal_next_to_data(&self) -> bool {
        let directory = self.data_directory.as_ref().filter(|_| self.local);
        let device = |name: &str| Some(fs::metadata(directory?.join(name)).ok()?.dev());
        device("pg_wal").is_some_and(|wal| device("base") == Some(wal))
    }

    fn look_at_disks(&mut self, connection: &mut Connection) -> anyhow::Result<()> {
        let found = connection.rows(
            "select oid, quote_ident(spcname), pg_tablespace_location(oid), array_to_string(spcoptions, ' ') \
             from pg_tablespace where spcname <> 'pg_global' order by oid",
        )?;
        for row in found {
            let directory = row
                .some(2)
                .map(PathBuf::from)
                .or_else(|| Some(self.data_directory.as_ref()?.join("base")));
            let directory = directory.filter(|_| self.local);
            // A directory that may not be entered is assumed to be on the disk of its parent.
            let storage = directory.as_ref().and_then(|directory| {
                directory.ancestors().take(2).find_map(|path| Storage::read(path).ok())
            });
            if let (Some(directory), None) = (&directory, &storage) {
                self.missing.push(format!(
                    "The disk under {} cannot be seen by this user.",
                    directory.display()
                ));
            }
            self.tablespaces.push(Tablespace {
                oid: row.number(0).unwrap_or(0),
                name: row.text(1).to_owned(),
                directory,
                own: row.text(3).split(' ').filter_map(option).collect(),
                storage,
            });
        }
        Ok(())
    }
}

/// An option of a tablespace, `name=value`.
fn option(text: &str) -> Option<(String, String)> {
    text.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()))
}

fn is_refusal(error: &anyhow::Error, code: &str) -> bool {
    error.downcast_ref::<Refused>().is_some_and(|refused| refused.code == code)
}

/// Whether the files in `directory` are those of the server with the start time `started`, if that can be determined.
fn is_of(directory: &Path, started: Option<i64>) -> Result<(), &'static str> {
    if !directory.is_dir() {
        return Err("its data directory is not on this machine");
    }
    // Its third line is the postmaster's start time in seconds. Only the server's user may read it.
    let Ok(text) = fs::read_to_string(directory.join("postmaster.pid")) else { return Ok(()) };
    let written = text.lines().nth(2).and_then(|line| line.trim().parse::<i64>().ok());
    match (written, started) {
        (Some(written), Some(started)) if (written - started).abs() > 5 => {
            Err("another server's files are in that directory on this machine")
        }
        _ => Ok(()),
    }
}

/// How much memory the control group of the server whose files are in `directory` may use, in bytes.
fn memory_limit(directory: &Path) -> Option<u64> {
    let text = fs::read_to_string(directory.join("postmaster.pid")).ok()?;
    let process = text.lines().next()?.trim().parse::<u32>().ok()?;
    let groups = fs::read_to_string(format!("/proc/{process}/cgroup")).ok()?;
    let group = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let group = Path::new("/sys/fs/cgroup").join(group);
    let limit = |path: &Path| fs::read_to_string(path.join("memory.max")).ok()?.trim().parse().ok();
    group.ancestors().filter_map(limit).min()
}

fn settings(connection: &mut Connection) -> anyhow::Result<Vec<Setting>> {
    let names = SETTINGS.map(|name| format!("'{name}'")).join(",");
    let rows = connection.rows(&format!(
        "select name, setting, unit, source, context, sourcefile, array_to_string(enumvals, ' ') \
         from pg_settings where name in ({names})"
    ))?;
    let setting = |row: &Row| Setting {
        name: row.text(0).to_owned(),
        value: row.text(1).to_owned(),
        unit: row.text(2).to_owned(),
        source: row.text(3).to_owned(),
        context: row.text(4).to_owned(),
        file: row.some(5),
        choices: row.text(6).split_whitespace().map(str::to_owned).collect(),
    };
    Ok(rows.iter().map(setting).collect())
}

/// The server calls a function in the predicate or expression of an index, a constraint or a statistics object when it
/// plans a query on the table `c`, with the rights of this session: true if any role may have created such a function.
const CALLS_OTHERS: &str = "exists (select from pg_depend d \
     join pg_proc f on f.oid = case d.refclassid when 'pg_proc'::regclass then d.refobjid \
          when 'pg_operator'::regclass then (select oprcode from pg_operator o where o.oid = d.refobjid) end \
     join pg_language l on l.oid = f.prolang and l.lanname not in ('internal', 'c') \
     where d.classid = 'pg_class'::regclass and d.objid in (select indexrelid from pg_index x where x.indrelid = c.oid) \
     or d.classid = 'pg_constraint'::regclass and d.objid in (select k.oid from pg_constraint k where k.conrelid = c.oid) \
     or d.classid = 'pg_statistic_ext'::regclass and d.objid in (select e.oid from pg_statistic_ext e where e.stxrelid = c.oid))";

/// Plain, permanent tables that are not too small, whose rows are all visible to this role, and not [`CALLS_OTHERS`].
fn tables(connection: &mut Connection) -> anyhow::Result<Vec<Table>> {
    let rows = connection.rows(&format!(
        "select c.oid, format('%I.%I', n.nspname, c.relname), coalesce(nullif(c.reltablespace, 0), d.dattablespace), \
         c.relpages, c.reltuples, pg_relation_filepath(c.oid) \
         from pg_class c join pg_namespace n on n.oid = c.relnamespace \
         join pg_database d on d.datname = current_database() \
         where c.relkind in ('r', 'm') and c.relpersistence = 'p' and not c.relrowsecurity and c.relispopulated \
         and c.relpages >= {TABLE_BLOCKS_MIN} and c.reltuples > 0 \
         and n.nspname not in ('pg_catalog', 'information_schema') and n.nspname not like 'pg\\_toast%' \
         and has_schema_privilege(n.oid, 'usage') and has_table_privilege(c.oid, 'select') \
         and not c.relhassubclass and not {CALLS_OTHERS} order by c.relpages desc, c.oid limit {TABLES_MAX}"
    ))?;
    let mut tables = Vec::new();
    for row in rows {
        let oid = row.number(0).unwrap_or(0);
        tables.push(Table {
            oid,
            name: row.text(1).to_owned(),
            tablespace: row.number(2).unwrap_or(0),
            blocks: row.number(3).unwrap_or(0),
            rows: row.number(4).unwrap_or(0.0),
            file: row.some(5).map(PathBuf::from),
            index: index(connection, oid)?,
        });
    }
    Ok(tables)
}

/// The index of the table whose order is furthest from that of the rows.
fn index(connection: &mut Connection, table: u32) -> anyhow::Result<Option<Index>> {
    let rows = connection.rows(&format!(
        "select i.oid, format('%I.%I', n.nspname, i.relname), pg_relation_filepath(i.oid), quote_ident(a.attname), \
         t.typname, abs(coalesce(s.correlation, 1)), s.n_distinct < -0.1 or s.n_distinct > 10000 \
         from pg_index x join pg_class i on i.oid = x.indexrelid join pg_am m on m.oid = i.relam \
         join pg_class c on c.oid = x.indrelid join pg_namespace n on n.oid = c.relnamespace \
         join pg_attribute a on a.attrelid = c.oid and a.attnum = x.indkey[0] \
         join pg_type t on t.oid = a.atttypid \
         join pg_stats s on s.schemaname = n.nspname and s.tablename = c.relname and s.attname = a.attname \
              and not s.inherited \
         where x.indrelid = {table} and s.histogram_bounds is not null and x.indisvalid and x.indpred is null and x.indkey[0] > 0 \
         and m.amname = 'btree' and t.typnamespace = 'pg_catalog'::regnamespace and t.typname in ('int2', 'int4', 'int8', 'numeric', 'date', 'timestamp', 'timestamptz') \
         order by 6, i.oid limit 1"
    ))?;
    let Some(row) = rows.first() else { return Ok(None) };
    let bounds = connection.rows(&format!(
        "select unnest(histogram_bounds::text::text[]) from pg_stats s join pg_class c on c.relname = s.tablename \
         join pg_namespace n on n.oid = c.relnamespace and n.nspname = s.schemaname \
         where c.oid = {table} and quote_ident(s.attname) = '{}' and not s.inherited",
        row.text(3).replace('\'', "''")
    ))?;
    // A table that was dropped meanwhile has no bounds.
    if bounds.len() < 2 {
        return Ok(None);
    }
    Ok(Some(Index {
        oid: row.number(0).unwrap_or(0),
        name: row.text(1).to_owned(),
        file: row.some(2).map(PathBuf::from),
        column: row.text(3).to_owned(),
        kind: row.text(4).to_owned(),
        correlation: row.number(5).unwrap_or(1.0),
        distinct: row.is_true(6),
        bounds: bounds.iter().map(|row| row.text(0).to_owned()).collect(),
    }))
}

/// Whether checkpoints are spread less than by default.
pub(super) fn is_hasty(set: &Setting) -> bool {
    set.value.parse::<f64>().is_ok_and(|it| it < COMPLETION_DEFAULT)
}
