//! A server that is reached at a URL, as the command line and a file name it.
//!
//! Credentials come from a file, a command or the environment. The values of `headers` in a file are filled in like
//! those of `env`, so that the file itself needs to hold none.

use std::net::IpAddr;
use std::path::PathBuf;

use anyhow::{Context as _, anyhow, bail};
use mainstay_host::config::{Remote, RemoteTransport, TokenSource};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::args::RemoteArgs;
use crate::environment;
use crate::secrets::Filled;

/// Members with the URL of a server, as clients write them.
const URLS: [&str; 3] = ["url", "serverUrl", "httpUrl"];

/// The part under `mainstay` of an entry.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RemoteSettings {
    token_file: Option<PathBuf>,
    token_command: Option<Vec<String>>,
    token_env: Option<String>,
    header_file: Option<PathBuf>,
    ca: Option<PathBuf>,
    proxy: Option<String>,
}

/// True if an entry names a URL.
pub(crate) fn is_remote(entry: &Value) -> bool {
    URLS.iter().any(|url| entry.get(url).is_some())
}

/// The server of an entry.
pub(crate) fn of_entry(
    entry: &Map<String, Value>,
    settings: RemoteSettings,
    variable: &impl Fn(&str) -> Option<String>,
    expand: &impl Fn(&str) -> anyhow::Result<String>,
    fill: &impl Fn(&str) -> anyhow::Result<Filled>,
) -> anyhow::Result<Remote> {
    let url = URLS.iter().find_map(|url| entry.get(*url));
    let url = url.and_then(Value::as_str);
    let url = url.ok_or_else(|| anyhow!("url must be a string"))?;
    let mut remote = new(&expand(url)?, variable)?;
    let kind = entry.get("type").or_else(|| entry.get("transport"));
    let kind = kind.map_or(Some("auto"), Value::as_str).unwrap_or_default();
    remote.transport = match kind {
        "auto" => RemoteTransport::Auto,
        "http" | "streamable-http" | "streamableHttp" | "streamable_http" => RemoteTransport::Http,
        "sse" => RemoteTransport::Sse,
        other => bail!("type {other:?} cannot be wrapped; known are http and sse"),
    };
    // Codex has other names for headers.
    for member in ["headers", "http_headers"] {
        for (name, value) in object(entry, member)? {
            let filled = fill(text(member, value)?);
            let (value, values) = filled.with_context(|| format!("the header {name}"))?;
            remote.headers.push((name.clone(), value));
            remote.secrets.extend(values);
        }
    }
    for (name, value) in object(entry, "env_http_headers")? {
        let value = value_of(text("env_http_headers", value)?, variable)?;
        remote.headers.push((name.clone(), value));
    }
    let codex = entry.get("bearer_token_env_var").and_then(Value::as_str);
    let name = settings.token_env.as_deref().or(codex);
    remote.token = token(settings.token_file, settings.token_command, name, variable)?;
    remote.header_file = settings.header_file;
    remote.ca_file = settings.ca;
    remote.proxy = settings.proxy.or(remote.proxy);
    Ok(remote)
}

/// The server that the command line names, or what it adds to that of a file.
pub(crate) fn of_arguments(
    arguments: &RemoteArgs,
    of_file: Option<Remote>,
    variable: &impl Fn(&str) -> Option<String>,
) -> anyhow::Result<Option<Remote>> {
    let Some(mut remote) = (match &arguments.url {
        Some(url) => {
            let mut remote = new(url, variable)?;
            remote.headers = environment::headers();
            Some(remote)
        }
        None => of_file,
    }) else {
        if arguments.has_any() {
            bail!("options for a server at a URL need --url, or a file with a url");
        }
        return Ok(None);
    };
    let command = match &arguments.token_command {
        Some(line) => Some(
            shlex::split(line)
                .filter(|words| !words.is_empty())
                .ok_or_else(|| anyhow!("--token-command cannot be split into words"))?,
        ),
        None => None,
    };
    let file = arguments.token_file.clone();
    let given = token(file, command, arguments.token_env.as_deref(), variable)?;
    remote.token = given.or(remote.token);
    remote.header_file = arguments.header_file.clone().or(remote.header_file);
    for pair in &arguments.header_env {
        let (header, name) = pair
            .split_once('=')
            .filter(|(header, name)| !header.is_empty() && !name.is_empty())
            .ok_or_else(|| anyhow!("--header-env {pair} is not of the form HEADER=NAME"))?;
        let value = value_of(name, variable)?;
        remote.headers.push((header.to_owned(), value));
    }
    remote.ca_file = arguments.ca.clone().or(remote.ca_file);
    remote.proxy = arguments.proxy.clone().or(remote.proxy);
    if let Some(kind) = arguments.url_type {
        remote.transport = kind.into();
    }
    Ok(Some(remote))
}

fn new(url: &str, variable: &impl Fn(&str) -> Option<String>) -> anyhow::Result<Remote> {
    let mut remote = Remote::new(url).map_err(|why| anyhow!(why))?;
    remote.proxy = proxy(&remote, variable);
    let bundle = variable("SSL_CERT_FILE").filter(|path| !path.is_empty());
    remote.system_ca = bundle.map(PathBuf::from);
    Ok(remote)
}

fn token(
    file: Option<PathBuf>,
    command: Option<Vec<String>>,
    name: Option<&str>,
    variable: &impl Fn(&str) -> Option<String>,
) -> anyhow::Result<Option<TokenSource>> {
    Ok(match (file, command, name) {
        (None, None, None) => None,
        (Some(file), None, None) => Some(TokenSource::File(file)),
        (None, Some(command), None) => Some(TokenSource::Command(command)),
        (None, None, Some(name)) => Some(TokenSource::Variable {
            name: name.to_owned(),
            value: value_of(name, variable)?,
        }),
        _ => bail!("a token can come from a file, a command or a variable, not from two of them"),
    })
}

fn value_of(name: &str, variable: &impl Fn(&str) -> Option<String>) -> anyhow::Result<String> {
    let value = variable(name).filter(|value| !value.is_empty());
    value.ok_or_else(|| anyhow!("the variable {name} is not set"))
}

fn object<'a>(
    entry: &'a Map<String, Value>,
    member: &str,
) -> anyhow::Result<impl Iterator<Item = (&'a String, &'a Value)>> {
    let members = match entry.get(member) {
        None | Some(Value::Null) => None,
        Some(Value::Object(members)) => Some(members),
        Some(_) => bail!("{member} must be an object"),
    };
    Ok(members.into_iter().flatten())
}

fn text<'a>(member: &str, value: &'a Value) -> anyhow::Result<&'a str> {
    value
        .as_str()
        .ok_or_else(|| anyhow!("the values of {member} must be strings"))
}

/// The proxy that the environment names for a URL.
fn proxy(remote: &Remote, variable: &impl Fn(&str) -> Option<String>) -> Option<String> {
    let host = remote.host();
    let is_loopback = host == "localhost"
        || host
            .parse::<IpAddr>()
            .is_ok_and(|address| address.is_loopback());
    let set = |name: &str| {
        let lower = variable(&name.to_ascii_lowercase());
        let value = lower.or_else(|| variable(name));
        value.filter(|value| !value.is_empty())
    };
    let excepted = set("NO_PROXY").unwrap_or_default();
    if is_loopback || is_excepted(&excepted, &host, remote.port()) {
        return None;
    }
    let own = if remote.is_https() {
        "HTTPS_PROXY"
    } else {
        "HTTP_PROXY"
    };
    set(own).or_else(|| set("ALL_PROXY"))
}

/// True if a list of hosts has this one: `*`, a name, or a domain with all names below it.
fn is_excepted(list: &str, host: &str, port: u16) -> bool {
    list.split(',').map(str::trim).any(|entry| {
        let (name, wanted) = match entry.rsplit_once(':') {
            Some((name, wanted)) if !name.contains(':') => (name, wanted.parse().ok()),
            _ => (entry, None),
        };
        let name = name.trim_start_matches("*.").trim_start_matches('.');
        let host = host.to_ascii_lowercase();
        let name = name.to_ascii_lowercase();
        let is_below = host
            .strip_suffix(&name)
            .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
        wanted.is_none_or(|wanted: u16| wanted == port)
            && (name == "*" || (!name.is_empty() && is_below))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(entry: &str, settings: &str, set: &[(&str, &str)]) -> anyhow::Result<Remote> {
        let variable = |name: &str| {
            let found = set.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let entry: Map<String, Value> = serde_json::from_str(entry).unwrap();
        let expand = |text: &str| Ok(text.replace("${KEY}", &variable("KEY").unwrap_or_default()));
        let settings = serde_json::from_str(settings)?;
        let fill = |text: &str| Ok((expand(text)?, Vec::new()));
        of_entry(&entry, settings, &variable, &expand, &fill)
    }

    #[test]
    fn an_entry_of_each_client_is_read() {
        let remote = read(
            r#"{"type": "sse", "url": "https://h/sse", "headers": {"X-Key": "a ${KEY}"}}"#,
            "{}",
            &[("KEY", "s3cret")],
        );
        let remote = remote.unwrap();
        assert_eq!(remote.transport, RemoteTransport::Sse);
        assert_eq!(
            remote.headers,
            [("X-Key".to_owned(), "a s3cret".to_owned())]
        );
        let codex = read(
            r#"{"url": "https://h/mcp", "bearer_token_env_var": "KEY", "http_headers": {"A": "b"}, "env_http_headers": {"C": "KEY"}}"#,
            "{}",
            &[("KEY", "s3cret")],
        );
        let codex = codex.unwrap();
        assert!(
            matches!(&codex.token, Some(TokenSource::Variable { value, .. }) if value == "s3cret")
        );
        assert_eq!(codex.headers.len(), 2);
        assert!(!format!("{codex:?}").contains("s3cret"));
    }

    #[test]
    fn options_name_the_variables_of_headers() {
        let variable = |name: &str| (name == "KEY").then(|| "s3cret".to_owned());
        let read = |pair: &str| {
            let arguments = RemoteArgs {
                url: Some("https://h/mcp".to_owned()),
                header_env: vec![pair.to_owned()],
                ..RemoteArgs::default()
            };
            of_arguments(&arguments, None, &variable)
        };
        let remote = read("X-Key=KEY").unwrap().unwrap();
        let last = remote.headers.last().cloned();
        assert_eq!(last, Some(("X-Key".to_owned(), "s3cret".to_owned())));
        for (pair, said) in [
            ("X=NOPE", "NOPE is not set"),
            ("KEY", "HEADER=NAME"),
            ("=KEY", "HEADER=NAME"),
        ] {
            let error = read(pair).unwrap_err();
            assert!(error.to_string().contains(said), "{error}");
        }
    }

    #[test]
    fn mistakes_are_named() {
        let said = |entry: &str, settings: &str| {
            let error = read(entry, settings, &[]).unwrap_err();
            format!("{error:#}")
        };
        let plain = r#"{"url": "https://h/mcp"}"#;
        assert!(said(r#"{"url": 7}"#, "{}").contains("must be a string"));
        assert!(said(r#"{"url": "https://a:b@h/"}"#, "{}").contains("password"));
        assert!(said(r#"{"type": "ws", "url": "https://h/"}"#, "{}").contains("known are"));
        assert!(said(plain, r#"{"token_env": "NOPE"}"#).contains("NOPE is not set"));
        let two = r#"{"token_env": "A", "token_file": "b"}"#;
        assert!(said(plain, two).contains("not from two"));
        assert!(said(plain, r#"{"token": "visible"}"#).contains("unknown field"));
    }

    #[test]
    fn a_proxy_is_used_unless_the_host_is_excepted() {
        let proxy_of = |url: &str, set: &[(&str, &str)]| {
            read(&format!(r#"{{"url": "{url}"}}"#), "{}", set)
                .unwrap()
                .proxy
        };
        let both = [
            ("HTTPS_PROXY", "http://p:1"),
            ("NO_PROXY", "a.com, .b.com:444,c"),
        ];
        assert_eq!(proxy_of("https://h/", &both).as_deref(), Some("http://p:1"));
        assert_eq!(proxy_of("http://h/", &both), None);
        for excepted in [
            "https://a.com/",
            "https://x.a.com/",
            "https://x.b.com:444/",
            "https://c/",
        ] {
            assert_eq!(proxy_of(excepted, &both), None, "{excepted}");
        }
        for other in ["https://xa.com/", "https://x.b.com/", "https://x.c.org/"] {
            assert!(proxy_of(other, &both).is_some(), "{other}");
        }
        assert_eq!(proxy_of("https://127.0.0.1:1/", &both), None);
        let all = [("ALL_PROXY", "http://p"), ("no_proxy", "*")];
        assert_eq!(proxy_of("https://h/", &all), None);
    }
}
