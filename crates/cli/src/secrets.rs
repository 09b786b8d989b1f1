//! `${secret:NAME}`: values that a configuration names and does not hold.
//!
//! They come from one source: a command, private files, or the secret service of the desktop. A value is read when the
//! host starts and again at SIGHUP. It is a part of the settings: an upgrade in place takes it along ([`start::secret`]).

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail};
use mainstay_contract::envelope::redact::{MARK, SHORTEST};
use mainstay_host::config::Remote;
use mainstay_host::files::{self, Links};
use mainstay_host::read_secret_command;
use mainstay_schema::Fingerprint;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::os::unix::fs::MetadataExt as _;

use crate::environment::withheld;
use crate::start;
use crate::transport::check_access;

/// Begins a reference, behind `${`.
const PREFIX: &str = "secret:";
/// Stands for the name in a command or a path.
const NAME: &str = "{name}";
/// Longest name.
const NAME_BYTES: usize = 128;
/// Longest value, and longest file with values.
const VALUE_BYTES: u64 = 64 * 1024;
/// Different secrets that one configuration may name.
const REFERENCES: usize = 64;
/// Time for all secrets of a configuration together: a keyring may ask its user first.
const TIME: Duration = Duration::from_secs(60);

/// Where values come from: the table `secrets` of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct SecretSource {
    /// A program and its arguments; it prints the value.
    command: Option<Vec<String>>,
    /// A file per secret, or one with a line `NAME=VALUE` for each.
    file: Option<PathBuf>,
    /// The secret service of the desktop.
    service: bool,
}

/// The secrets of one configuration while it is read.
pub(crate) struct Secrets {
    source: SecretSource,
    /// Keeps the values of this source apart from those of the file's: a server may have a source of its own.
    scope: String,
    until: Instant,
    known: RefCell<Vec<(String, String)>>,
}

/// A text with its references filled in, and the values that were filled in.
pub(crate) type Filled = (String, Vec<String>);

impl Secrets {
    /// The secrets of the whole file.
    pub(crate) fn new(source: SecretSource) -> Self {
        Self {
            source,
            scope: String::new(),
            until: Instant::now() + TIME,
            known: RefCell::default(),
        }
    }

    /// The secrets of one server with a source of its own.
    pub(crate) fn of_server(source: SecretSource) -> Self {
        // No name has a space.
        let scope = format!("{} ", Fingerprint::of(&json!(source)));
        Self {
            scope,
            ..Self::new(source)
        }
    }

    /// Replaces every reference of a text. `rest` fills in what is around them.
    pub(crate) fn fill(
        &self,
        text: &str,
        rest: impl Fn(&str) -> anyhow::Result<String>,
    ) -> anyhow::Result<Filled> {
        let (mut filled, mut values) = (String::with_capacity(text.len()), Vec::new());
        let mut left = text;
        while let Some((before, behind)) = left.split_once("${secret:") {
            filled.push_str(&rest(before)?);
            let (name, behind) = behind
                .split_once('}')
                .ok_or_else(|| anyhow!("a reference ${{{PREFIX}NAME}} is not closed"))?;
            let value = self.value(name)?;
            filled.push_str(&value);
            values.push(value);
            left = behind;
        }
        filled.push_str(&rest(left)?);
        Ok((filled, values))
    }

    fn value(&self, name: &str) -> anyhow::Result<String> {
        check_name(name)?;
        let known = self
            .known
            .borrow()
            .iter()
            .find(|(known, _)| known == name)
            .cloned();
        if let Some((_, value)) = known {
            return Ok(value);
        }
        if self.known.borrow().len() >= REFERENCES {
            bail!("the file names more than {REFERENCES} secrets");
        }
        let kept = format!("{}{name}", self.scope);
        let value = start::secret(&kept, || self.read(name));
        let value = value.with_context(|| format!("the secret {name}"))?;
        self.known
            .borrow_mut()
            .push((name.to_owned(), value.clone()));
        Ok(value)
    }

    fn read(&self, name: &str) -> anyhow::Result<String> {
        let bytes = match &self.source {
            SecretSource {
                command: Some(words),
                file: None,
                service: false,
            } => self.run(words, name)?,
            SecretSource {
                command: None,
                file: Some(path),
                service: false,
            } => of_file(path, name)?,
            SecretSource {
                command: None,
                file: None,
                service: true,
            } => self.of_service(name)?,
            SecretSource {
                command: None,
                file: None,
                service: false,
            } => bail!(
                "there is no source of secrets; add a table secrets to the file with command, file or service"
            ),
            _ => bail!("secrets has more than one of command, file and service; choose one"),
        };
        check_value(bytes)
    }

    fn run(&self, words: &[String], name: &str) -> anyhow::Result<Vec<u8>> {
        if !words.iter().skip(1).any(|word| word.contains(NAME)) {
            bail!("secrets.command must have {NAME} in one of its arguments");
        }
        let words: Vec<String> = words.iter().map(|word| word.replace(NAME, name)).collect();
        read_secret_command(&words, &withheld(), self.until, VALUE_BYTES).map_err(|why| {
            anyhow!("{why}; run it yourself to see what it says, its output is not shown here")
        })
    }

    fn of_service(&self, name: &str) -> anyhow::Result<Vec<u8>> {
        let words = ["secret-tool", "lookup", "service", "mainstay", "name", name];
        let words = words.map(str::to_owned);
        read_secret_command(&words, &withheld(), self.until, VALUE_BYTES).map_err(|why| {
            anyhow!(
                "{why}; secrets.service needs secret-tool (of libsecret), an unlocked keyring, and the value, stored \
                 with: secret-tool store --label={name} service mainstay name {name}"
            )
        })
    }
}

/// A text with a mark in the place of every one of these values.
pub(crate) fn without(text: &str, values: &[String]) -> String {
    let mut text = text.to_owned();
    for value in values {
        text = text.replace(value, MARK);
    }
    text
}

/// A remote server with that mark in its headers.
pub(crate) fn remote_without(remote: &Remote) -> Remote {
    let mut clean = remote.clone();
    for (_, value) in &mut clean.headers {
        *value = without(value, &remote.secrets);
    }
    clean.secrets.clear();
    clean
}

/// The names of references never leave the place where values are looked for.
fn check_name(name: &str) -> anyhow::Result<()> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
    let is_good = name.len() <= NAME_BYTES
        && name.chars().all(fits)
        && name.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
        && name.split('/').all(|part| !part.is_empty() && part != "..");
    if !is_good {
        bail!(
            "{name:?} is not the name of a secret: letters, digits, '_', '-', '.' and '/', at most {NAME_BYTES}, without default"
        );
    }
    Ok(())
}

/// The text of a value: without the end of its line.
fn check_value(bytes: Vec<u8>) -> anyhow::Result<String> {
    // The error of the conversion would show where the value is wrong.
    let text = String::from_utf8(bytes).map_err(|_| anyhow!("its value is not UTF-8"))?;
    let value = text.strip_suffix('\n').unwrap_or(&text);
    let value = value.strip_suffix('\r').unwrap_or(value);
    match value {
        "" => bail!("its value is empty"),
        _ if value.contains('\0') => bail!("its value has a zero byte"),
        _ if value.trim().len() < SHORTEST => bail!(
            "its value has fewer than {SHORTEST} bytes; so short a value cannot be kept out of logs"
        ),
        _ => Ok(value.to_owned()),
    }
}

/// A value of a private file.
fn of_file(path: &Path, name: &str) -> anyhow::Result<Vec<u8>> {
    let named = path.to_string_lossy();
    let path = PathBuf::from(named.replace(NAME, name));
    let shown = || path.display().to_string();
    let (bytes, facts) = files::read(&path, VALUE_BYTES, Links::Follow).with_context(shown)?;
    let own = rustix::process::geteuid().as_raw();
    if ![0, own].contains(&facts.uid()) {
        bail!("{} belongs to another user", shown());
    }
    check_access(facts.uid(), facts.mode()).with_context(|| {
        format!(
            "{}: set its mode to 0600, or mount it as root with 0440",
            shown()
        )
    })?;
    if named.contains(NAME) {
        return Ok(bytes);
    }
    let text = String::from_utf8(bytes).map_err(|_| anyhow!("{} is not UTF-8", shown()))?;
    let mut lines = text.lines().map(str::trim_start);
    let value = lines.find_map(|line| {
        let (key, value) = line.split_once('=')?;
        (!line.starts_with('#') && key.trim_end() == name).then(|| value.trim())
    });
    let value = value.ok_or_else(|| anyhow!("{} has no line {name}=VALUE", shown()))?;
    Ok(value.as_bytes().to_vec())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn filled(source: SecretSource, text: &str) -> anyhow::Result<Filled> {
        Secrets::new(source).fill(text, |rest| Ok(rest.to_owned()))
    }

    fn of_command(script: &str) -> SecretSource {
        let words = ["sh", "-c", script, "sh", NAME].map(str::to_owned);
        SecretSource {
            command: Some(words.to_vec()),
            ..SecretSource::default()
        }
    }

    #[test]
    fn references_are_replaced_and_their_values_named() {
        let source = of_command("echo value-of-$1");
        let (text, values) =
            filled(source.clone(), "Bearer ${secret:a/b} and ${secret:c}").unwrap();
        assert_eq!(text, "Bearer value-of-a/b and value-of-c");
        assert_eq!(values, ["value-of-a/b", "value-of-c"]);
        assert_eq!(
            filled(source, "${HOME} as it is").unwrap().0,
            "${HOME} as it is"
        );
    }

    #[test]
    fn mistakes_name_the_reference_and_never_the_value() {
        let said = |source, text: &str| {
            let error = filled(source, text).unwrap_err();
            let said = format!("{error:#}");
            assert!(!said.contains("s3cret"), "{said}");
            said
        };
        let plain = || of_command("echo s3cret-value");
        for name in ["", "../a", "a/../b", "-x", "/etc/x", "a b", "a:-s", "a//b"] {
            let text = format!("${{secret:{name}}}");
            assert!(said(plain(), &text).contains("is not the name"), "{name}");
        }
        assert!(said(plain(), "${secret:a").contains("not closed"));
        for (script, why) in [
            ("echo s3cret; exit 1", "exit status: 1"),
            ("printf s3cret", "fewer than 8 bytes"),
            ("printf ''", "empty"),
            (r"printf 's3cret\377value'", "not UTF-8"),
            (r"printf 's3cret\000value'", "zero byte"),
            ("yes s3cret-value", "more than 65536 bytes"),
        ] {
            let said = said(of_command(script), "${secret:key}");
            assert!(
                said.contains("the secret key") && said.contains(why),
                "{said}"
            );
        }
        let none = SecretSource::default();
        assert!(said(none, "${secret:a}").contains("there is no source"));
        let two = SecretSource {
            service: true,
            ..plain()
        };
        assert!(said(two, "${secret:a}").contains("more than one"));
        let nameless = SecretSource {
            command: Some(vec!["true".to_owned()]),
            ..SecretSource::default()
        };
        assert!(said(nameless, "${secret:a}").contains("must have {name}"));
        let many: String = (0..=REFERENCES)
            .map(|number| format!("${{secret:a{number}}}"))
            .collect();
        assert!(said(plain(), &many).contains("more than 64 secrets"));
    }

    #[test]
    fn a_file_is_private_and_holds_one_value_or_a_line_for_each() {
        let folder = std::env::temp_dir().join(format!("mainstay-secrets-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let write = |name: &str, text: &str, mode| {
            let path = folder.join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            path
        };
        let of = |file: PathBuf, name: &str| {
            let file = Some(file);
            let source = SecretSource {
                file,
                ..SecretSource::default()
            };
            filled(source, &format!("${{secret:{name}}}")).map(|(text, _)| text)
        };
        let all = write(
            "all",
            "# k=no\nother = 12345678\nk=va=lue with spaces \n",
            0o600,
        );
        assert_eq!(of(all.clone(), "k").unwrap(), "va=lue with spaces");
        assert!(format!("{:#}", of(all, "absent").unwrap_err()).contains("no line absent=VALUE"));
        write("single", "first line\nsecond line\n", 0o400);
        let each = folder.join("{name}");
        assert_eq!(
            of(each.clone(), "single").unwrap(),
            "first line\nsecond line"
        );
        let open = write("open", "12345678", 0o644);
        let said = format!("{:#}", of(each.clone(), "open").unwrap_err());
        assert!(
            said.contains("others than its owner") && said.contains("0600"),
            "{said}"
        );
        fs::remove_file(open).unwrap();
        assert!(format!("{:#}", of(each, "none").unwrap_err()).contains("the secret none"));
        fs::remove_dir_all(&folder).unwrap();
    }
}
