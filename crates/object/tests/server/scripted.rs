//! A small S3 server with scripted answers: one bucket in memory, over plain HTTP on loopback.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

/// A request, as a script sees it.
pub(crate) struct Request {
    pub(crate) method: String,
    /// Below the bucket, without the query.
    pub(crate) key: String,
    query: String,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

impl Request {
    /// Whether it has an If-Match or If-None-Match.
    pub(crate) fn is_conditional(&self) -> bool {
        self.headers.contains_key("if-match") || self.headers.contains_key("if-none-match")
    }
}

/// The fate of a request.
pub(crate) enum Fate {
    /// Processed as a real store does.
    Done,
    /// It takes effect after this time, even if the client does not wait for it.
    DoneAfter(Duration),
    /// It takes effect, and no answer is sent.
    DoneUnanswered,
    /// No effect; the answer is this: a status, more headers, a body.
    Answered(u16, String, String),
}

/// No effect; the answer has this status and an error of this code.
pub(crate) fn refused(status: u16, code: &str) -> Fate {
    let body =
        format!("<Error><Code>{code}</Code><Message>As the test wants it.</Message></Error>");
    Fate::Answered(status, String::new(), body)
}

type Script = Box<dyn FnMut(&Request) -> Fate + Send>;

pub(crate) struct Server {
    port: u16,
    state: Mutex<State>,
    settled: Condvar,
}

struct State {
    script: Script,
    /// Each with the number of its version.
    objects: BTreeMap<String, (Vec<u8>, u64)>,
    versions: u64,
    log: Vec<(String, String)>,
    under_way: usize,
}

impl Server {
    /// It lives as long as the process.
    pub(crate) fn start() -> Arc<Server> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = State {
            script: Box::new(|_| Fate::Done),
            objects: BTreeMap::new(),
            versions: 0,
            log: Vec::new(),
            under_way: 0,
        };
        let server = Arc::new(Server { port, state: Mutex::new(state), settled: Condvar::new() });
        let shared = Arc::clone(&server);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let shared = Arc::clone(&shared);
                thread::spawn(move || shared.serve(&stream));
            }
        });
        server
    }

    /// Those by which it is reached.
    pub(crate) fn variables(&self) -> Vec<(String, String)> {
        let variables = [
            ("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{}", self.port)),
            ("AWS_ACCESS_KEY_ID", "forebay".to_owned()),
            ("AWS_SECRET_ACCESS_KEY", "forebay-secret".to_owned()),
            ("AWS_REGION", "us-east-1".to_owned()),
        ];
        variables.map(|(name, value)| (name.to_owned(), value)).to_vec()
    }

    /// What becomes of requests from now on.
    pub(crate) fn script(&self, script: impl FnMut(&Request) -> Fate + Send + 'static) {
        self.state.lock().unwrap().script = Box::new(script);
    }

    /// Methods and keys of the requests since the last call.
    pub(crate) fn take_log(&self) -> Vec<(String, String)> {
        std::mem::take(&mut self.state.lock().unwrap().log)
    }

    /// Changes the objects behind the clients' backs.
    pub(crate) fn change(&self, change: impl FnOnce(&mut BTreeMap<String, (Vec<u8>, u64)>)) {
        change(&mut self.state.lock().unwrap().objects);
    }

    /// Requests that have come and are not done.
    pub(crate) fn under_way(&self) -> usize {
        self.state.lock().unwrap().under_way
    }

    /// The keys of all objects, once no request is under way.
    pub(crate) fn keys_when_settled(&self) -> Vec<String> {
        let state = self.state.lock().unwrap();
        let state = self.settled.wait_while(state, |it| it.under_way > 0).unwrap();
        state.objects.keys().cloned().collect()
    }

    fn serve(&self, stream: &TcpStream) {
        let mut reader = BufReader::new(stream);
        while let Some(request) = read(&mut reader) {
            let fate = {
                let mut state = self.state.lock().unwrap();
                state.log.push((request.method.clone(), request.key.clone()));
                state.under_way += 1;
                (state.script)(&request)
            };
            let answer = match fate {
                Fate::Answered(status, headers, body) => Some((status, headers, body.into_bytes())),
                Fate::Done => Some(self.state.lock().unwrap().done(&request)),
                Fate::DoneAfter(time) => {
                    thread::sleep(time);
                    Some(self.state.lock().unwrap().done(&request))
                }
                Fate::DoneUnanswered => {
                    let _ = self.state.lock().unwrap().done(&request);
                    None
                }
            };
            self.state.lock().unwrap().under_way -= 1;
            self.settled.notify_all();
            let Some((status, headers, body)) = answer else {
                let _ = stream.shutdown(std::net::Shutdown::Both);
                return;
            };
            let length = body.len();
            let head = format!("HTTP/1.1 {status} It\r\ncontent-length: {length}\r\n{headers}\r\n");
            let mut answer = head.into_bytes();
            answer.extend(body);
            let mut stream = stream;
            if stream.write_all(&answer).is_err() {
                return;
            }
        }
    }
}

fn read(reader: &mut BufReader<&TcpStream>) -> Option<Request> {
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let mut words = line.split_whitespace();
    let (method, target) = (words.next()?.to_owned(), words.next()?);
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let key = path.trim_start_matches('/').split_once('/').map_or("", |it| it.1).to_owned();
    let query = query.replace("%2F", "/");
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.insert(name.to_lowercase(), value.trim().to_owned());
    }
    let mut body = vec![0; headers.get("content-length").map_or(0, |it| it.parse().unwrap())];
    reader.read_exact(&mut body).ok()?;
    Some(Request { method, key, query, headers, body })
}

impl State {
    fn done(&mut self, request: &Request) -> (u16, String, Vec<u8>) {
        let there = self.objects.get(&request.key);
        let tag = |version: u64| format!("\"{version}\"");
        match request.method.as_str() {
            "PUT" => {
                let must_be = request.headers.get("if-match");
                let is_refused = request.headers.contains_key("if-none-match") && there.is_some()
                    || must_be.is_some_and(|it| there.is_none_or(|there| tag(there.1) != *it));
                if is_refused {
                    return (412, String::new(), Vec::new());
                }
                self.versions += 1;
                self.objects.insert(request.key.clone(), (request.body.clone(), self.versions));
                (200, format!("etag: {}\r\n", tag(self.versions)), Vec::new())
            }
            "DELETE" => {
                self.objects.remove(&request.key);
                (204, String::new(), Vec::new())
            }
            "GET" if request.query.contains("list-type=2") => {
                (200, String::new(), self.list(request))
            }
            _ => {
                let Some((bytes, version)) = there else {
                    let body = b"<Error><Code>NoSuchKey</Code></Error>";
                    return (404, String::new(), body.to_vec());
                };
                let mut headers = format!("etag: {}\r\n", tag(*version));
                headers += "last-modified: Thu, 26 Nov 2026 00:00:00 GMT\r\n";
                let Some(range) = request.headers.get("range") else {
                    return (200, headers, bytes.clone());
                };
                let (first, last) = range.trim_start_matches("bytes=").split_once('-').unwrap();
                let first: usize = first.parse().unwrap();
                let end = (last.parse::<usize>().unwrap() + 1).min(bytes.len());
                if first >= bytes.len() {
                    return (
                        416,
                        String::new(),
                        b"<Error><Code>InvalidRange</Code></Error>".to_vec(),
                    );
                }
                let all = bytes.len();
                headers += &format!("content-range: bytes {first}-{}/{all}\r\n", end - 1);
                (206, headers, bytes[first..end].to_vec())
            }
        }
    }

    fn list(&self, request: &Request) -> Vec<u8> {
        let set = |name: &str| request.query.split('&').find_map(|it| it.strip_prefix(name));
        let (prefix, delimiter) = (set("prefix=").unwrap_or(""), set("delimiter="));
        let (mut contents, mut prefixes) = (String::new(), std::collections::BTreeSet::new());
        for (key, (bytes, version)) in self.objects.range(prefix.to_owned()..) {
            let Some(rest) = key.strip_prefix(prefix) else { break };
            match rest.split_once('/').filter(|_| delimiter.is_some()) {
                Some((directory, _)) => _ = prefixes.insert(format!("{prefix}{directory}/")),
                None => {
                    contents += &format!(
                        "<Contents><Key>{key}</Key><Size>{}</Size><ETag>\"{version}\"</ETag>\
                         <LastModified>2026-11-26T00:00:00.000Z</LastModified></Contents>",
                        bytes.len()
                    );
                }
            }
        }
        for it in prefixes {
            contents += &format!("<CommonPrefixes><Prefix>{it}</Prefix></CommonPrefixes>");
        }
        let list = format!(
            "<ListBucketResult><IsTruncated>false</IsTruncated>{contents}</ListBucketResult>"
        );
        list.into_bytes()
    }
}
