//! The server that a client shares: the command, and exactly the environment that its process gets.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::Path;

use anyhow::anyhow;
use mainstay_contract::control::SharedServer;
use mainstay_host::is_shared_variable;

use crate::args::ShareServer;
use crate::environment;
use crate::exit::Failure;
use crate::program;
use crate::wrap;

/// The server of a command line, with the environment of this process.
pub(super) fn of(wanted: &ShareServer) -> Result<SharedServer, Failure> {
    let Some((program, arguments)) = wanted.command.split_first() else {
        return Err(Failure::input(anyhow!("there is no server to share"))
            .hint("put its command after --, as in mainstay share --shared -- npx -y SERVER"));
    };
    let directory = match &wanted.cwd {
        Some(directory) => directory
            .canonicalize()
            .map_err(|error| no_directory(directory, &error))?,
        None => std::env::current_dir().map_err(|error| no_directory(Path::new("."), &error))?,
    };
    let environment = chosen(environment::inherited(), &wanted.env)?;
    let place = program::Place {
        cwd: Some(&directory),
        path: environment.get("PATH").map(OsStr::new),
    };
    let program = program::find_at(program, place)?;
    let name = wanted.name.clone();
    Ok(SharedServer {
        name: name.unwrap_or_else(|| wrap::name_of(&program, arguments)),
        program: text(
            directory.join(program).as_os_str(),
            "the path of the program",
        )?,
        arguments: arguments
            .iter()
            .map(|argument| text(argument, "an argument"))
            .collect::<Result<_, _>>()?,
        directory: text(directory.as_os_str(), "the working directory")?,
        environment,
    })
}

/// The variables that a shared server gets.
pub(super) fn chosen(
    all: Vec<(OsString, OsString)>,
    named: &[String],
) -> Result<BTreeMap<String, String>, Failure> {
    let mut chosen = BTreeMap::new();
    for (name, value) in all {
        let Some(name) = name.to_str() else { continue };
        if is_shared_variable(name) || named.iter().any(|named| named == name) {
            chosen.insert(
                name.to_owned(),
                text(&value, &format!("the variable {name}"))?,
            );
        }
    }
    let missing = named.iter().find(|name| !chosen.contains_key(*name));
    match missing {
        None => Ok(chosen),
        Some(missing) => Err(
            Failure::input(anyhow!("--env {missing}: the variable is not set"))
                .hint("set it in the environment of the client's entry, or leave --env out"),
        ),
    }
}

fn text(value: &OsStr, what: &str) -> Result<String, Failure> {
    value.to_str().map(str::to_owned).ok_or_else(|| {
        Failure::input(anyhow!("{what} is not UTF-8"))
            .hint("a server with such a command cannot be shared; leave --shared out")
    })
}

pub(super) fn no_directory(directory: &Path, error: &std::io::Error) -> Failure {
    let shown = directory.display();
    Failure::input(anyhow!("--cwd {shown}: {error}")).hint("name a directory that exists")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_that_differ_in_other_variables_have_equal_servers() {
        let environment = |pairs: &[(&str, &str)]| {
            let pairs = pairs.iter();
            let pairs: Vec<(OsString, OsString)> = pairs
                .map(|(name, value)| (name.into(), value.into()))
                .collect();
            chosen(pairs, &["API_KEY".to_owned()]).unwrap()
        };
        let base = [("PATH", "/bin"), ("LC_ALL", "C"), ("API_KEY", "k")];
        let terminal = environment(&[base.as_slice(), &[("TERM", "xterm")]].concat());
        let editor = environment(&[base.as_slice(), &[("VSCODE_PID", "7")]].concat());
        assert_eq!(terminal, editor);
        assert_eq!(terminal.len(), 3);
        let other = [("PATH", "/bin"), ("LC_ALL", "C"), ("API_KEY", "other")];
        assert_ne!(environment(&other), terminal);
    }

    #[test]
    fn a_named_variable_that_is_not_set_is_a_mistake() {
        let failure = chosen(Vec::new(), &["API_KEY".to_owned()]).unwrap_err();
        assert!(format!("{:#}", failure.error).contains("API_KEY"));
    }
}
