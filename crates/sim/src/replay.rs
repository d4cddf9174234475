//! Replay: the state of a disk at a position of its journal, durable and pending state separately.
//!
//! For every file it keeps two things: the durable bytes, and the changes since then, in order. A sync that ends moves
//! the changes it covers from the second to the first. So advancing costs only the entries, and a crash at a position
//! is a choice among the changes that are pending there.
//!
//! ```text
//! write A, write B, sync begins, write C, sync ends | cut     durable: A B     pending: C
//! ```
//!
//! Invariants:  [RPL-1] pending events are in the order in which they took effect
//! Concurrency: one owner.

use crate::crash::Choice;
use crate::image::{Entries, Image, Tree};
use crate::journal::{Entry, Journal, NameEvent, Node, Origin, Position, ROOT};
use crate::state::{Content, Names};

/// A journal, replayed up to some position.
#[derive(Debug)]
pub struct Replay<'j> {
    journal: &'j Journal,
    at: Position,
    nodes: Vec<State>,
}

#[derive(Debug)]
enum State {
    Directory(Names),
    File(Content),
}

impl Journal {
    /// Replays the journal from the beginning: for many power cuts in the order of their positions.
    pub fn replay(&self) -> Replay<'_> {
        Replay::new(self)
    }

    /// Returns a possible state after a power cut at `at` entries. `seed` chooses among all legal states.
    ///
    /// # Panics
    /// If there are fewer entries.
    pub fn crash(&self, at: Position, seed: u64) -> Image {
        let mut replay = self.replay();
        replay.advance_to(at);
        replay.crash(seed)
    }
}

impl<'j> Replay<'j> {
    pub(crate) fn new(journal: &'j Journal) -> Replay<'j> {
        let nodes = journal.origins.iter().map(|origin| match origin {
            Origin::Directory(names) => {
                State::Directory(Names { durable: names.clone(), pending: Vec::new() })
            }
            Origin::File(bytes) => {
                State::File(Content { durable: bytes.to_vec(), pending: Vec::new() })
            }
        });
        Replay { journal, at: 0, nodes: nodes.collect() }
    }

    /// The current position.
    pub fn position(&self) -> Position {
        self.at
    }

    /// Advances until `to` entries have happened.
    ///
    /// # Panics
    /// If `to` is before the current position, or past the end.
    pub fn advance_to(&mut self, to: Position) {
        assert!((self.at..=self.journal.len()).contains(&to), "from {} to {to}", self.at);
        for position in self.at..to {
            self.take(position, &self.journal.entries[position as usize]);
        }
        self.at = to;
    }

    /// Returns a possible state after a power cut at this position. `seed` chooses among all legal states.
    pub fn crash(&self, seed: u64) -> Image {
        let mut choice =
            Choice::new(seed, self.journal.sector_bytes, self.oldest_pending()..self.at);
        Image { root: self.entries(ROOT, &mut choice) }
    }

    /// The visible state at this position: all changes so far.
    pub fn seen(&self) -> Image {
        let mut choice = Choice::everything(self.journal.sector_bytes);
        Image { root: self.entries(ROOT, &mut choice) }
    }

    /// The visible bytes of `node` at this position, and the durable ones.
    pub(crate) fn file(&self, node: Node) -> Option<(Vec<u8>, &[u8])> {
        match self.nodes.get(node.0 as usize)? {
            State::Directory(_) => None,
            State::File(content) => {
                let mut choice = Choice::everything(self.journal.sector_bytes);
                Some((choice.content(content), &content.durable))
            }
        }
    }

    fn entries(&self, directory: Node, choice: &mut Choice) -> Entries {
        let State::Directory(names) = &self.nodes[directory.0 as usize] else {
            return Entries::new();
        };
        let chosen = choice.names(names).into_iter().map(|(name, node)| {
            let tree = match &self.nodes[node.0 as usize] {
                State::Directory(_) => Tree::Directory(self.entries(node, choice)),
                State::File(content) => Tree::File(choice.content(content).into()),
            };
            (name, tree)
        });
        chosen.collect()
    }

    /// The position of the oldest event that is not durable.
    fn oldest_pending(&self) -> Position {
        let oldest = self.nodes.iter().filter_map(|node| match node {
            State::Directory(names) => names.pending.first().map(|(position, _)| *position),
            State::File(content) => content.pending.first().map(|(position, _)| *position),
        });
        oldest.min().unwrap_or(self.at)
    }

    fn take(&mut self, position: Position, entry: &Entry) {
        match entry {
            Entry::Content { node, event } => {
                let pending = &mut self.content(*node).pending;
                let last = pending.last().map(|(position, _)| *position);
                assert!(last < Some(position), "[RPL-1] {last:?} before {position}");
                pending.push((position, event.clone()));
            }
            Entry::Names { directory, event } => {
                if let NameEvent::Link { node, is_directory, .. } = event {
                    let fresh = if *is_directory {
                        State::Directory(Names::default())
                    } else {
                        State::File(Content::default())
                    };
                    assert_eq!(node.0 as usize, self.nodes.len(), "[JRN-1] a new node is the next");
                    self.nodes.push(fresh);
                }
                let State::Directory(names) = &mut self.nodes[directory.0 as usize] else {
                    panic!("[JRN-1] {directory:?} is a directory");
                };
                names.pending.push((position, event.clone()));
            }
            Entry::Synced { node, since } => match &mut self.nodes[node.0 as usize] {
                State::Directory(names) => names.synced(*since),
                State::File(content) => content.synced(*since),
            },
            Entry::Dropped { node, since } => self.content(*node).dropped(*since),
        }
    }

    fn content(&mut self, node: Node) -> &mut Content {
        match &mut self.nodes[node.0 as usize] {
            State::File(content) => content,
            State::Directory(_) => panic!("[JRN-1] {node:?} is a file"),
        }
    }
}
