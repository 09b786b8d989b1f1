//! Hints for mistakes on the command line that the parser alone cannot explain.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory as _, Error};

use crate::args::Arguments;

/// A command line to write instead of one that the parser rejected.
pub(crate) fn hint(error: &Error, words: &[String]) -> Option<String> {
    let wrong = |place| match error.get(place) {
        Some(ContextValue::String(wrong)) => Some(wrong.as_str()),
        _ => None,
    };
    match error.kind() {
        ErrorKind::UnknownArgument => {
            let wrong = wrong(ContextKind::InvalidArg)?;
            unknown_option(wrong, words).or_else(|| word_too_many(wrong, words))
        }
        ErrorKind::InvalidSubcommand => {
            // The parser has found a command that is like it.
            if error.get(ContextKind::SuggestedSubcommand).is_some() {
                return None;
            }
            let wrong = wrong(ContextKind::InvalidSubcommand)?;
            known_commands(words).or_else(|| word_too_many(wrong, words))
        }
        ErrorKind::MissingRequiredArgument => missing(words),
        _ => None,
    }
}

/// The command and its subcommand, without their options.
fn command(words: &[String]) -> (&str, &str) {
    let mut names = words.iter().filter(|word| !word.starts_with('-'));
    let mut next = || names.next().map_or("", String::as_str);
    (next(), next())
}

/// Options that other programs, or other commands of this one, have for what is meant.
fn unknown_option(wrong: &str, words: &[String]) -> Option<String> {
    let (first, second) = command(words);
    let hint = match (first, wrong) {
        ("lock", "--lock") => "the option that names the lock is --file FILE here".to_owned(),
        ("lock", "--write" | "--check" | "--diff") => {
            format!(
                "it is a command: mainstay lock {}",
                wrong.trim_start_matches('-')
            )
        }
        ("call", "--json") => {
            "for the whole structured result give the tool the argument render=json".to_owned()
        }
        (_, "-v" | "--verbose") => {
            "-V prints the version; a host says more with --log debug".to_owned()
        }
        ("lock", name) if !name.starts_with('-') && is_file_before_server(name, words) => {
            format!("name the lock with --file: mainstay lock {second} --file {name} -- ...")
        }
        ("stop" | "rollout" | "status" | "upgrade", name) if !name.starts_with('-') => {
            let option = if name.parse::<u32>().is_ok() {
                "--pid"
            } else {
                "--name"
            };
            format!("choose a host with {option}: mainstay {first} {option} {name}")
        }
        _ => return None,
    };
    Some(hint)
}

/// True for `FILE -- COMMAND`.
fn is_file_before_server(name: &str, words: &[String]) -> bool {
    let place = |wanted: &str| words.iter().position(|word| word == wanted);
    matches!((place(name), place("--")), (Some(file), Some(dashes)) if file < dashes)
}

/// The commands below the one that got an unknown one.
fn known_commands(words: &[String]) -> Option<String> {
    let all = Arguments::command();
    let (first, _) = command(words);
    let group = all.find_subcommand(first)?;
    let names: Vec<_> = group
        .get_subcommands()
        .filter(|command| !command.is_hide_set())
        .map(clap::Command::get_name)
        .collect();
    if names.is_empty() {
        return None;
    }
    Some(format!(
        "mainstay {first} has the commands {}",
        names.join(", ")
    ))
}

/// The right form of a command line with a word too many, if that word may begin a server's command.
fn word_too_many(wrong: &str, words: &[String]) -> Option<String> {
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

/// Where the value of a required argument is found.
fn missing(words: &[String]) -> Option<String> {
    let hint = match command(words) {
        ("adopt", _) => {
            "name the configuration file of your client, for example ~/.claude.json; \
             mainstay adopt --help lists the files of clients"
        }
        ("call", _) => "mainstay tools lists the tools that can be called",
        ("share", _) => {
            "put the server's command after --, as in mainstay share check -- npx -y SERVER"
        }
        ("tasks", _) => "mainstay tasks list shows the tasks with their ids",
        ("approve", _) => "mainstay approve list shows the calls that wait, with their ids",
        _ => return None,
    };
    Some(hint.to_owned())
}
