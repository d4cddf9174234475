//! What a server's answers mean: which are an error at once, which are not, and what the error says. Over a server with
//! scripted answers, and addresses without a server.

use std::sync::Arc;
use std::time::Duration;

use forebay_object::{Bucket, Error, Options, PageId, Takeover, open};

use crate::object::pages::{PAGE, commit, pages, states};
use crate::scripted::{Fate, Request, Server, refused};

const ADDRESS: &str = "s3://bucket/space";

/// With a deadline that no test reaches, unless it fails.
fn at(address: &str, variables: &[(String, String)]) -> Bucket {
    let (store, prefix) = open(address, variables.to_vec()).unwrap();
    let (deadline, seed) = (Duration::from_secs(60), Some(1));
    let options = Options { deadline, seed, hedge: false, ..Options::default() };
    Bucket::new(store, &prefix, options).unwrap()
}

fn with(variables: &[(String, String)], name: &str, value: &str) -> Vec<(String, String)> {
    let others = variables.iter().filter(|it| it.0 != name).cloned();
    others.chain([(name.to_owned(), value.to_owned())]).collect()
}

fn all_fails(bucket: &Bucket, expected: impl Fn(&Error) -> bool) {
    let errors = [
        bucket.create(PAGE as u32).unwrap_err(),
        bucket.writer(Takeover::Refuse).map(drop).unwrap_err(),
        bucket.reader().map(drop).unwrap_err(),
    ];
    for error in errors {
        assert!(expected(&error) && !error.is_retryable(), "{error}");
    }
}

#[test]
fn an_answer_that_stays_the_same_ends_an_opening_with_its_first_request() {
    for (status, code) in [
        (301, "PermanentRedirect"),
        (302, "Found"),
        (400, "ExpiredToken"),
        (400, "AuthorizationHeaderMalformed"),
        (401, "Unauthorized"),
        (403, "InvalidAccessKeyId"),
        (404, "InvalidAccessKeyId"),
        (404, "NoSuchBucket"),
        (405, "MethodNotAllowed"),
        (501, "NotImplemented"),
    ] {
        let server = Server::start();
        server.script(move |_| refused(status, code));
        all_fails(&at(ADDRESS, &server.variables()), |error| {
            // The error does not keep a redirect's body.
            let expected = if status < 400 { "region" } else { code };
            matches!(error, Error::Refused { .. }) && error.to_string().contains(expected)
        });
        // A refused reader also deletes the lease that may be there.
        let requests = server.take_log().iter().filter(|it| it.0 == "PUT").count();
        assert_eq!(requests, 3, "{status} {code}");
    }
}

#[test]
fn redirects_that_lead_nowhere_end_an_opening() {
    let server = Server::start();
    server.script(|_| Fate::Answered(302, "location: /again\r\n".to_owned(), String::new()));
    all_fails(&at(ADDRESS, &server.variables()), |error| matches!(error, Error::Refused { .. }));
}

#[test]
fn where_no_server_is_an_opening_ends_at_once() {
    let server = Server::start();
    let label = "x".repeat(64); // longer than a name may be, so that no server gets a query for it
    for (endpoint, why) in [
        ("http://127.0.0.1:1".to_owned(), "Connection refused"),
        (format!("http://{label}.invalid"), "failed to lookup address"),
    ] {
        let variables = with(&server.variables(), "AWS_ENDPOINT_URL", &endpoint);
        all_fails(&at(ADDRESS, &variables), |error| {
            matches!(error, Error::Unconnected { .. }) && error.to_string().contains(why)
        });
    }
}

#[test]
fn without_credentials_an_opening_ends_at_once_and_names_them() {
    let server = Server::start();
    let mut variables = server.variables();
    variables.retain(|it| !it.0.contains("KEY"));
    let variables = with(&variables, "AWS_METADATA_ENDPOINT", "http://127.0.0.1:1");
    all_fails(&at(ADDRESS, &variables), |error| {
        let text = error.to_string();
        matches!(error, Error::Refused { .. }) && text.contains("there are no credentials")
    });
    assert_eq!(server.take_log(), []);
}

/// A server that is overloaded or restarted, and lost answers, in the middle of every operation.
#[test]
fn what_passes_does_not_end_anything() {
    let server = Server::start();
    let mut requests = 0;
    server.script(move |_: &Request| {
        requests += 1;
        match requests % 12 {
            0 => refused(503, "SlowDown"),
            2 => refused(500, "InternalError"),
            4 => refused(429, "TooManyRequests"),
            6 => refused(400, "RequestTimeout"),
            8 => Fate::DoneUnanswered,
            10 => refused(408, "RequestTimeout"),
            _ => Fate::Done,
        }
    });
    let bucket = at(ADDRESS, &server.variables());
    bucket.create(PAGE as u32).unwrap();
    let writer = bucket.writer(Takeover::Refuse).unwrap();
    let file = writer.create_file("table").unwrap();
    commit(&writer, &pages(file, 0..10), 1).unwrap();
    assert_eq!(states(&bucket.reader().unwrap().view(), file, 10).unwrap(), [1; 10]);
    assert!(bucket.stats().retries >= 6, "{:?}", bucket.stats());
}

#[test]
fn a_condition_that_the_store_does_not_have_is_named() {
    let server = Server::start();
    server.script(|request| match request.is_conditional() {
        true => refused(501, "NotImplemented"),
        false => Fate::Done,
    });
    let error = at(ADDRESS, &server.variables()).create(PAGE as u32).unwrap_err();
    assert!(matches!(error, Error::NotConditional { .. }), "{error}");
    assert!(error.to_string().contains("NotImplemented: As the test wants it"), "{error}");
    assert_eq!(server.keys_when_settled(), [""; 0], "the object that it was tried with is deleted");
}

/// A tablespace of ten pages, its writer, and the server.
fn written() -> (Arc<Server>, Bucket, forebay_object::Writer, Vec<PageId>) {
    let server = Server::start();
    let bucket = at(ADDRESS, &server.variables());
    bucket.create(PAGE as u32).unwrap();
    let writer = bucket.writer(Takeover::Refuse).unwrap();
    let file = writer.create_file("table").unwrap();
    let pages = pages(file, 0..10);
    commit(&writer, &pages, 1).unwrap();
    (server, bucket, writer, pages)
}

#[test]
fn a_bucket_that_is_removed_under_a_writer_is_reported_as_that() {
    let (server, bucket, writer, pages) = written();
    let reader = bucket.reader().unwrap();
    server.change(std::collections::BTreeMap::clear);
    server.script(|_| refused(404, "NoSuchBucket"));
    let mut errors = vec![commit(&writer, &pages, 2).unwrap_err(), writer.close().unwrap_err()];
    errors.push(reader.refresh().unwrap_err());
    errors.push(states(&reader.view(), pages[0].file, 10).unwrap_err());
    for error in errors {
        let text = error.to_string();
        assert!(text.contains("NoSuchBucket") && !text.contains("create"), "{text}");
    }
}

/// Its index, at the end, is beyond the end; and its pages end before those that are wanted.
#[test]
fn an_object_that_was_cut_is_corrupt() {
    let (server, bucket, writer, pages) = written();
    server.change(|objects| {
        let data = objects.iter_mut().find(|it| it.0.contains("/data/")).unwrap();
        data.1.0.truncate(100);
    });
    let view = writer.view();
    let errors = [
        view.read(pages[0].file, 0, &mut [0; PAGE]).unwrap_err(),
        view.read(pages[0].file, 9, &mut [0; PAGE]).unwrap_err(),
        bucket.reader().map(drop).unwrap_err(),
    ];
    for error in errors {
        assert!(matches!(error, Error::Corrupt { .. }), "{error}");
    }
}

/// The permissions that a reader needs according to docs/object.md.
#[test]
fn a_reader_puts_and_deletes_its_leases_and_nothing_else() {
    let (server, bucket, _writer, pages) = written();
    server.take_log();
    let reader = bucket.reader().unwrap();
    states(&reader.view(), pages[0].file, 10).unwrap();
    reader.refresh().unwrap();
    reader.close().unwrap();
    let log = server.take_log();
    let is_lease = |key: &str| key.starts_with("space/readers/");
    assert!(log.iter().all(|(method, key)| method == "GET" || is_lease(key)), "{log:?}");
    assert!(log.iter().any(|(method, _)| method == "PUT"), "{log:?}");
    assert!(log.iter().all(|(_, key)| key.starts_with("space/")), "{log:?}");

    server.script(|request| match request.method.as_str() {
        "PUT" => refused(403, "AccessDenied"),
        _ => Fate::Done,
    });
    let (store, prefix) = open(ADDRESS, server.variables()).unwrap();
    let other = Bucket::new(store, &prefix, Options::default()).unwrap();
    let error = other.reader().map(drop).unwrap_err().to_string();
    assert!(error.contains("space/readers/") && error.contains("AccessDenied"), "{error}");
}
