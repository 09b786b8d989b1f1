//! How clients reach a host: what the command line says counts before the environment.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, anyhow};
use mainstay_host::config::Transport;
use mainstay_host::{HttpConfig, Issuer, Keys};

use crate::args::Transports;
use crate::config_file::ConfigFile;
use crate::environment::{Endpoint, Environment, is_token};
use crate::exit::Failure;
use crate::start;

/// Default of `MCP_SOCKET_PATH`.
const SOCKET_PATH: &str = "/tmp/mcp.sock";
/// Default of `MCP_SOCKET_MODE`.
const SOCKET_MODE: u32 = 0o600;
/// Default of `MCP_HTTP_ADDR`.
const HTTP_ADDRESS: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 8080));
/// Longest file with keys.
const KEYS_BYTES: u64 = 256 * 1024;
/// Longest file with a token.
const TOKEN_BYTES: u64 = 4096;

/// The transport that the command line, the environment or the file chooses, in this order.
pub(crate) fn chosen(
    arguments: &Transports,
    environment: &Environment,
    file: &ConfigFile,
) -> Result<Transport, Failure> {
    let of_paths = |socket: &Option<PathBuf>, http: &Option<SocketAddr>| match (socket, http) {
        (Some(_), _) => Some(Endpoint::Socket),
        (None, Some(_)) => Some(Endpoint::Http),
        (None, None) => None,
    };
    let endpoint = of_paths(&arguments.socket, &arguments.http)
        .or(environment.endpoint)
        .or_else(|| of_paths(&file.socket, &file.http));
    Ok(match endpoint.unwrap_or(Endpoint::Stdio) {
        Endpoint::Stdio => Transport::Stdio,
        Endpoint::Socket => Transport::Socket {
            path: [&arguments.socket, &environment.socket_path, &file.socket]
                .into_iter()
                .find_map(Clone::clone)
                .unwrap_or_else(|| SOCKET_PATH.into()),
            mode: environment
                .socket_mode
                .or(file.socket_mode)
                .unwrap_or(SOCKET_MODE),
        },
        Endpoint::Http => Transport::Http(HttpConfig {
            address: arguments
                .http
                .or(environment.http_address)
                .or(file.http)
                .unwrap_or(HTTP_ADDRESS),
            allow_hosts: [&arguments.allow_host[..], &file.allow_host].concat(),
            token: token(environment, file.token_file.as_deref())?,
            approver_token: approver_token(file.approver_token_file.as_deref())?,
            issuer: issuer(environment, file)?,
            told: None,
        }),
    })
}

/// The token that clients must present, if there is one.
pub(crate) fn token(
    environment: &Environment,
    of_file: Option<&Path>,
) -> Result<Option<String>, Failure> {
    let named = environment.token_file.as_deref();
    let file = match (named, &environment.token) {
        (None, Some(token)) => return Ok(Some(token.0.clone())),
        _ => named.or(of_file),
    };
    let Some(file) = file else {
        return Ok(None);
    };
    let read = read_token(file).with_context(|| format!("the token file {}", file.display()));
    read.map(Some).map_err(|error| {
        Failure::input(error).hint(
            "set MAINSTAY_TOKEN_FILE to a file with one token, of mode 0600, or of root and mode 0440",
        )
    })
}

/// The token of a person who may approve calls, if there is one.
fn approver_token(file: Option<&Path>) -> Result<Option<String>, Failure> {
    let Some(file) = file else {
        return Ok(None);
    };
    let read = read_token(file).with_context(|| format!("the token file {}", file.display()));
    read.map(Some).map_err(|error| {
        let hint = "approver_token_file names a file with one token, of mode 0600";
        Failure::input(error).hint(hint)
    })
}

/// The issuer whose access tokens are taken, if there is one.
fn issuer(environment: &Environment, file: &ConfigFile) -> Result<Option<Issuer>, Failure> {
    let of_environment = environment
        .issuer
        .as_ref()
        .zip(environment.keys_file.as_ref());
    let of_file = || file.issuer.as_ref().zip(file.issuer_keys.as_ref());
    let Some((url, keys)) = of_environment.or_else(of_file) else {
        return Ok(None);
    };
    let keys = read_keys(keys).with_context(|| format!("the key set {}", keys.display()));
    let keys = keys.map_err(|error| {
        Failure::input(error).hint("set MAINSTAY_ISSUER_KEYS to the issuer's JSON Web Key Set")
    })?;
    Ok(Some(Issuer {
        url: url.clone(),
        keys: Arc::new(keys),
        resource: environment.resource.clone().or(file.resource.clone()),
    }))
}

fn read_keys(file: &Path) -> anyhow::Result<Keys> {
    let text = start::read(file, KEYS_BYTES)?.bytes;
    Ok(Keys::parse(&String::from_utf8(text)?)?)
}

fn read_token(file: &Path) -> anyhow::Result<String> {
    let file = start::read(file, TOKEN_BYTES)?;
    check_access(file.uid, file.mode)?;
    let text = String::from_utf8(file.bytes)?;
    let token = text.trim();
    if is_token(token) {
        Ok(token.to_owned())
    } else {
        Err(anyhow!("it holds no token: one line of visible characters"))
    }
}

/// Rejects a token file that others than its owner may use. Mounted secrets belong to root and are readable by
/// the group of the process that they are meant for.
pub(crate) fn check_access(owner: u32, mode: u32) -> anyhow::Result<()> {
    let allowed = if owner == 0 { 0o740 } else { 0o700 };
    if mode & 0o777 & !allowed == 0 {
        Ok(())
    } else {
        Err(anyhow!("others than its owner may use it"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_for_its_owner_or_mounted_by_root_for_a_group() {
        for (owner, mode, good) in [
            (1000, 0o100_600, true),
            (1000, 0o100_400, true),
            (1000, 0o100_440, false),
            (0, 0o100_440, true),
            (0, 0o100_640, true),
            (0, 0o100_660, false),
            (0, 0o100_444, false),
        ] {
            let checked = check_access(owner, mode);
            assert_eq!(checked.is_ok(), good, "{owner} {mode:o}");
        }
    }
}
