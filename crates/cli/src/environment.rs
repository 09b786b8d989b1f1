//! The environment, read once and checked whole.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::anyhow;

use crate::exit::Failure;

/// Default of `MCP_READY_FILE`.
const READY_FILE: &str = "/tmp/mcp.ready";
/// Default of `MCP_SOCKET_PATH`.
const SOCKET_PATH: &str = "/tmp/mcp.sock";
/// Default of `MCP_SOCKET_MODE`.
pub(crate) const SOCKET_MODE: u32 = 0o600;
/// Where schemas are when nothing else is said, relative to the working directory.
const SUBMODULE_SCHEMAS: &str = "libs/synesthetic-schemas/jsonschema";
const SUBMODULE_EXAMPLES: &str = "libs/synesthetic-schemas/examples";

/// Everything that the environment says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Environment {
    pub(crate) endpoint: Endpoint,
    pub(crate) ready_file: PathBuf,
    pub(crate) socket_path: PathBuf,
    pub(crate) socket_mode: u32,
    /// Where hosts have their control sockets.
    pub(crate) runtime_dir: PathBuf,
    pub(crate) telemetry: Option<PathBuf>,
    pub(crate) schemas_dir: Option<PathBuf>,
    pub(crate) examples_dir: Option<PathBuf>,
}

/// `MCP_ENDPOINT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Endpoint {
    Stdio,
    Socket,
}

impl Environment {
    /// Reads the process's environment.
    #[expect(clippy::disallowed_methods, reason = "this is the one place")]
    pub(crate) fn read() -> Result<Self, Failure> {
        Self::from(|name| std::env::var_os(name), Path::is_dir)
    }

    /// Reads from `get`; every mistake is reported, not only the first. An empty variable counts
    /// as unset.
    fn from(
        get: impl Fn(&str) -> Option<OsString>,
        is_dir: impl Fn(&Path) -> bool,
    ) -> Result<Self, Failure> {
        let mut mistakes = Vec::new();
        let value = |name: &str| get(name).filter(|value| !value.is_empty());
        let path = |name: &str, default: &str| {
            value(name).map_or_else(|| PathBuf::from(default), PathBuf::from)
        };
        let endpoint = match value("MCP_ENDPOINT").as_deref().map(|value| value.to_str()) {
            None | Some(Some("stdio")) => Endpoint::Stdio,
            Some(Some("socket")) => Endpoint::Socket,
            Some(other) => {
                let shown = other.unwrap_or("not text");
                mistakes.push(format!(
                    "MCP_ENDPOINT is {shown:?}; set it to stdio or socket"
                ));
                Endpoint::Stdio
            }
        };
        let socket_mode = match value("MCP_SOCKET_MODE").map(|mode| parse_mode(&mode)) {
            None => SOCKET_MODE,
            Some(Ok(mode)) => mode,
            Some(Err(mistake)) => {
                mistakes.push(mistake);
                SOCKET_MODE
            }
        };
        let mut directory = |name: &str, fallback: &str| match value(name).map(PathBuf::from) {
            Some(set) if is_dir(&set) => Some(set),
            Some(set) => {
                let shown = set.display();
                mistakes.push(format!(
                    "{name} is {shown}, which is not a directory; set it to one"
                ));
                None
            }
            None => Some(PathBuf::from(fallback)).filter(|fallback| is_dir(fallback)),
        };
        let schemas_dir = directory("SYN_SCHEMAS_DIR", SUBMODULE_SCHEMAS);
        let examples_dir = directory("SYN_EXAMPLES_DIR", SUBMODULE_EXAMPLES);
        if !mistakes.is_empty() {
            return Err(Failure::input(anyhow!(
                "the environment: {}",
                mistakes.join("; ")
            )));
        }
        Ok(Self {
            endpoint,
            ready_file: path("MCP_READY_FILE", READY_FILE),
            socket_path: path("MCP_SOCKET_PATH", SOCKET_PATH),
            socket_mode,
            runtime_dir: mainstay_host::runtime_dir(
                value("MAINSTAY_RUNTIME_DIR").map(PathBuf::from),
                value("XDG_RUNTIME_DIR").map(PathBuf::from),
                &path("TMPDIR", "/tmp"),
            ),
            telemetry: value("MAINSTAY_TELEMETRY").map(PathBuf::from),
            schemas_dir,
            examples_dir,
        })
    }
}

fn parse_mode(value: &OsString) -> Result<u32, String> {
    let text = value.to_string_lossy();
    let digits = text.strip_prefix("0o").unwrap_or(&text);
    match u32::from_str_radix(digits, 8) {
        Ok(mode) if mode <= 0o777 && mode & 0o600 == 0o600 => Ok(mode),
        Ok(_) => Err(format!(
            "MCP_SOCKET_MODE is {text:?}; set it to at most 0777, with reading and writing for the owner"
        )),
        Err(_) => Err(format!(
            "MCP_SOCKET_MODE is {text:?}; set it to an octal mode such as 0600"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(variables: &[(&str, &str)]) -> Result<Environment, String> {
        let get = |name: &str| {
            variables
                .iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| OsString::from(value))
        };
        Environment::from(get, |path| path.starts_with("/there"))
            .map_err(|failure| failure.error.to_string())
    }

    #[test]
    fn an_empty_environment_means_stdio_and_the_documented_defaults() {
        let environment = with(&[("MCP_ENDPOINT", "")]).unwrap();
        assert_eq!(environment.endpoint, Endpoint::Stdio);
        assert_eq!(environment.ready_file, Path::new("/tmp/mcp.ready"));
        assert_eq!(environment.socket_path, Path::new("/tmp/mcp.sock"));
        assert_eq!(environment.socket_mode, 0o600);
        assert_eq!(environment.schemas_dir, None);
    }

    #[test]
    fn every_mistake_is_named_with_what_to_set() {
        let said = with(&[
            ("MCP_ENDPOINT", "sokcet"),
            ("MCP_SOCKET_MODE", "rw"),
            ("SYN_SCHEMAS_DIR", "/absent"),
            ("SYN_EXAMPLES_DIR", "/there/examples"),
        ])
        .unwrap_err();
        assert!(
            said.contains("MCP_ENDPOINT is \"sokcet\"; set it to stdio or socket"),
            "{said}"
        );
        assert!(said.contains("MCP_SOCKET_MODE is \"rw\""), "{said}");
        assert!(
            said.contains("SYN_SCHEMAS_DIR is /absent, which is not a directory"),
            "{said}"
        );
        assert!(!said.contains("SYN_EXAMPLES_DIR"), "{said}");
    }

    #[test]
    fn a_socket_mode_is_octal_and_lets_its_owner_in() {
        assert_eq!(
            with(&[("MCP_SOCKET_MODE", "0660")]).unwrap().socket_mode,
            0o660
        );
        assert!(with(&[("MCP_SOCKET_MODE", "0066")]).is_err());
        assert!(with(&[("MCP_SOCKET_MODE", "10777")]).is_err());
    }
}
