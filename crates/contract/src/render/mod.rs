//! How a result becomes text for a reader: bounded, line-oriented, the same bytes every time.
//!
//! - [`RenderMode`] chooses between porcelain and JSON.
//! - [`bound`] cuts a text to [`Bounds`] and says what it left out; [`shorten`] does the same for
//!   a value on one line.
//! - [`Notice`] is the one definition of `note:`, `hint:` and `warning:` lines.
//! - [`path`] renders file paths; [`Porcelain`] builds a whole answer, summary first.
//! - [`content`] is what a person is shown of a tool result of MCP.
//! - [`count`], [`bytes`] and [`elapsed`] write quantities.
//!
//! Deliberately absent: colours, terminal widths, locales and any taxonomy of detail levels. Width
//! is counted in `char`s, because a reader of porcelain is not a terminal. JSON is not bounded
//! here: a cut JSON text is not JSON, so its producer bounds the data.

mod bound;
mod content;
mod escape;
mod hidden;
mod mode;
mod notice;
pub mod path;
mod porcelain;
mod quantity;
mod shorten;
mod table;

pub use bound::{Bounded, Bounds, Truncation, bound, bound_with};
pub use content::content;
pub use escape::{visible, visible_json};
pub use hidden::{HiddenAt, hidden_in};
pub use mode::RenderMode;
pub use notice::{NOTICE_MAX_CHARS, Notice, note, warning};
pub use porcelain::{LINE_MAX_CHARS, Porcelain};
pub use quantity::{bytes, count, elapsed};
pub use shorten::{ELLIPSIS, shorten};
pub use table::CELL_MAX_CHARS;

/// Where the text of a tool's answer leads when it is cut: its JSON form is whole.
pub const WHOLE_AS_JSON: &str = "render \"json\" shows all of it";

#[cfg(test)]
mod tests {
    /// Arbitrary text, rich in controls, line ends and characters of several bytes.
    pub(super) const TEXT: &str =
        "([\\x00-\\x20\\x7f-\\x9f\\u{2028}\\u{202e}]|[a-c é…\\\\]|(?s:.)|\n){0,60}";
}
