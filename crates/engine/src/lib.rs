//! The interface of a durable call engine for a fleet of hosts: it keeps calls by id, gives each to one node at a time under a
//! lease, repeats what may be repeated, and keeps the outcome for every host that asks.
//!
//! * [`Engine`]: the interface, for hosts that submit calls and for nodes that run them;
//! * [`NewCall`], [`Terms`], [`Repeats`]: a call and the promise under which it runs;
//! * [`CallState`], [`Ending`]: what a host learns of a call;
//! * [`Work`], [`Signal`]: what a node gets, and learns from a heartbeat;
//! * [`limits`]: leases, and the part of a lease after which a node stops its own tool.
//!
//! Everything that an engine stores of a call is [`Sealed`]: this crate has no way to submit a plain text.
//!
//! Deliberately absent: any engine, keys, the form of arguments and answers, and clients.

pub mod limits;
mod terms;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

pub use self::terms::{Repeats, Terms};

/// The answer to one request, later.
pub type Reply<'a, T> = Pin<Box<dyn Future<Output = Result<T, EngineError>> + Send + 'a>>;

/// Longest id of a call and longest name of a queue, in bytes.
const NAME_BYTES: usize = 200;

/// The id of a call. One id is one call, for every host of the fleet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DurableId(String);

/// The name of a queue of calls.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Queue(String);

fn is_name(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:/".contains(&byte);
    !text.is_empty() && text.len() <= NAME_BYTES && text.bytes().all(allowed)
}

impl DurableId {
    /// Letters, digits and `-_.:/`. A client's own text is never an id: hosts derive one from it.
    pub fn parse(text: &str) -> Option<Self> {
        is_name(text).then(|| Self(text.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Queue {
    /// The queue of a pack, which all of its nodes share.
    pub fn of_pack(pack: &str) -> Option<Self> {
        let name = format!("mainstay/{pack}");
        is_name(&name).then_some(Self(name))
    }

    /// The queue of a pack on one node, for calls that belong there.
    pub fn of_node(pack: &str, node: &str) -> Option<Self> {
        let name = format!("mainstay/{pack}/{node}");
        (is_name(&name) && !node.is_empty()).then_some(Self(name))
    }

    /// Reads a name that [`Queue::as_str`] gave.
    pub fn parse(text: &str) -> Option<Self> {
        is_name(text).then(|| Self(text.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for DurableId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A ciphertext: all that an engine sees of arguments, progress and answers.
#[derive(Clone, PartialEq, Eq)]
pub struct Sealed(Vec<u8>);

impl Sealed {
    /// Wraps a message that was sealed under the key of the fleet.
    pub const fn from_ciphertext(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

impl fmt::Debug for Sealed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sealed({} bytes)", self.0.len())
    }
}

/// The kinds of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A tool runs.
    Tool,
    /// A node answers with the catalog of its pack.
    Announce,
}

impl Kind {
    pub const ALL: [Self; 2] = [Self::Tool, Self::Announce];

    /// Its name in the engine.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tool => "mainstay.tool",
            Self::Announce => "mainstay.announce",
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }
}

/// A call to submit.
#[derive(Clone, Debug)]
pub struct NewCall {
    pub id: DurableId,
    pub queue: Queue,
    pub kind: Kind,
    pub terms: Terms,
    pub input: Sealed,
}

/// The result of a submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Submitted {
    New,
    /// The engine had a call of this id, running or ended. It changed nothing.
    Known,
}

/// A place in the history of a call, from which to wait for news.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    pub run: String,
    pub token: Vec<u8>,
}

/// A call, as the engine has it.
#[derive(Clone, Debug)]
pub struct CallState {
    pub stage: Stage,
    /// The attempt that runs, ran last, or will run. 1 is the first.
    pub attempt: u32,
    /// The node that took the last attempt, if one did.
    pub node: Option<String>,
    /// The latest details of a heartbeat.
    pub details: Option<Sealed>,
    /// Where to wait for news; `None` once the call has ended.
    pub position: Option<Position>,
}

/// How far a call is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It waits for a node, for the first time or for another attempt.
    Waiting,
    Running,
    Ended(Ending),
}

/// How a call ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// A node answered, with a result or with the tool's own failure.
    Answered(Sealed),
    /// It was cancelled, and no node was left that could have done more.
    Cancelled,
    /// No node took it in time: it did not run.
    NeverStarted,
    /// The node that ran it lost its lease, and the terms allow no other attempt.
    Lost,
    /// Its time was over. An attempt may have had an effect.
    Expired,
    /// An operator of the engine ended it, or its engine says something that no call of ours can say.
    Aborted(String),
}

/// A call that a node has taken.
#[derive(Clone, Debug)]
pub struct Work {
    pub id: DurableId,
    pub kind: Kind,
    pub attempt: u32,
    /// The node must be heard of within this time, again and again.
    pub lease: Duration,
    pub input: Sealed,
    pub token: Token,
}

/// The right to work on one attempt. An answer with a token of an earlier attempt is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token(pub Vec<u8>);

/// The news that a node gets with the acknowledgement of a heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    GoOn,
    /// A host wants the call cancelled.
    Cancel,
}

/// Why a request to an engine failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EngineError {
    /// It could not be reached, or did not answer. The request may have been carried out.
    Unreachable(String),
    /// It rejected the request: credentials, name of the namespace, or a request that it does not understand.
    Rejected(String),
    /// It rejected the request because it is too large.
    TooLarge(String),
    /// It has no call of this id, or the attempt of this token is over.
    Unknown,
}

impl EngineError {
    /// True if the same request may succeed later.
    pub const fn is_passing(&self) -> bool {
        matches!(self, Self::Unreachable(_))
    }
}

impl fmt::Display for EngineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(why) => write!(f, "the engine cannot be reached: {why}"),
            Self::Rejected(why) => write!(f, "the engine rejected the request: {why}"),
            Self::TooLarge(why) => write!(f, "the engine accepts no call of this size: {why}"),
            Self::Unknown => f.write_str("the engine does not know the call"),
        }
    }
}

impl std::error::Error for EngineError {}

/// A durable call engine.
///
/// Every request makes one attempt: its caller decides about another one. All of them may be dropped at any time;
/// [`Engine::poll`] must not be, since the engine may just have given the call away.
pub trait Engine: fmt::Debug + Send + Sync {
    /// Submits a call. A second submission of its id changes nothing.
    fn submit<'a>(&'a self, call: &'a NewCall) -> Reply<'a, Submitted>;

    /// Reads a call: at once, or when something has changed since `after`. `None` if nothing did for a while.
    fn follow<'a>(
        &'a self,
        id: &'a DurableId,
        after: Option<&'a Position>,
    ) -> Reply<'a, Option<CallState>>;

    /// The input of a call.
    fn input<'a>(&'a self, id: &'a DurableId) -> Reply<'a, Sealed>;

    /// Asks for a call to be cancelled. The call of a node ends when the node agrees.
    fn cancel<'a>(&'a self, id: &'a DurableId, reason: &'a str) -> Reply<'a, ()>;

    /// Takes the next call of a queue, or `None` after `patience`.
    fn poll<'a>(&'a self, queue: &'a Queue, patience: Duration) -> Reply<'a, Option<Work>>;

    /// Extends the lease of an attempt, with the latest progress.
    fn heartbeat<'a>(&'a self, token: &'a Token, details: Option<&'a Sealed>) -> Reply<'a, Signal>;

    /// Ends a call with an answer, unless the attempt is over.
    fn complete<'a>(&'a self, token: &'a Token, answer: &'a Sealed) -> Reply<'a, ()>;

    /// Ends a call that was cancelled, unless the attempt is over.
    fn complete_cancelled<'a>(&'a self, token: &'a Token) -> Reply<'a, ()>;

    /// Returns a call that did not run, so that another node may take it as its terms allow.
    fn give_back<'a>(&'a self, token: &'a Token, reason: &'a str) -> Reply<'a, ()>;

    /// The nodes that took or asked for calls of a queue lately.
    fn pollers<'a>(&'a self, queue: &'a Queue) -> Reply<'a, Vec<String>>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_and_queues_have_no_spaces_and_an_end() {
        assert!(DurableId::parse("task-0a1b").is_some());
        for bad in ["", "two words", "line\nbreak", "caf\u{e9}"] {
            assert!(DurableId::parse(bad).is_none(), "{bad:?}");
        }
        assert!(DurableId::parse(&"a".repeat(NAME_BYTES)).is_some());
        assert!(DurableId::parse(&"a".repeat(NAME_BYTES + 1)).is_none());
        assert_eq!(Queue::of_pack("code").unwrap().as_str(), "mainstay/code");
        assert_eq!(
            Queue::of_node("code", "n1").unwrap().as_str(),
            "mainstay/code/n1"
        );
        assert!(Queue::of_node("code", "").is_none());
    }

    #[test]
    fn what_is_sealed_is_not_printed() {
        let sealed = Sealed::from_ciphertext(b"secret".to_vec());
        assert_eq!(format!("{sealed:?}"), "Sealed(6 bytes)");
    }

    #[test]
    fn kinds_are_read_back() {
        for kind in Kind::ALL {
            assert_eq!(Kind::parse(kind.as_str()), Some(kind));
        }
        assert_eq!(Kind::parse("other"), None);
    }
}
