//! The permissions of a sandboxed server.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::learn::Learn;

/// The permissions of a server. The system directories are readable without being named. Paths of `read` and `write` have no
/// links.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// Files and directories of the server's own program, as [`runtime_of`](crate::runtime_of) finds them. Links are followed.
    #[serde(default)]
    pub runtime: Vec<PathBuf>,
    /// Files and directories that the server may read and execute.
    #[serde(default)]
    pub read: Vec<PathBuf>,
    /// Files and directories that the server may read and change.
    #[serde(default)]
    pub write: Vec<PathBuf>,
    #[serde(default)]
    pub net: Net,
    #[serde(default)]
    pub resources: Resources,
    /// Start the server even if the kernel lacks a restriction.
    #[serde(default)]
    pub best_effort: bool,
    /// Watch the server instead of restricting its files and its network.
    #[serde(default)]
    pub learn: Option<Learn>,
}

/// The network of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Net {
    /// No network, not even loopback.
    #[default]
    None,
    /// A loopback interface of its own.
    Loopback,
    /// TCP to these endpoints, through a relay; beside them as [`Net::Loopback`].
    Hosts(Vec<Endpoint>),
    /// The network of the machine.
    All,
}

impl Net {
    /// True if the server gets a network namespace.
    #[must_use]
    pub fn is_private(&self) -> bool {
        *self != Self::All
    }

    /// Reads the values of `--net`: one of the words, or endpoints.
    pub fn parse(values: &[String]) -> Result<Self, String> {
        match values {
            [] => Ok(Self::None),
            [one] if one == "none" => Ok(Self::None),
            [one] if one == "loopback" => Ok(Self::Loopback),
            [one] if one == "all" => Ok(Self::All),
            several => several
                .iter()
                .map(|value| value.parse())
                .collect::<Result<_, _>>()
                .map(Self::Hosts),
        }
    }
}

/// A TCP service outside the sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Endpoint {
    pub host: String,
    pub port: u16,
}

impl Endpoint {
    /// The host as an address, if it is one.
    #[must_use]
    pub fn address(&self) -> Option<IpAddr> {
        self.host.parse().ok()
    }
}

impl FromStr for Endpoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || {
            format!(
                "{text:?} is not HOST:PORT; write none, loopback, all, or an endpoint such as api.example.com:443"
            )
        };
        let (host, port) = text.rsplit_once(':').ok_or_else(expected)?;
        let bracketed = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'));
        let host = bracketed.unwrap_or(host);
        let is_name = |host: &str| {
            let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
            !host.is_empty()
                && host.len() <= 253
                && !host.starts_with('-')
                && host.chars().all(fits)
        };
        // An address of version 6 has colons of its own, so it needs the brackets.
        let is_host = match bracketed {
            Some(host) => host.parse::<Ipv6Addr>().is_ok(),
            None => is_name(host),
        };
        match port.parse::<u16>() {
            Ok(port) if port != 0 && is_host => Ok(Self {
                host: host.to_ascii_lowercase(),
                port,
            }),
            _ => Err(expected()),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address() {
            Some(IpAddr::V6(address)) => write!(f, "[{address}]:{}", self.port),
            _ => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

impl TryFrom<String> for Endpoint {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Endpoint> for String {
    fn from(endpoint: Endpoint) -> Self {
        endpoint.to_string()
    }
}

/// Limits of each process of the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Resources {
    /// Processes and threads of the user inside the sandbox. The kernel does not apply it to root.
    pub processes: u64,
    /// Open descriptors of one process.
    pub descriptors: u64,
    /// Writable memory of one process, in bytes.
    pub memory: u64,
    /// Bytes of the private temporary directory.
    pub temporary: u64,
}

impl Default for Resources {
    fn default() -> Self {
        Self {
            processes: 512,
            descriptors: 4096,
            memory: 8 << 30,
            temporary: 1 << 30,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(values: &[&str]) -> Result<Net, String> {
        Net::parse(&values.iter().map(ToString::to_string).collect::<Vec<_>>())
    }

    #[test]
    fn words_and_endpoints_are_read() {
        assert_eq!(net(&[]), Ok(Net::None));
        assert_eq!(net(&["loopback"]), Ok(Net::Loopback));
        assert_eq!(net(&["all"]), Ok(Net::All));
        let Ok(Net::Hosts(hosts)) = net(&["API.example.com:443", "127.0.0.1:5432", "[::1]:80"])
        else {
            panic!("three endpoints");
        };
        let written: Vec<String> = hosts.iter().map(ToString::to_string).collect();
        assert_eq!(
            written,
            ["api.example.com:443", "127.0.0.1:5432", "[::1]:80"]
        );
    }

    #[test]
    fn other_words_are_rejected_with_the_right_form() {
        for wrong in [
            "",
            "example.com",
            "host:",
            "host:0",
            "host:65536",
            "a b:1",
            "::1:80",
            "[x]:1",
            "-h:1",
        ] {
            let said = net(&[wrong]).unwrap_err();
            assert!(said.contains("HOST:PORT"), "{wrong:?}: {said}");
        }
        assert!(net(&["all", "a:1"]).is_err(), "a word beside endpoints");
    }

    #[test]
    fn a_policy_survives_its_text() {
        let policy = Policy {
            runtime: vec!["/r".into()],
            read: vec!["/a b".into()],
            write: vec![],
            net: Net::Hosts(vec!["h:1".parse().unwrap()]),
            resources: Resources::default(),
            best_effort: true,
            learn: None,
        };
        let text = serde_json::to_string(&policy).unwrap();
        assert_eq!(serde_json::from_str::<Policy>(&text).unwrap(), policy);
    }
}
