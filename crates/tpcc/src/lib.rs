//! TPC-C on [`forebay_btree`]: nine tables and two indexes, a B+tree each, and the five transactions.
//!
//! Scale, columns, keys and mix are those of vmcache's TPC-C, so that the two can be compared: rows have fixed lengths,
//! terminals have no think time, each transaction chooses a warehouse at random, and there are no rollbacks and no
//! isolation beyond that of single operations. With a log, a transaction counts when its commit is durable.
//!
//! | module | main idea |
//! |---|---|
//! | `schema` | tables, keys in the order of their bytes, where the columns of a row are |
//! | `random` | the distributions of the specification |
//! | `store` | the files, with a log or without |
//! | `load` | the initial rows |
//! | `transactions` | a terminal, and what it executes |
//! | `run` | threads of terminals for some seconds, and group commit |
//! | `check` | consistency conditions |
//!
//! Source:      TPC Benchmark C, revision 5.11; the columns' lengths and the mix: github.com/viktorleis/vmcache, tpcc.
#![forbid(unsafe_code)]

mod check;
mod load;
mod random;
mod run;
mod schema;
mod store;
mod transactions;

pub use check::{check, contains, found};
pub use run::{Progress, Run, run};
pub use schema::NAMES;
pub use store::Store;
pub use transactions::Done;
