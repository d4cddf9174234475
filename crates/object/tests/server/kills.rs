//! A writer process that is killed at any moment: the data that it had acknowledged is there, whole, and nothing else.
//!
//! `FOREBAY_OBJECT_KILLS` is the number of kills.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;
use std::{env, thread};

use fastrand::Rng;
use forebay_object::{Bucket, Options, Takeover, open};

use crate::gateway;
use crate::object::pages::{PAGE, commit, pages, states};

/// The environment variable with the address, for the process that will be killed.
const ADDRESS: &str = "FOREBAY_OBJECT_ADDRESS";
const BLOCKS: u32 = 300;

fn at(address: &str, variables: impl IntoIterator<Item = (String, String)>) -> Bucket {
    let (store, prefix) = open(address, variables).unwrap();
    let options = Options { object_bytes: 64 << 10, ..Options::default() };
    Bucket::new(store, &prefix, options).unwrap()
}

#[test]
#[ignore = "the process that the other test starts and kills"]
fn commits_until_it_is_killed() {
    let bucket = at(&env::var(ADDRESS).unwrap(), env::vars());
    let writer = bucket.writer(Takeover::Force).unwrap();
    let view = writer.view();
    let file = view.file("table").unwrap();
    let before = states(&view, file, BLOCKS).unwrap()[0];
    drop(view);
    for state in before + 1.. {
        commit(&writer, &pages(file, 0..BLOCKS), state).unwrap();
        // In one piece, so that the other process knows it before anything else happens.
        std::io::stdout().write_all(format!(" {state}\n").as_bytes()).unwrap();
        if state.is_multiple_of(3) {
            writer.maintain().unwrap();
        }
    }
}

#[test]
fn what_a_killed_process_had_acknowledged_is_there_and_nothing_else() {
    let Some((address, variables)) = gateway::bucket() else { return };
    let kills = env::var("FOREBAY_OBJECT_KILLS").map_or(3, |it| it.parse().unwrap());
    let seed = env::var("FOREBAY_SEED").map_or(1, |it| it.parse().unwrap());
    let mut rng = Rng::with_seed(seed);
    let bucket = at(&address, variables.clone());
    bucket.create(PAGE as u32).unwrap();
    let writer = bucket.writer(Takeover::Refuse).unwrap();
    let file = writer.create_file("table").unwrap();
    commit(&writer, &pages(file, 0..BLOCKS), 1).unwrap();
    writer.close().unwrap();
    let mut expected = 1;
    for kill in 0..kills {
        let mut child = Command::new(env::current_exe().unwrap())
            .args(["--exact", "kills::commits_until_it_is_killed", "--ignored", "--nocapture"])
            .envs(variables.clone())
            .env(ADDRESS, &address)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (sender, serials) = mpsc::channel();
        let reading = thread::spawn(move || {
            let state = |line: String| line.split(' ').next_back()?.parse::<u64>().ok();
            for state in lines.map_while(Result::ok).filter_map(state) {
                // The receiver may have ended.
                let _ = sender.send(state);
            }
        });
        // One in four at its start, the others while they commit, merge and delete.
        let first = (kill % 4 > 0).then(|| serials.recv_timeout(Duration::from_secs(60)).unwrap());
        thread::sleep(Duration::from_millis(rng.u64(0..200)));
        child.kill().unwrap();
        child.wait().unwrap();
        reading.join().unwrap();
        let acknowledged = serials.iter().last().or(first).unwrap_or(expected);

        let writer = bucket.writer(Takeover::Force).unwrap();
        let found = states(&writer.view(), file, BLOCKS).unwrap();
        let at = format!("kill {kill}, FOREBAY_SEED={seed}");
        assert!(found.iter().all(|it| *it == found[0]), "{at}: {found:?}");
        // The commit in progress may have taken effect as well.
        assert!(
            (acknowledged..=acknowledged + 1).contains(&found[0]),
            "{at}: {acknowledged} {found:?}"
        );
        while writer.maintain().unwrap().merged > 0 {}
        assert_eq!(bucket_objects(&address, &variables), writer.space().objects, "{at}: leaked");
        expected = found[0];
        writer.close().unwrap();
    }
}

fn bucket_objects(address: &str, variables: &[(String, String)]) -> usize {
    use futures_util::StreamExt;
    let (store, prefix) = open(address, variables.to_vec()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let below = forebay_object::object_store::path::Path::from(prefix).join("data");
    runtime.block_on(store.list(Some(&below)).count())
}
