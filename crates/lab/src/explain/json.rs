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

use serde_json::{Value, json};

use super::request::Account;
use super::{Picture, Told};

/// The schema name written into every file.
const SCHEMA: &str = "forebay-explain/1";

/// The run as JSON, ending in a line feed.
pub(super) fn text(picture: &Picture<'_>) -> String {
    let explained = picture.explained;
    let (pattern, disk) = (&explained.pattern, &explained.disk);
    let head = json!({
        "schema": SCHEMA,
        "forebay": env!("CARGO_PKG_VERSION"),
        "command": explained.command,
        "kernel": disk.kernel,
        "profile": disk.profile,
        "speed_up": disk.speed_up,
        "readahead_bytes": disk.readahead_bytes,
        "block_bytes": explained.block_bytes,
        "distance": explained.distance,
        "cache": explained.cache.to_string(),
        "typed": pattern.text,
        "seed": pattern.seed,
        "pattern": pattern.blocks,
    });
    let mut text = head.to_string();
    // The object goes on with its last field, whose elements get a line each.
    text.pop();
    text.push_str(",\"strategies\":[\n");
    let told: Vec<String> = picture
        .told()
        .map(|(told, account)| strategy(picture, told, account).to_string())
        .collect();
    text.push_str(&told.join(",\n"));
    text.push_str("\n]}\n");
    text
}

fn strategy(picture: &Picture<'_>, told: &Told, account: &Account) -> Value {
    let block_bytes = picture.explained.block_bytes;
    let blocks = |request: &super::Request| {
        let blocks = request.blocks(block_bytes);
        [blocks.start, blocks.end - blocks.start]
    };
    let requests: Vec<[u64; 2]> = told.requests.iter().map(blocks).collect();
    let bytes: Vec<[u64; 2]> =
        told.requests.iter().map(|request| [request.offset, request.len]).collect();
    json!({
        "strategy": told.strategy.name(),
        "requests": requests,
        "request_bytes": bytes,
        "bytes": account.bytes,
        "over_read": picture.over_read(account),
        "besides_bytes": account.besides_bytes,
        "again_bytes": account.again_bytes,
        "following": account.following,
        "cached": told.cached,
        "seconds": told.seconds,
        "remarks": told.remarks,
    })
}

#[cfg(test)]
mod tests {
    use super::super::sample::neighbours;
    use super::*;

    #[test]
    fn the_schema_is_kept_and_requests_are_in_order_of_issue() {
        let explained = neighbours();
        let text = text(&Picture::new(&explained));
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["schema"], "forebay-explain/1");
        assert_eq!(value["pattern"], json!([1, 3, 2, 6, 4, 9]));
        let strategies = value["strategies"].as_array().unwrap();
        let names: Vec<&str> =
            strategies.iter().map(|told| told["strategy"].as_str().unwrap()).collect();
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
