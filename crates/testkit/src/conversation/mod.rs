//! A recorded conversation, held with any server, and the exact bytes that came back.
//!
//! A [`Conversation`] is a script of raw lines; [`hold`] plays it against a command and gives a
//! [`Transcript`]: every byte of the server's standard output. Two transcripts of the same conversation
//! with `mcp-fixture` are equal, whatever stands between client and server, as long as that changes
//! nothing.
//!
//! The scripts are text. A line of one begins with:
//!
//! | sign | meaning |
//! |---|---|
//! | `>` | send this; go on when its request, if it is one, is answered |
//! | `+` | send this together with the next `>`, in one write; that one waits for this answer, too |
//! | `-` | send this; nobody answers it |
//! | `?` | wait for a notification of this method that was not heard yet |
//! | `=` | from now on the server's requests of this method get this result |
//! | `!` | from now on the server's requests of this method get this error |
//! | `#` | a comment |
//!
//! Deliberately absent: expectations. What a server should say is said by its bare run.

mod hold;
mod script;

pub use hold::{Transcript, hold};
pub use script::{Conversation, Reply, Turn};

/// The conversations that use every feature of the fixture, each with the options it was written for.
pub const RECORDED: [(&str, &str, &str); 2] = [
    (
        "legacy",
        "--page 7 --declare-list-changed",
        include_str!("../../corpus/conversation-legacy.txt"),
    ),
    (
        "modern",
        "--page 7 --declare-list-changed --era modern",
        include_str!("../../corpus/conversation-modern.txt"),
    ),
];
