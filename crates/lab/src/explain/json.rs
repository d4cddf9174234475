//! The records of a run as JSON: `forebay-explain/1`.
//!
//! One object, a strategy on each line. `requests` are blocks, `request_bytes` the same requests in
//! bytes, which is more where a request does not begin or end with a block.
//!
//! ```text
//! {"schema":"forebay-explain/1", ..., "pattern":[1,3,2,6,4,9],"strategies":[
//! {"strategy":"willneed","requests":[[1,1],[3,1],[2,1],[6,1],[4,1],[9,1]], ...},
//! {"strategy":"adaptive","requests":[[1,9]], ...}
//! ]}
//! ```

use std::ops::Range;

use serde_json::{Value, json};

use super::request::following;
use super::{Explained, StrategyResult};

/// The schema name written into every file.
const SCHEMA: &str = "forebay-explain/1";

/// The run as JSON, ending in a line feed.
pub(super) fn text(explained: &Explained, command: &str) -> String {
    let Explained { args, pattern, disk, results } = explained;
    let head = json!({
        "schema": SCHEMA,
        "forebay": env!("CARGO_PKG_VERSION"),
        "command": command,
        "kernel": disk.kernel,
        "profile": disk.profile,
        "speed_up": args.speed_up,
        "readahead_bytes": disk.readahead_bytes,
        "block_bytes": args.block_size,
        "distance": args.distance,
        "cache": args.cache.to_string(),
        "typed": pattern.text,
        "seed": pattern.seed,
        "pattern": pattern.blocks,
    });
    let head = head.to_string();
    let strategies: Vec<String> =
        results.iter().map(|it| strategy(explained, it).to_string()).collect();
    // The last field of the object is an array, whose elements get a line each.
    let head = head.trim_end_matches('}');
    format!("{head},\"strategies\":[\n{}\n]}}\n", strategies.join(",\n"))
}

fn strategy(explained: &Explained, result: &StrategyResult) -> Value {
    let account = &result.account;
    let pair = |range: Range<u64>| [range.start, range.end - range.start];
    let requests = account.requests.iter();
    json!({
        "strategy": result.strategy.to_string(),
        "requests": requests.clone().map(|it| pair(it.blocks())).collect::<Vec<_>>(),
        "request_bytes": requests.map(|it| pair(it.bytes.clone())).collect::<Vec<_>>(),
        "bytes": account.bytes,
        "over_read": explained.over_read(result),
        "besides_bytes": account.besides_bytes,
        "again_bytes": account.again_bytes,
        "following": following(&account.requests),
        "cached": result.cached,
        "seconds": result.seconds,
        "remarks": result.remark.iter().collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::sample::neighbours;
    use super::*;

    #[test]
    fn the_schema_is_kept_and_requests_are_in_order_of_issue() {
        let text = text(&neighbours(), "forebay");
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["schema"], "forebay-explain/1");
        assert_eq!(value["pattern"], json!([1, 3, 2, 6, 4, 9]));
        let strategies = value["strategies"].as_array().unwrap();
        let names: Vec<&str> =
            strategies.iter().map(|it| it["strategy"].as_str().unwrap()).collect();
        assert_eq!(names, ["os", "random", "max", "willneed", "adaptive"]);
        assert_eq!(
            strategies[3]["requests"],
            json!([[1, 1], [3, 1], [2, 1], [6, 1], [4, 1], [9, 1]])
        );
        assert_eq!(strategies[4]["request_bytes"], json!([[8192, 32768], [49152, 32768]]));
        assert_eq!(strategies[4]["cached"], Value::Null);
        assert_eq!(text.lines().count(), strategies.len() + 2, "a line for each strategy");
    }
}
