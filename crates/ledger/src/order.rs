//! Orders to a ledger, the replies, and the records behind them.

use std::fmt;

/// The name of a task: 128 random bits, so that it cannot be guessed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId([u8; 16]);

impl TaskId {
    /// An id of bits from the system's generator.
    pub const fn from_random(bits: [u8; 16]) -> Self {
        Self(bits)
    }

    /// Reads the 32 hexadecimal digits of [`TaskId`]'s text form.
    pub fn parse(text: &str) -> Option<Self> {
        let is_digit = |digit: u8| matches!(digit, b'0'..=b'9' | b'a'..=b'f');
        if text.len() != 32 || !text.bytes().all(is_digit) {
            return None;
        }
        u128::from_str_radix(text, 16)
            .ok()
            .map(|bits| Self(bits.to_be_bytes()))
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Debug for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TaskId({self})")
    }
}

/// The one to whom a task belongs. Every other caller gets the answer for an unknown id.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owner {
    /// A Unix user: stdio, the socket and the command line.
    User(u32),
    /// A credential over HTTP, by its digest.
    Credential(String),
    /// Any caller that knows the id: loopback without a token.
    Holder,
}

impl Owner {
    pub(crate) fn text(&self) -> String {
        match self {
            Self::User(uid) => format!("user:{uid}"),
            Self::Credential(digest) => format!("credential:{digest}"),
            Self::Holder => "holder".to_owned(),
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        if text == "holder" {
            return Some(Self::Holder);
        }
        if let Some(digest) = text.strip_prefix("credential:") {
            return Some(Self::Credential(digest.to_owned()));
        }
        let uid = text.strip_prefix("user:")?.parse().ok()?;
        Some(Self::User(uid))
    }

    /// True if this caller may read and cancel a task of `owner`.
    pub fn may_use(&self, owner: &Self) -> bool {
        *owner == Self::Holder || self == owner
    }
}

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$inner:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $name { $($(#[$inner])* $variant,)* }

        impl $name {
            /// The word in the file and in listings.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }

            pub(crate) fn parse(word: &str) -> Option<Self> {
                match word { $($word => Some(Self::$variant),)* _ => None }
            }
        }
    };
}

words! {
    /// How far a task got. `Completed`, `Failed` and `Cancelled` never change.
    Status {
        Working = "working",
        Completed = "completed",
        Failed = "failed",
        Cancelled = "cancelled",
    }
}

words! {
    /// Why a call is in the ledger.
    Origin {
        /// The client asked for a task.
        Task = "task",
        /// Its deadline passed and it runs on.
        Detached = "detached",
        /// It has an idempotency key.
        Key = "key",
    }
}

/// An idempotency key: it belongs to one owner and one tool of one backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// The client's text, or its digest.
    pub name: String,
    /// A digest of the arguments: the same key with other arguments is a mistake.
    pub arguments: String,
}

/// A task that is about to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewTask {
    pub id: TaskId,
    pub owner: Owner,
    /// The identity of the backend that must run it.
    pub backend: String,
    pub tool: String,
    /// The work, in a form that only the caller of this crate reads.
    pub work: String,
    /// The replay contract.
    pub replay: String,
    pub origin: Origin,
    /// How long it may take, in milliseconds.
    pub limit_ms: u64,
    pub key: Option<Key>,
}

/// A task in the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    pub id: TaskId,
    pub owner: Owner,
    pub backend: String,
    pub tool: String,
    pub work: String,
    pub replay: String,
    pub origin: Origin,
    pub limit_ms: u64,
    /// Milliseconds since the epoch.
    pub created_ms: u64,
    pub updated_ms: u64,
    /// The host that last took it.
    pub holder: String,
    /// How many hosts have taken it.
    pub holders: u32,
    pub status: Status,
    pub ended_ms: Option<u64>,
    /// How it ended, in the words of the caller of this crate.
    pub outcome: Option<String>,
}

/// One thing for a ledger to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// Record a task before it runs.
    Record(Box<NewTask>),
    /// Record the outcome of a task of this host.
    Finish {
        id: TaskId,
        status: Status,
        outcome: String,
    },
    /// Remove a record of this host whose call never ran.
    Forget {
        id: TaskId,
    },
    Read {
        who: Owner,
        id: TaskId,
    },
    /// Tasks of an owner, newest first, older than `before`.
    List {
        who: Owner,
        before: Option<(u64, TaskId)>,
        most: usize,
    },
    /// End a task on behalf of its owner.
    Cancel {
        who: Owner,
        id: TaskId,
        outcome: String,
    },
    /// Take unfinished tasks of these backends that no living host holds.
    Claim {
        backends: Vec<String>,
    },
    /// Those of these tasks of this host that were cancelled.
    Cancelled {
        ids: Vec<TaskId>,
    },
    /// Remove some of the tasks that ended before then.
    Prune {
        before_ms: u64,
    },
    /// Remove some of the tasks whose retention is over. Unfinished tasks of dead hosts that no host has taken for
    /// their limit and their retention end as failed, with `outcome`, and are kept for another retention.
    Expire {
        outcome: String,
    },
}

/// The reply to an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    Recorded(Recorded),
    /// False if the task had ended before, or is held by another host.
    Done(bool),
    /// `None` if this caller does not have such a task.
    Task(Option<Box<Task>>),
    /// The task after a cancel, and true if the cancel ended it.
    Cancelled(Option<(Box<Task>, bool)>),
    Tasks(Vec<Task>),
    /// The tasks that are this host's now. `busy` if living hosts hold others of these backends.
    Claimed {
        tasks: Vec<Task>,
        busy: bool,
    },
    Ids(Vec<TaskId>),
    /// The number of tasks that were removed or ended: 0 if none is left.
    Pruned(u64),
}

/// The fate of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recorded {
    New(Box<Task>),
    /// Its key is known with the same arguments: this is the first task.
    Same(Box<Task>),
    /// Its key is known with other arguments.
    OtherArguments,
}
