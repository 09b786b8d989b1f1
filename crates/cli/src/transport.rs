//! How clients reach a host: what the command line says counts before the environment.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, anyhow};
use mainstay_host::config::Transport;
use mainstay_host::{HttpConfig, Issuer, Keys};

use crate::args::Transports;
use crate::environment::{Endpoint, Environment, is_token};
use crate::exit::Failure;

/// Longest file with keys.
const KEYS_BYTES: u64 = 256 * 1024;
/// Longest file with a token.
const TOKEN_BYTES: u64 = 4096;

/// The transport that was asked for.
pub(crate) fn chosen(
    transports: &Transports,
    environment: &Environment,
) -> Result<Transport, Failure> {
    let endpoint = match (&transports.socket, &transports.http) {
        (Some(_), _) => Endpoint::Socket,
        (None, Some(_)) => Endpoint::Http,
        (None, None) => environment.endpoint,
    };
    Ok(match endpoint {
        Endpoint::Stdio => Transport::Stdio,
        Endpoint::Socket => Transport::Socket {
            path: transports
                .socket
                .clone()
                .unwrap_or_else(|| environment.socket_path.clone()),
            mode: environment.socket_mode,
        },
        Endpoint::Http => Transport::Http(HttpConfig {
            address: transports.http.unwrap_or(environment.http_address),
            allow_hosts: transports.allow_host.clone(),
            token: token(environment)?,
            issuer: issuer(environment)?,
            told: None,
        }),
    })
}

/// The token that clients must present, if there is one.
pub(crate) fn token(environment: &Environment) -> Result<Option<String>, Failure> {
    let Some(file) = &environment.token_file else {
        return Ok(environment.token.as_ref().map(|token| token.0.clone()));
    };
    let read = read_token(file).with_context(|| format!("the token file {}", file.display()));
    read.map(Some).map_err(|error| {
        Failure::input(error).hint("set MAINSTAY_TOKEN_FILE to a file of mode 0600 with one token")
    })
}

/// The issuer whose access tokens are taken, if there is one.
fn issuer(environment: &Environment) -> Result<Option<Issuer>, Failure> {
    let (Some(url), Some(file)) = (&environment.issuer, &environment.keys_file) else {
        return Ok(None);
    };
    let keys = read_keys(file).with_context(|| format!("the key set {}", file.display()));
    let keys = keys.map_err(|error| {
        Failure::input(error).hint("set MAINSTAY_ISSUER_KEYS to the issuer's JSON Web Key Set")
    })?;
    Ok(Some(Issuer {
        url: url.clone(),
        keys: Arc::new(keys),
        resource: environment.resource.clone(),
    }))
}

fn read_keys(file: &Path) -> anyhow::Result<Keys> {
    let facts = std::fs::metadata(file)?;
    if !facts.is_file() || facts.len() > KEYS_BYTES {
        return Err(anyhow!("it is not a file of at most {KEYS_BYTES} bytes"));
    }
    Ok(Keys::parse(&std::fs::read_to_string(file)?)?)
}

fn read_token(file: &Path) -> anyhow::Result<String> {
    let facts = std::fs::metadata(file)?;
    if !facts.is_file() || facts.len() > TOKEN_BYTES {
        return Err(anyhow!("it is not a short file"));
    }
    if facts.mode() & 0o077 != 0 {
        return Err(anyhow!("others than its owner may use it"));
    }
    let text = std::fs::read_to_string(file)?;
    let token = text.trim();
    if is_token(token) {
        Ok(token.to_owned())
    } else {
        Err(anyhow!("it holds no token: one line of visible characters"))
    }
}
