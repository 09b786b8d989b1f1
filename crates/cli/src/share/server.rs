//! The server that a client shares: the command, and exactly the environment that its process gets.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use mainstay_contract::control::{SharedServer, SharedSettings};
use mainstay_host::config::ApprovalRule;
use mainstay_host::is_shared_variable;
use serde_json::json;

use crate::args::{ShareServer, WrapRules};
use crate::environment;
use crate::exit::Failure;
use crate::program;
use crate::server_file::ServerEntry;
use crate::wrap::{self, Named};

impl ShareServer {
    /// The settings of the server as `mainstay wrap` takes them; `None` without any.
    pub(crate) fn rules(&self) -> Option<WrapRules> {
        let tools = [&self.allow, &self.deny, &self.ask];
        let has_rules = self.config.is_some() || tools.into_iter().any(|tools| !tools.is_empty());
        has_rules.then(|| WrapRules {
            config: self.config.clone(),
            server: self.server.clone(),
            allow: self.allow.clone(),
            deny: self.deny.clone(),
            ask: self.ask.clone(),
            env: self.env.clone(),
            ..WrapRules::default()
        })
    }
}

/// A server that its client wants to share.
pub(super) struct Wanted {
    /// The declaration of the command line, else that of the file.
    pub(super) declared: Option<bool>,
    /// The server, or the reason why no other client can share it.
    pub(super) shared: Result<SharedServer, Failure>,
}

/// The server of a command line and a file, with the environment of this process.
pub(super) fn of(wanted: &ShareServer) -> Result<Wanted, Failure> {
    let declared = wanted.shared.then_some(true);
    let Some(rules) = wanted.rules() else {
        let shared = of_command(wanted);
        return Ok(Wanted { declared, shared });
    };
    let Some(named) = Named::read(&rules, &wanted.command)? else {
        let said = anyhow!("a server at a URL has no process to share");
        return Err(Failure::input(said).hint("lead the client to it with mainstay wrap --config"));
    };
    Ok(Wanted {
        declared: declared.or(named.entry.shared),
        shared: of_entry(wanted, &named),
    })
}

/// True if a server has a sandbox.
pub(super) fn is_boxed(server: &SharedServer) -> bool {
    let settings = server.settings.as_ref();
    settings.is_some_and(|settings| settings.sandbox.is_some())
}

/// A server with the settings of its entry.
fn of_entry(wanted: &ShareServer, named: &Named) -> Result<SharedServer, Failure> {
    reject_settings(&named.entry)?;
    let directory = match (&wanted.cwd, &named.entry.cwd) {
        (Some(folder), _) | (None, Some(folder)) => folder.clone(),
        (None, None) => PathBuf::from("."),
    };
    let directory = directory
        .canonicalize()
        .map_err(|error| no_directory(&directory, &error))?;
    let name = wanted.name.clone().unwrap_or_else(|| named.name());
    let sandbox = named.sandbox(&name)?;
    let inherited = environment::inherited();
    let mut environment = chosen(inherited.clone(), &wanted.env)?;
    if let Some(sandbox) = &sandbox {
        let all = inherited.into_iter();
        let all = all.filter_map(|(name, value)| Some((name.into_string().ok()?, value)));
        environment = all
            .filter(|(name, _)| sandbox.passes(OsStr::new(name)))
            .map(|(name, value)| {
                let value = text(&value, &format!("the variable {name}"))?;
                Ok((name, value))
            })
            .collect::<Result<_, Failure>>()?;
    }
    environment.extend(named.entry.env.clone());
    let settings = SharedSettings {
        rules: json!(named.entry.rules),
        limits: json!(named.entry.limits),
        sandbox: sandbox.map(|sandbox| json!(sandbox)),
        isolate: named.isolates,
        secrets: named.entry.secrets.clone(),
    };
    Ok(SharedServer {
        name,
        program: text(
            directory.join(&named.program).as_os_str(),
            "the path of the program",
        )?,
        arguments: texts(&named.arguments)?,
        directory: text(directory.as_os_str(), "the working directory")?,
        environment,
        settings: Some(settings),
    })
}

/// Rejects settings that the share host would have to leave out.
fn reject_settings(entry: &ServerEntry) -> Result<(), Failure> {
    let refuse = |what: String| {
        let said = anyhow!("server {}: mainstay share cannot keep {what}", entry.name);
        Err(Failure::input(said).hint(
            "lead the client to it with mainstay wrap --config, or to a host of mainstay serve --config that has \
             \"shared\": true for it",
        ))
    };
    if !entry.host_keys.is_empty() {
        return refuse(entry.host_keys.join(", "));
    }
    if entry.rules.has_tasks() {
        return refuse("tasks".to_owned());
    }
    let of_server = |rule: &ApprovalRule| rule.server.is_some();
    if entry.rules.approvals.rules.iter().any(of_server) {
        // Its name in the share host may differ, and the rule would fit no longer.
        return refuse("a rule of approvals that names a server (leave server out)".to_owned());
    }
    Ok(())
}

/// A server without settings.
fn of_command(wanted: &ShareServer) -> Result<SharedServer, Failure> {
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
        arguments: texts(arguments)?,
        directory: text(directory.as_os_str(), "the working directory")?,
        environment,
        settings: None,
    })
}

fn texts(arguments: &[OsString]) -> Result<Vec<String>, Failure> {
    let arguments = arguments.iter();
    arguments
        .map(|argument| text(argument, "an argument"))
        .collect()
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
