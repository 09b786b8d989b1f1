//! The clients that are known, and where each of them keeps its servers.

use std::path::{Path, PathBuf};

use crate::environment::{Environment, variable};
use crate::exit::Failure;

/// A client and the places of its file, the first that exists counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Client {
    pub(crate) name: &'static str,
    /// Below the home directory.
    in_home: &'static [&'static str],
    /// Below the directory of configurations: `$XDG_CONFIG_HOME`, else `~/.config`.
    in_config: &'static [&'static str],
    /// In a project, where other people may share them.
    pub(crate) in_project: &'static [&'static str],
}

/// All of them.
pub(crate) const CLIENTS: [Client; 10] = [
    client("Claude Code", &[".claude.json"], &[], &[".mcp.json"]),
    client(
        "Claude Desktop",
        &[],
        &["Claude/claude_desktop_config.json"],
        &[],
    ),
    client("Cursor", &[".cursor/mcp.json"], &[], &[".cursor/mcp.json"]),
    client(
        "VS Code",
        &[],
        &["Code/User/mcp.json", "Code/User/settings.json"],
        &[".vscode/mcp.json"],
    ),
    client(
        "Codex",
        &[".codex/config.toml"],
        &[],
        &[".codex/config.toml"],
    ),
    client("Windsurf", &[".codeium/windsurf/mcp_config.json"], &[], &[]),
    client("Zed", &[], &["zed/settings.json"], &[".zed/settings.json"]),
    client(
        "opencode",
        &[],
        &["opencode/opencode.json", "opencode/opencode.jsonc"],
        &["opencode.json", "opencode.jsonc"],
    ),
    client("goose", &[], &["goose/config.yaml"], &[]),
    client(
        "Gemini CLI",
        &[".gemini/settings.json"],
        &[],
        &[".gemini/settings.json"],
    ),
];

const fn client(
    name: &'static str,
    in_home: &'static [&'static str],
    in_config: &'static [&'static str],
    in_project: &'static [&'static str],
) -> Client {
    Client {
        name,
        in_home,
        in_config,
        in_project,
    }
}

/// A file of a client that exists.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) client: &'static str,
    pub(crate) path: PathBuf,
}

/// The files of this user.
pub(crate) fn of_user() -> Result<Vec<Found>, Failure> {
    let home = Environment::read_for_operator()?.home;
    let config = variable("XDG_CONFIG_HOME").map(PathBuf::from);
    let config = config.filter(|path| path.is_absolute());
    let config = config.or_else(|| Some(home.as_ref()?.join(".config")));
    let codex = variable("CODEX_HOME").map(|home| PathBuf::from(home).join("config.toml"));
    let mut found = Vec::new();
    for client in &CLIENTS {
        let mut places = below(home.as_deref(), client.in_home);
        if let Some(named) = codex.as_ref().filter(|_| client.name == "Codex") {
            places = vec![named.clone()];
        }
        places.extend(below(config.as_deref(), client.in_config));
        found.extend(existing(client, places));
    }
    Ok(found)
}

/// The files of the project in this directory.
pub(crate) fn of_project() -> Vec<Found> {
    let all = CLIENTS.iter();
    let found =
        all.flat_map(|client| existing(client, below(Some(Path::new("")), client.in_project)));
    found.collect()
}

fn below(folder: Option<&Path>, names: &[&str]) -> Vec<PathBuf> {
    let all = folder.map(|folder| names.iter().map(|name| folder.join(name)));
    all.into_iter().flatten().collect()
}

fn existing(client: &Client, places: Vec<PathBuf>) -> Vec<Found> {
    let client = client.name;
    let files = places.into_iter().filter(|path| path.is_file());
    files.map(|path| Found { client, path }).collect()
}
