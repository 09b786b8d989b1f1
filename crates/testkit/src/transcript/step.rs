//! The lines of a transcript.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

/// A whole file.
#[derive(Debug)]
pub struct Transcript {
    /// The file's name, for messages.
    pub name: String,
    pub setup: Setup,
    /// Files to be there before the host starts: path and text.
    pub files: Vec<(String, String)>,
    /// Each with its line, counted from 1.
    pub steps: Vec<(usize, Step)>,
}

/// How the host is started.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Setup {
    pub packs: Vec<String>,
    pub args: Vec<String>,
    pub env: BTreeMap<String, String>,
}

/// One thing to do or to expect.
#[derive(Clone, Debug)]
pub enum Step {
    Send(Vec<u8>),
    /// The next message for the pattern's id or method.
    Expect(Expected),
    /// The very next message.
    ExpectNext(Expected),
    ExpectNone {
        ms: u64,
    },
}

/// A pattern without its id, and the exact text of that where it has one.
#[derive(Clone, Debug)]
pub struct Expected {
    pub pattern: Value,
    pub id: Option<String>,
    pub method: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    path: String,
    text: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Long {
    head: String,
    bytes: usize,
    tail: String,
}

impl Transcript {
    /// Reads a file.
    pub fn load(path: &Path) -> anyhow::Result<Self> {
        let text =
            std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        let name = path.file_name().unwrap_or(path.as_os_str());
        Self::parse(&name.to_string_lossy(), &text)
    }

    /// Reads the text of a file.
    pub fn parse(name: &str, text: &str) -> anyhow::Result<Self> {
        let mut transcript = Self {
            name: name.to_owned(),
            setup: Setup::default(),
            files: Vec::new(),
            steps: Vec::new(),
        };
        for (index, line) in text.lines().enumerate() {
            if !line.trim().is_empty() {
                transcript
                    .add(index + 1, line)
                    .with_context(|| format!("{name}:{}", index + 1))?;
            }
        }
        ensure!(!transcript.steps.is_empty(), "{name} has no steps");
        Ok(transcript)
    }

    fn add(&mut self, number: usize, line: &str) -> anyhow::Result<()> {
        let members: BTreeMap<String, &RawValue> =
            serde_json::from_str(line).context("the line is no JSON object")?;
        let mut members = members.into_iter();
        let (Some((key, value)), None) = (members.next(), members.next()) else {
            bail!("a line has exactly one key");
        };
        let raw = value.get();
        let step = match key.as_str() {
            "note" => return Ok(()),
            "setup" => {
                ensure!(self.steps.is_empty(), "setup comes before the first step");
                self.setup = serde_json::from_str(raw).context("setup")?;
                return Ok(());
            }
            "file" => {
                let file: File = serde_json::from_str(raw).context("file")?;
                self.files.push((file.path, file.text));
                return Ok(());
            }
            "send" => Step::Send(line_of(raw.as_bytes())),
            "send_raw" => Step::Send(line_of(serde_json::from_str::<String>(raw)?.as_bytes())),
            "send_hex" => Step::Send(line_of(&unhex(&serde_json::from_str::<String>(raw)?)?)),
            "send_long" => Step::Send(line_of(&serde_json::from_str::<Long>(raw)?.fill()?)),
            "expect" => Step::Expect(Expected::parse(raw)?),
            "expect_next" => Step::ExpectNext(Expected::parse(raw)?),
            "expect_none_ms" => Step::ExpectNone {
                ms: serde_json::from_str(raw)?,
            },
            _ => bail!("{key:?} is no kind of line"),
        };
        self.steps.push((number, step));
        Ok(())
    }
}

impl Expected {
    fn parse(raw: &str) -> anyhow::Result<Self> {
        let members: BTreeMap<String, &RawValue> =
            serde_json::from_str(raw).context("a message is an object")?;
        let method = members
            .get("method")
            .map(|method| serde_json::from_str(method.get()))
            .transpose()
            .context("a method is a string")?;
        // An id such as `1e400` is no value of the library's; it is compared as text anyhow.
        let others = members.iter().filter(|(key, _)| *key != "id");
        let pattern = others
            .map(|(key, value)| Ok((key.clone(), serde_json::from_str(value.get())?)))
            .collect::<Result<_, serde_json::Error>>()?;
        Ok(Self {
            pattern: Value::Object(pattern),
            id: members.get("id").map(|id| id.get().to_owned()),
            method,
        })
    }
}

impl Long {
    fn fill(&self) -> anyhow::Result<Vec<u8>> {
        let fixed = self.head.len() + self.tail.len();
        let room = self
            .bytes
            .checked_sub(fixed)
            .context("head and tail are longer")?;
        Ok(format!("{}{}{}", self.head, "x".repeat(room), self.tail).into_bytes())
    }
}

fn line_of(bytes: &[u8]) -> Vec<u8> {
    [bytes, b"\n"].concat()
}

fn unhex(text: &str) -> anyhow::Result<Vec<u8>> {
    let digits: String = text.split_whitespace().collect();
    ensure!(digits.len().is_multiple_of(2), "hex digits come in pairs");
    (0..digits.len())
        .step_by(2)
        .map(|at| {
            let pair = digits.get(at..at + 2).context("hex is ASCII")?;
            u8::from_str_radix(pair, 16).with_context(|| format!("{pair} is not hex"))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_sent_with_the_bytes_they_are_written_with() {
        let text = r#"{"send": {"id": 1.0,  "x":"\u0031"}}
{"send_hex": "ff 00"}
{"send_long": {"head": "a", "bytes": 5, "tail": "b"}}"#;
        let transcript = Transcript::parse("t", text).unwrap();
        let sent: Vec<_> = transcript
            .steps
            .iter()
            .map(|(_, step)| match step {
                Step::Send(bytes) => bytes.as_slice(),
                other => panic!("{other:?}"),
            })
            .collect();
        let first: &[u8] = br#"{"id": 1.0,  "x":"\u0031"}
"#;
        assert_eq!(sent, [first, b"\xff\0\n", b"axxxb\n"]);
    }

    #[test]
    fn mistake_in_a_file_is_reported_with_its_line() {
        let of = |text: &str| format!("{:#}", Transcript::parse("t", text).unwrap_err());
        assert!(of("{\"note\":1}\n{\"sned\":1}").starts_with("t:2: \"sned\" is no kind"));
        assert!(of("{\"send\":1,\"expect\":1}").starts_with("t:1: a line has exactly one key"));
        assert!(of("{\"setup\":{\"pack\":[]}}").contains("unknown field"));
        assert!(of("").contains("no steps"));
    }
}
