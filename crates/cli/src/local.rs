//! From arguments, environment and configuration file to a host's configuration.

use std::path::PathBuf;

use anyhow::anyhow;
use mainstay_contract::json::Json;
use mainstay_contract::render::RenderMode;
use mainstay_host::config::{Command, Config, Pack, Transport};
use serde_json::{Value, json};

use crate::VERSION;
use crate::args::Packs;
use crate::builtin::{Executable, NAMES, SECRETS};
use crate::config_file::{ConfigFile, PackSection};
use crate::environment::Environment;
use crate::exit::Failure;

/// What every client is told about this server.
const INSTRUCTIONS: &str = "Tool failures are JSON with a stable code, a hint and whether a retry \
can help. Ask system_health when something seems slow or broken.";

/// A host's configuration for these packs.
pub(crate) fn config(
    packs: &Packs,
    environment: &Environment,
    transport: Transport,
) -> Result<Config, Failure> {
    let file = match &packs.config {
        Some(path) => ConfigFile::load(path).map_err(Failure::input)?,
        None => ConfigFile::default(),
    };
    let roots = Roots::of(environment, &file);
    let executable = Executable::open()?;
    let packs = select(packs, &file, &roots, &executable)?;
    Ok(Config {
        server_name: "mainstay".to_owned(),
        server_version: VERSION.to_owned(),
        instructions: Some(INSTRUCTIONS.to_owned()),
        host_name: "mainstay".to_owned(),
        control_dir: None,
        limits: file.limits,
        render: RenderMode::default(),
        packs,
        shim: executable.shim(file.tree_kill),
        transport,
        ready_file: None,
        telemetry: environment.telemetry.clone().or(file.telemetry),
        ready_details: roots.describe(),
        tooling_version: VERSION.to_owned(),
    })
}

/// Directories of the asset pack: the environment before the file.
struct Roots {
    schemas: Option<PathBuf>,
    examples: Option<PathBuf>,
}

impl Roots {
    fn of(environment: &Environment, file: &ConfigFile) -> Self {
        Self {
            schemas: environment
                .schemas_dir
                .clone()
                .or_else(|| file.roots.schemas.clone()),
            examples: environment
                .examples_dir
                .clone()
                .or_else(|| file.roots.examples.clone()),
        }
    }

    fn describe(&self) -> String {
        let shown = |path: &Option<PathBuf>| match path {
            Some(path) => path.display().to_string(),
            None => "-".to_owned(),
        };
        format!(
            "schemas_dir={} examples_dir={}",
            shown(&self.schemas),
            shown(&self.examples)
        )
    }
}

/// The packs to serve: those named on the command line, else those of the file and all built-in.
fn select(
    packs: &Packs,
    file: &ConfigFile,
    roots: &Roots,
    executable: &Executable,
) -> Result<Vec<Pack>, Failure> {
    let wanted: Vec<String> = if packs.packs.is_empty() {
        let of_file = file
            .packs
            .keys()
            .filter(|name| !NAMES.contains(&name.as_str()));
        NAMES
            .iter()
            .map(|name| (*name).to_owned())
            .chain(of_file.cloned())
            .collect()
    } else {
        packs.packs.clone()
    };
    let mut selected = Vec::new();
    for word in wanted {
        let (name, command) = match word.split_once('=') {
            Some((name, command)) => (name.to_owned(), Some(split(&word, command)?)),
            None => (word, None),
        };
        check_name(&name)?;
        let section = file.packs.get(&name);
        let command = command.or_else(|| section.and_then(|section| section.command.clone()));
        let settings = settings_of(&name, section, roots);
        selected.push(match command {
            Some(command) => external(name, command, settings)?,
            None => executable.pack(&name, settings)?,
        });
    }
    Ok(selected)
}

fn check_name(name: &str) -> Result<(), Failure> {
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || name.len() > 64 || !name.chars().all(good) {
        let said = anyhow!("a pack cannot be called {name:?}");
        return Err(Failure::input(said).hint("use letters, digits, '-', '_' and '.'"));
    }
    Ok(())
}

fn split(word: &str, command: &str) -> Result<Vec<String>, Failure> {
    match shlex::split(command) {
        Some(parts) if !parts.is_empty() => Ok(parts),
        Some(_) => Err(Failure::input(anyhow!(
            "--pack {word}: the command is empty"
        ))),
        None => Err(Failure::input(anyhow!(
            "--pack {word}: a quote is not closed"
        ))),
    }
}

fn settings_of(name: &str, section: Option<&PackSection>, roots: &Roots) -> Json {
    let mut settings = section
        .and_then(|section| section.settings.clone())
        .unwrap_or(json!({}));
    if name == "asset"
        && let Value::Object(members) = &mut settings
    {
        for (key, path) in [
            ("schemas_dir", &roots.schemas),
            ("examples_dir", &roots.examples),
        ] {
            if let Some(path) = path {
                members.entry(key).or_insert_with(|| json!(path));
            }
        }
    }
    settings.into()
}

fn external(name: String, command: Vec<String>, settings: Json) -> Result<Pack, Failure> {
    let mut words = command.into_iter();
    let program = words
        .next()
        .ok_or_else(|| Failure::input(anyhow!("pack {name}: the command is empty")))?;
    Ok(Pack {
        name,
        command: Command {
            program: program.into(),
            called: None,
            arguments: words.map(Into::into).collect(),
            without_env: SECRETS.map(str::to_owned).to_vec(),
        },
        settings,
        expected: None,
    })
}
