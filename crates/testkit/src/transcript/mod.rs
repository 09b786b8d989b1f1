//! Conversations in files, run unchanged over every transport.
//!
//! A transcript is a file of JSON lines. Each line has one of these keys:
//!
//! | line | meaning |
//! |---|---|
//! | `{"note": "..."}` | for the reader |
//! | `{"setup": {"packs": [...], "args": [...], "env": {...}}}` | first: how the host is started; `ledger` and `bad MODE` are packs of the workspace, any other name is handed to `--pack`; `{folder}` is the test's own folder |
//! | `{"file": {"path": "...", "text": "..."}}` | before the host starts: a file in the test's folder |
//! | `{"send": message}` | sends the message with the bytes it is written with here |
//! | `{"send_raw": "..."}` | sends a line that need not be JSON |
//! | `{"send_hex": "..."}` | sends bytes; the newline is added |
//! | `{"send_long": {"head": "...", "bytes": n, "tail": "..."}}` | sends a line of `n` bytes, filled with `x` between head and tail |
//! | `{"expect": pattern}` | the next message with the pattern's id; without an id, the next notification with its method; with neither, the next message without an id |
//! | `{"expect_next": pattern}` | the very next message |
//! | `{"expect_none_ms": n}` | nothing arrives for so long |
//!
//! Ids are compared as text: `1`, `1.0` and `"1"` are three ids. What else a pattern can say is
//! in [`matches`]. After the last line the client closes its side; what arrives then and was not
//! expected is a failure, and so is any exit code but 0 and any process left over.

mod pattern;
mod run;
mod step;

pub use pattern::{Mismatch, matches};
pub use run::{run_file, run_folder, run_some};
pub use step::{Setup, Step, Transcript};
