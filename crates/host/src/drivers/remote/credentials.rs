//! The headers that prove who asks. They are read when the first request is sent, and again after a 401.

use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use hyper::HeaderMap;
use hyper::header::{AUTHORIZATION, HeaderName, HeaderValue};
use mainstay_contract::envelope::redact::Redactor;
use tokio::sync::Mutex;

use crate::files::{self, Links};
use crate::process::PipedChild;
use crate::remote::{Remote, TokenSource, credentials_in};

/// Longest file or output with a credential.
const BYTES: u64 = 64 * 1024;
/// Most headers that are configured.
const HEADERS: usize = 64;
/// Time for a command that prints a token.
const COMMAND: Duration = Duration::from_secs(30);
/// Headers that belong to the transport.
const OWN: [&str; 11] = [
    "accept",
    "connection",
    "content-length",
    "content-type",
    "host",
    "last-event-id",
    "mcp-method",
    "mcp-name",
    "mcp-protocol-version",
    "mcp-session-id",
    "transfer-encoding",
];
/// The headers that repeat arguments of a call begin so.
const OF_ARGUMENTS: &str = "mcp-param-";

/// The credentials for one server.
#[derive(Debug, Default)]
pub(super) struct Credentials {
    current: Mutex<Option<Current>>,
    /// Learns them, so that nothing that the host writes down shows them.
    redactor: OnceLock<Redactor>,
}

#[derive(Clone, Debug)]
struct Current {
    headers: HeaderMap,
    /// How often they were read.
    edition: u64,
}

impl Credentials {
    /// Nothing that goes through `redactor` shows them from now on.
    pub(super) fn hide_from(&self, redactor: &Redactor) {
        let _ = self.redactor.set(redactor.clone());
    }

    async fn read(&self, remote: &Remote) -> Result<HeaderMap, String> {
        let headers = read(remote).await?;
        if let Some(redactor) = self.redactor.get() {
            let values = headers.values().filter_map(|value| value.to_str().ok());
            redactor.learn(values.flat_map(credentials_in));
        }
        Ok(headers)
    }

    /// The headers, and their edition. An error names the file or the command.
    pub(super) async fn headers(&self, remote: &Remote) -> Result<(HeaderMap, u64), String> {
        let mut current = self.current.lock().await;
        if current.is_none() {
            let headers = self.read(remote).await?;
            *current = Some(Current {
                headers,
                edition: 1,
            });
        }
        let current = current.as_ref();
        Ok(current.map_or_else(Default::default, |current| {
            (current.headers.clone(), current.edition)
        }))
    }

    /// Reads them again after the server rejected this edition. True if there are others now.
    pub(super) async fn refresh(&self, remote: &Remote, rejected: u64) -> Result<bool, String> {
        let mut current = self.current.lock().await;
        let known = current.as_ref().map_or(0, |current| current.edition);
        // Another exchange was rejected first, and has read them.
        if known > rejected {
            return Ok(true);
        }
        let headers = self.read(remote).await?;
        let changed = current
            .as_ref()
            .is_none_or(|current| current.headers != headers);
        let edition = known + u64::from(changed);
        *current = Some(Current { headers, edition });
        Ok(changed)
    }
}

async fn read(remote: &Remote) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    for (name, value) in &remote.headers {
        add(&mut headers, name, value)?;
    }
    if let Some(path) = &remote.header_file {
        let named = |why: String| format!("{}: {why}", path.display());
        let text = read_file(path)?;
        let lines = text.lines().map(str::trim);
        let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
        for line in lines.take(HEADERS) {
            let Some((name, value)) = line.split_once(':') else {
                return Err(named("a line is not NAME: VALUE".to_owned()));
            };
            add(&mut headers, name.trim(), value.trim()).map_err(named)?;
        }
    }
    if let Some(source) = &remote.token {
        let token = match source {
            TokenSource::File(path) => read_file(path)?,
            TokenSource::Variable { value, .. } => value.clone(),
            TokenSource::Command(words) => run(words).await?,
        };
        let token = token.lines().next().unwrap_or_default().trim();
        if token.is_empty() {
            return Err(format!("{} holds no token", source.place()));
        }
        headers.remove(AUTHORIZATION);
        add(&mut headers, "authorization", &format!("Bearer {token}")).map_err(|_| {
            format!(
                "{} holds a token with characters that no header can have",
                source.place()
            )
        })?;
    }
    Ok(headers)
}

fn add(headers: &mut HeaderMap, name: &str, value: &str) -> Result<(), String> {
    let parsed: HeaderName = name
        .parse()
        .map_err(|_| format!("{name:?} is not the name of a header"))?;
    let name = parsed.as_str();
    if OWN.contains(&name) || name.starts_with(OF_ARGUMENTS) {
        return Err(format!("the header {parsed} cannot be configured"));
    }
    let mut value = HeaderValue::from_str(value).map_err(|_| {
        format!("the value of the header {parsed} has characters that no header can have")
    })?;
    value.set_sensitive(true);
    headers.append(parsed, value);
    Ok(())
}

fn read_file(path: &Path) -> Result<String, String> {
    let named = |why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
    let (bytes, _) = files::read(path, BYTES, Links::Follow).map_err(|error| named(&error))?;
    String::from_utf8(bytes).map_err(|_| named(&"it is not UTF-8"))
}

/// Runs a command and gives what it prints.
async fn run(words: &[String]) -> Result<String, String> {
    let Some((program, arguments)) = words.split_first() else {
        return Err("the command for the token is empty".to_owned());
    };
    let failed = |why: &dyn std::fmt::Display| format!("the command {program} for the token {why}");
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| failed(&format!("cannot be started: {error}")))?;
    let stdout = child.stdout.take();
    // Its end is watched, so that neither the sweep for orphans nor a hang takes it from us.
    let mut child = PipedChild::watch(child).map_err(|error| failed(&error))?;
    let reading = tokio::task::spawn_blocking(move || {
        let mut text = String::new();
        stdout.map(|stdout| stdout.take(BYTES).read_to_string(&mut text));
        text
    });
    let waited = tokio::time::timeout(COMMAND, async {
        let text = reading.await;
        (text, child.wait().await)
    });
    match waited.await {
        // Dropping the child kills it.
        Err(_) => Err(failed(&format!("took longer than {} s", COMMAND.as_secs()))),
        Ok((Ok(text), Ok(status))) if status.success() => Ok(text),
        Ok((_, Ok(status))) => Err(failed(&format!("failed: {status}"))),
        Ok((_, Err(error))) => Err(failed(&error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remote() -> Remote {
        Remote::new("https://tools.example.com/mcp").unwrap()
    }

    #[tokio::test]
    async fn a_token_is_read_again_after_it_was_rejected() {
        let path = std::env::temp_dir().join(format!("mainstay-token-{}", std::process::id()));
        std::fs::write(&path, "first\n").unwrap();
        let mut remote = remote();
        remote.token = Some(TokenSource::File(path.clone()));
        remote.headers = vec![("X-Team".to_owned(), "blue".to_owned())];
        let credentials = Credentials::default();
        let (headers, edition) = credentials.headers(&remote).await.unwrap();
        assert_eq!(headers["authorization"], "Bearer first");
        assert_eq!(headers["x-team"], "blue");
        assert!(
            !credentials.refresh(&remote, edition).await.unwrap(),
            "unchanged"
        );
        std::fs::write(&path, "second").unwrap();
        assert!(credentials.refresh(&remote, edition).await.unwrap());
        let (headers, second) = credentials.headers(&remote).await.unwrap();
        assert_eq!(headers["authorization"], "Bearer second");
        assert!(
            credentials.refresh(&remote, edition).await.unwrap(),
            "read by another exchange"
        );
        assert_eq!(credentials.headers(&remote).await.unwrap().1, second);
        std::fs::remove_file(path).unwrap();
        assert!(credentials.refresh(&remote, second).await.is_err());
    }

    #[tokio::test]
    async fn a_command_prints_a_token_or_says_why_not() {
        let of = |words: &[&str]| {
            let words = words.iter().map(|word| (*word).to_owned());
            let mut remote = remote();
            remote.token = Some(TokenSource::Command(words.collect()));
            remote
        };
        let read = |words: &'static [&'static str]| async move {
            Credentials::default().headers(&of(words)).await
        };
        let (headers, _) = read(&["echo", "abc"]).await.unwrap();
        assert_eq!(headers["authorization"], "Bearer abc");
        for (words, why) in [
            (&["false"][..], "failed"),
            (&["true"][..], "holds no token"),
            (&["/no/such/program"][..], "cannot be started"),
        ] {
            let said = read(words).await.unwrap_err();
            assert!(said.contains(why), "{said}");
        }
    }

    #[tokio::test]
    async fn a_pipe_in_the_place_of_a_file_is_rejected_and_not_waited_for() {
        use rustix::fs::{CWD, FileType, Mode};
        let path = std::env::temp_dir().join(format!("mainstay-pipe-{}", std::process::id()));
        rustix::fs::mknodat(CWD, &path, FileType::Fifo, Mode::RWXU, 0).unwrap();
        let mut token = remote();
        token.token = Some(TokenSource::File(path.clone()));
        let mut header = remote();
        header.header_file = Some(path.clone());
        for remote in [token, header] {
            let said = Credentials::default().headers(&remote).await.unwrap_err();
            assert!(said.contains("not a regular file"), "{said}");
        }
        let mut authority = remote();
        authority.ca_file = Some(path.clone());
        let said = super::super::tls::config(&authority).unwrap_err();
        assert!(said.contains("not a regular file"), "{said}");
        std::fs::remove_file(path).unwrap();
    }

    #[tokio::test]
    async fn headers_of_the_transport_cannot_be_configured() {
        for name in ["Mcp-Session-Id", "Mcp-Param-Region"] {
            let mut remote = remote();
            remote.headers = vec![(name.to_owned(), "x".to_owned())];
            let said = Credentials::default().headers(&remote).await.unwrap_err();
            assert!(said.contains("cannot be configured"), "{said}");
        }
    }
}
