//! Wrong addresses and credentials, conditions that must hold for concurrent requests, and a bucket that does not
//! exist.

use std::sync::Arc;
use std::time::Duration;

use forebay_object::object_store::path::Path;
use forebay_object::object_store::{ObjectStoreExt, PutMode, PutOptions, UpdateVersion};
use forebay_object::{Bucket, Error, Options, Takeover, open};

use crate::gateway;

fn at(address: &str, variables: Vec<(String, String)>) -> Bucket {
    let (store, prefix) = open(address, variables).unwrap();
    let (attempt_timeout, deadline) = (Duration::from_secs(2), Duration::from_secs(2));
    let options = Options { attempt_timeout, deadline, ..Options::default() };
    Bucket::new(store, &prefix, options).unwrap()
}

#[test]
fn what_is_wrong_with_an_address_or_with_credentials_is_reported_at_once() {
    let Some((address, variables)) = gateway::bucket() else { return };
    at(&address, variables.clone()).create(8192).unwrap();
    let with = |name: &str, value: &str| {
        let mut variables = variables.clone();
        variables.iter_mut().filter(|it| it.0 == name).for_each(|it| it.1 = value.to_owned());
        variables
    };
    for (name, expected) in
        [("AWS_ACCESS_KEY_ID", "access key"), ("AWS_SECRET_ACCESS_KEY", "SignatureDoesNotMatch")]
    {
        let refused = at(&address, with(name, "wrong")).writer(Takeover::Refuse).unwrap_err();
        assert!(matches!(refused, Error::Refused { .. }), "{refused}");
        assert!(refused.to_string().contains(expected), "{refused}");
    }
    let elsewhere = with("AWS_ENDPOINT_URL", "http://127.0.0.1:1");
    let refused = at(&address, elsewhere).reader().unwrap_err();
    assert!(matches!(refused, Error::Unconnected { .. }), "{refused}");
    let refused = at("s3://no-such-bucket/space", variables).create(8192).unwrap_err();
    assert!(matches!(refused, Error::Refused { .. }), "{refused}");
    assert!(refused.to_string().contains("NoSuchBucket"), "{refused}");
}

/// Of many simultaneous replacements on one condition exactly one takes effect: fencing relies on it, and a server that
/// checks first and writes later may get it wrong.
#[test]
fn of_many_that_replace_an_object_at_once_one_does() {
    let Some((address, variables)) = gateway::bucket() else { return };
    let (store, _) = open(&address, variables).unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let winners = runtime.block_on(async {
        let path = Path::from("contended");
        let mut winners = Vec::new();
        let mut tag: UpdateVersion = store.put(&path, "0".into()).await.unwrap().into();
        for round in 0..20 {
            let racers = (0..8).map(|racer| {
                let (store, path) = (Arc::clone(&store), path.clone());
                let mode = PutMode::Update(tag.clone());
                tokio::spawn(async move {
                    let options = PutOptions { mode, ..PutOptions::default() };
                    store.put_opts(&path, format!("{round} {racer}").into(), options).await.ok()
                })
            });
            let racers: Vec<_> = racers.collect();
            let mut won = 0;
            for racer in racers {
                if let Some(done) = racer.await.unwrap() {
                    (won, tag) = (won + 1, done.into());
                }
            }
            winners.push(won);
            tag = UpdateVersion { e_tag: store.head(&path).await.unwrap().e_tag, ..tag };
        }
        winners
    });
    assert_eq!(winners, [1; 20]);
}
