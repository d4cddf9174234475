//! Relations: which PostgreSQL relation a file belongs to.
//!
//! Worked example: `/srv/pg/base/16385/16420.1` is the second gigabyte of the relation whose path the server gives as
//! `base/16385/16420`. The last two components of the path identify it, in other tablespaces as well.

use std::collections::HashMap;
use std::path::Path;

use forebay_measure::interrupt;
use forebay_session::Connection;

const DATABASES: &str = "select datname from pg_catalog.pg_database where datallowconn";

const RELATIONS: &str = "select pg_catalog.pg_relation_filepath(c.oid), n.nspname, c.relname \
    from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace \
    where pg_catalog.pg_relation_filepath(c.oid) is not null";

/// Names of relations by the last two components of the path.
#[derive(Debug, Default)]
pub(super) struct Relations(HashMap<String, String>);

impl Relations {
    /// Queries all databases of the server at `dsn`.
    ///
    /// # Errors
    /// [`BadInput`](forebay_measure::BadInput): it cannot be reached; [`Interrupted`](forebay_measure::interrupt::Interrupted).
    pub(super) fn ask(dsn: &str) -> anyhow::Result<Relations> {
        let mut config = forebay_session::config(Some(dsn), "forebay watch")?;
        if config.get_dbname().is_none() {
            config = config.in_database("postgres");
        }
        let mut names = HashMap::new();
        for database in Connection::open(&config)?.rows(DATABASES)? {
            let config = config.clone().in_database(database.text(0));
            // Files of a database that this role may not connect to keep their numbers as names.
            let Ok(mut connection) = Connection::open(&config) else {
                interrupt::check()?;
                continue;
            };
            for row in connection.rows(RELATIONS)? {
                let [path, schema, name] = [0, 1, 2].map(|column| row.text(column));
                let own = ["public", "pg_catalog", "pg_toast"].contains(&schema);
                let name = if own { name.to_owned() } else { format!("{schema}.{name}") };
                names.insert(tail(path), name);
            }
        }
        Ok(Relations(names))
    }

    /// The relation of the file at `path`, with its fork and its segment of 1 GiB unless these are the first.
    pub(super) fn name(&self, path: &Path) -> Option<String> {
        let tail = tail(&path.to_string_lossy());
        let (tail, segment) = match tail.rsplit_once('.') {
            Some((tail, segment)) if segment.parse::<u32>().is_ok() => {
                (tail, format!(".{segment}"))
            }
            _ => (tail.as_str(), String::new()),
        };
        let fork = ["_fsm", "_vm", "_init"]
            .into_iter()
            .find(|fork| tail.ends_with(fork))
            .unwrap_or_default();
        let name = self.0.get(tail.strip_suffix(fork)?)?;
        Some(format!("{name}{fork}{segment}"))
    }
}

/// The last two components of `path`.
fn tail(path: &str) -> String {
    let mut parts: Vec<&str> = path.rsplit('/').take(2).collect();
    parts.reverse();
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_the_name_of_its_relation_and_says_which_part_it_is() {
        let names = [("base/5/16420", "orders"), ("global/1262", "pg_database")];
        let names = Relations(names.map(|(path, name)| (tail(path), name.to_owned())).into());
        for (path, name) in [
            ("/srv/pg/base/5/16420", Some("orders")),
            ("/srv/pg/base/5/16420.2", Some("orders.2")),
            ("/srv/pg/base/5/16420_vm", Some("orders_vm")),
            ("/mnt/fast/PG_15_202209061/5/16420_fsm.1", Some("orders_fsm.1")),
            ("/srv/pg/global/1262", Some("pg_database")),
            ("/srv/pg/base/5/16421", None),
            ("/srv/pg/base/6/16420", None),
            ("/srv/pg/pg_wal/000000010000000000000001", None),
            ("16420", None),
        ] {
            assert_eq!(names.name(Path::new(path)).as_deref(), name, "{path}");
        }
    }
}
