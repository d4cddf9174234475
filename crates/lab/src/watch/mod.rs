//! `forebay watch`: what a process tree reads and writes, and what it waits for without need.
//!
//! How it goes: `subject` finds or starts the tree, `tracer` has the kernel collect its events, `ring` reads them,
//! `names` adds which file is meant, and `account` keeps the figures, with `foresight` on what could have been known.
//! `told` is the result, drawn once or, on a terminal, by `live` as it goes. From `event` on nothing looks at the
//! system, and the same events give the same account.
//!
//! eBPF was weighed: it would count in the kernel and so cost less, but takes clang to build, and the kernel's type
//! information to run; the events in a ring need neither.

mod account;
mod event;
mod foresight;
mod live;
mod names;
mod relations;
mod ring;
mod subject;
mod told;
mod tracer;

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::cli::WatchArgs;
use crate::interrupt;
use crate::output::{self, tell};
use crate::run;
use account::Account;
use event::What;
use live::Live;
use names::Names;
use relations::Relations;
use subject::Subject;
use told::{Totals, Watched};
use tracer::Tracer;

/// How often events are taken: the buffers last for twice as long at least, at 50,000 requests a second.
const ROUND: Duration = Duration::from_millis(25);

/// How often something is shown.
const SHOWN: Duration = Duration::from_secs(1);

/// Carries it out.
///
/// # Errors
/// [`BadInput`](crate::BadInput), or what went wrong.
pub(crate) fn run(args: &WatchArgs) -> anyhow::Result<()> {
    run::prepare()?;
    if let Some(path) = &args.json {
        output::check_file(path)?;
    }
    // Before anybody is watched: the server's answer would be seen.
    let relations = args.dsn.as_deref().map_or(Ok(Relations::default()), Relations::ask)?;
    let is_live = std::io::stdout().is_terminal();
    let tracer = Tracer::start()?;
    let mut subject = Subject::begin(args, &tracer, is_live)?;
    let page_bytes = rustix::param::page_size() as u64;
    let mut watch = Watch {
        args,
        begun: Instant::now(),
        tracer,
        starter: subject.starter(),
        names: Names::default(),
        account: Account::new(page_bytes),
        relations,
        page_bytes,
    };
    // For what is over before it can be looked up.
    for word in &args.command {
        watch.names.look(Path::new(word));
    }
    let watched = watch.until_the_end(&mut subject, is_live);
    let (status, printed) = subject.end()?;
    watch.rest()?;
    watched?;
    let watched = watch.seen();
    watch.tracer.stop()?;
    let _ = std::io::stderr().write_all(&printed);
    if let Some(status) = status.filter(|status| !status.success()) {
        tell(&format!("the command ended with {status}"));
    }
    let json = args
        .json
        .as_deref()
        .map(|path| output::save(path, &(serde_json::to_string_pretty(&watched)? + "\n")));
    output::print(&watched.drawn(output::look()))?;
    json.unwrap_or(Ok(()))
}

/// A watch that is under way.
struct Watch<'a> {
    args: &'a WatchArgs,
    begun: Instant,
    tracer: Tracer,
    /// A task of ours, whose events are nobody's.
    starter: Option<u32>,
    names: Names,
    account: Account,
    relations: Relations,
    page_bytes: u64,
}

impl Watch<'_> {
    /// Watches until `subject` has ended, the time is over, or the user has enough.
    fn until_the_end(&mut self, subject: &mut Subject, is_live: bool) -> anyhow::Result<()> {
        let mut live = if is_live { Some(Live::begin()?) } else { None };
        let (mut shown, mut before) = (Instant::now(), Totals::default());
        if let Some(live) = &mut live {
            live.draw(&self.seen(), "")?;
        }
        loop {
            let is_over =
                self.args.seconds.is_some_and(|seconds| self.begun.elapsed().as_secs() >= seconds);
            let is_last = is_over || subject.has_ended()? || interrupt::is_requested();
            self.round()?;
            if is_last || live.as_ref().is_some_and(|live| live.is_to_end().unwrap_or(true)) {
                return Ok(());
            }
            if shown.elapsed() >= SHOWN {
                shown += SHOWN;
                let watched = self.seen();
                let totals = watched.totals();
                let line = totals.since(std::mem::replace(&mut before, totals));
                match &mut live {
                    Some(live) => live.draw(&watched, &line)?,
                    None => output::print(&format!("{:>5.0} s  {line}\n", watched.seconds))?,
                }
            }
            std::thread::sleep(ROUND);
        }
    }

    /// Takes what happened since the last round.
    fn round(&mut self) -> anyhow::Result<()> {
        let Watch { tracer, starter, names, account, .. } = self;
        tracer.take(|mut event| {
            let is_of_devices = matches!(event.what, What::Issue { .. } | What::Requeue { .. });
            if *starter == Some(event.task) && !is_of_devices {
                return;
            }
            match &mut event.what {
                What::Enter { descriptor, file, .. } => *file = names.file(event.task, *descriptor),
                What::Closed { descriptor } => names.closed(event.task, *descriptor),
                What::Exec => names.executed(event.task),
                What::Fault { .. } => names.met(event.task),
                What::Submit { device, .. }
                | What::Issue { device, .. }
                | What::Requeue { device, .. } => {
                    *device = names.disk(*device);
                }
                _ => {}
            }
            account.event(&event);
        })
    }

    /// The last of it.
    fn rest(&mut self) -> anyhow::Result<()> {
        self.round()?;
        self.account.end();
        Ok(())
    }

    fn seen(&mut self) -> Watched {
        let mut watched =
            Watched::of(&self.account, &mut self.names, &self.relations, self.page_bytes);
        watched.seconds = self.begun.elapsed().as_secs_f64();
        watched.subject = match self.args {
            WatchArgs { pid: Some(pid), .. } => format!("process {pid}"),
            WatchArgs { service: Some(name), .. } => format!("service {name}"),
            WatchArgs { command, .. } => command.join(" "),
        };
        watched.source = "trace events of the kernel, in an instance of our own".to_owned();
        if !self.tracer.lacking.is_empty() {
            watched.source += &format!(
                "; a newer kernel, or one with more events built in, would also tell: {}",
                self.tracer.lacking.join("; ")
            );
        }
        if self.tracer.dropped > 0 {
            watched.remarks.push(format!(
                "the kernel dropped events in {} places, as they were not taken fast enough: the counts are too low",
                self.tracer.dropped
            ));
        }
        watched
    }
}
