//! The decisions of look-ahead on one thread, from the events of `tracing`.

use std::cell::RefCell;
use std::fmt::Debug;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// One event.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Decision {
    pub(crate) stream: u64,
    pub(crate) file: u64,
    pub(crate) first: u32,
    pub(crate) blocks: u32,
    pub(crate) action: String,
    pub(crate) why: String,
}

impl Visit for Decision {
    fn record_u64(&mut self, field: &Field, value: u64) {
        match field.name() {
            "stream" => self.stream = value,
            "file" => self.file = value,
            "first" => self.first = value as u32,
            "blocks" => self.blocks = value as u32,
            _ => {}
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        match field.name() {
            "action" => self.action = format!("{value:?}"),
            "why" => self.why = format!("{value:?}"),
            _ => {}
        }
    }
}

thread_local! {
    static DECISIONS: RefCell<Vec<Decision>> = const { RefCell::new(Vec::new()) };
}

struct Collects;

impl Subscriber for Collects {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "forebay::readahead"
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut decision = Decision::default();
        event.record(&mut decision);
        DECISIONS.with_borrow_mut(|all| all.push(decision));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// What `work` returns, and the decisions on this thread meanwhile.
pub(crate) fn decisions<T>(work: impl FnOnce() -> T) -> (T, Vec<Decision>) {
    DECISIONS.take();
    let done = tracing::subscriber::with_default(Collects, work);
    (done, DECISIONS.take())
}
