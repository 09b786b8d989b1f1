//! How clients reach a host: what the command line says counts before the environment.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, anyhow};
use mainstay_host::config::Transport;
use mainstay_host::files::{self, Links};
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
        Failure::input(error).hint(
            "set MAINSTAY_TOKEN_FILE to a file with one token, of mode 0600, or of root and mode 0440",
        )
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
    let (text, _) = files::read(file, KEYS_BYTES, Links::Follow)?;
    Ok(Keys::parse(&String::from_utf8(text)?)?)
}

fn read_token(file: &Path) -> anyhow::Result<String> {
    let (text, facts) = files::read(file, TOKEN_BYTES, Links::Follow)?;
    check_access(facts.uid(), facts.mode())?;
    let text = String::from_utf8(text)?;
    let token = text.trim();
    if is_token(token) {
        Ok(token.to_owned())
    } else {
        Err(anyhow!("it holds no token: one line of visible characters"))
    }
}

/// Rejects a token file that others than its owner may use. Mounted secrets belong to root and are readable by
/// the group of the process that they are meant for.
fn check_access(owner: u32, mode: u32) -> anyhow::Result<()> {
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
