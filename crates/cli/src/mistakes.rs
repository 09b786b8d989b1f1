//! Hints for mistakes on the command line that the parser alone cannot explain.

use clap::Error;
use clap::error::{ContextKind, ContextValue, ErrorKind};

/// The right form of a command line with a word too many, if that word may begin a server's command.
pub(crate) fn hint(error: &Error, words: &[String]) -> Option<String> {
    let place = match error.kind() {
        ErrorKind::UnknownArgument => ContextKind::InvalidArg,
        // The parser has found a command that is like it.
        ErrorKind::InvalidSubcommand if error.get(ContextKind::SuggestedSubcommand).is_some() => {
            return None;
        }
        ErrorKind::InvalidSubcommand => ContextKind::InvalidSubcommand,
        _ => return None,
    };
    let Some(ContextValue::String(wrong)) = error.get(place) else {
        return None;
    };
    if wrong.starts_with('-') {
        return None;
    }
    let at = words.iter().position(|word| word == wrong)?;
    let (before, command) = words.split_at_checked(at)?;
    let joined = |words: &[String]| shlex::try_join(words.iter().map(String::as_str)).ok();
    let (before, command) = (joined(before)?, joined(command)?);
    match words.first().map(String::as_str) {
        Some("tools" | "lock" | "share") => Some(format!(
            "put -- before a server's command: mainstay {before} -- {command}"
        )),
        Some("serve") => Some(format!(
            "serve runs packs; another server is started with: mainstay wrap -- {command}"
        )),
        Some(first) if first == wrong => Some(format!(
            "a server is started with: mainstay wrap -- {command}"
        )),
        _ => None,
    }
}
