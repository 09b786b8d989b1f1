//! The script of a conversation.

use anyhow::{Context as _, bail, ensure};

use crate::peer::Message;

/// What `$META` stands for: the members that every request of the stateless revision carries.
const META: &str = r#""io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"conversation","version":"0"},"io.modelcontextprotocol/clientCapabilities":{"elicitation":{},"sampling":{},"roots":{}}"#;

/// The whole script.
#[derive(Clone, Debug)]
pub struct Conversation {
    pub name: String,
    /// Each with its line, counted from 1.
    pub turns: Vec<(usize, Turn)>,
}

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Sends lines in one write, and waits until these ids, as they are written, are answered.
    Ask {
        lines: Vec<String>,
        ids: Vec<String>,
    },
    /// Sends a line that nobody answers.
    Tell(String),
    /// Waits for a notification of this method.
    Await(String),
    /// Answers the server's requests of this method like this.
    Reply { method: String, reply: Reply },
}

/// How a request of the server is answered, as JSON text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    Result(String),
    Error(String),
}

impl Conversation {
    /// Reads a script.
    pub fn parse(name: &str, text: &str) -> anyhow::Result<Self> {
        let mut turns = Vec::new();
        // Lines that go with the next one, and the ids in them.
        let (mut lines, mut ids) = (Vec::new(), Vec::new());
        for (index, line) in text.lines().enumerate() {
            let line = line.replace("$META", META);
            let (sign, rest) = line.split_once(' ').unwrap_or((&line, ""));
            if sign.is_empty() || sign == "#" {
                continue;
            }
            let place = || format!("{name}:{}", index + 1);
            let turn = match sign {
                "+" | ">" => {
                    let message = Message::parse(rest.as_bytes()).with_context(place)?;
                    ids.extend(message.id().map(str::to_owned));
                    lines.push(rest.to_owned());
                    if sign == "+" {
                        continue;
                    }
                    Turn::Ask {
                        lines: std::mem::take(&mut lines),
                        ids: std::mem::take(&mut ids),
                    }
                }
                "-" => Turn::Tell(rest.to_owned()),
                "?" => Turn::Await(rest.to_owned()),
                "=" | "!" => {
                    let (method, json) = rest.split_once(' ').with_context(place)?;
                    let json = json.to_owned();
                    Turn::Reply {
                        method: method.to_owned(),
                        reply: match sign {
                            "=" => Reply::Result(json),
                            _ => Reply::Error(json),
                        },
                    }
                }
                _ => bail!("{}: {sign:?} begins no line", place()),
            };
            turns.push((index + 1, turn));
        }
        ensure!(lines.is_empty(), "{name} ends with a line that waits");
        Ok(Self {
            name: name.to_owned(),
            turns,
        })
    }

    /// Every line that is sent without being asked for.
    pub fn sent(&self) -> Vec<&str> {
        let lines = self.turns.iter().map(|(_, turn)| match turn {
            Turn::Ask { lines, .. } => lines.iter().map(String::as_str).collect(),
            Turn::Tell(line) => vec![line.as_str()],
            Turn::Await(_) | Turn::Reply { .. } => Vec::new(),
        });
        lines.flatten().collect()
    }
}

impl Reply {
    /// The answer to the request of this id, as a line.
    pub(super) fn line(&self, id: &str) -> String {
        let (key, json) = match self {
            Self::Result(json) => ("result", json),
            Self::Error(json) => ("error", json),
        };
        format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"{key}\":{json}}}\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn script_is_read_line_by_line() {
        let text = "# c\n\n+ {\"id\":\"\\u0031\"}\n> {\"id\":2}\n- {}\n? m\n= a/b {\"x\": 1}\n";
        let read = Conversation::parse("t", text).unwrap();
        let turns: Vec<Turn> = read.turns.iter().map(|(_, turn)| turn.clone()).collect();
        let ask = Turn::Ask {
            lines: vec!["{\"id\":\"\\u0031\"}".into(), "{\"id\":2}".into()],
            ids: vec!["\"\\u0031\"".into(), "2".into()],
        };
        let reply = Turn::Reply {
            method: "a/b".into(),
            reply: Reply::Result("{\"x\": 1}".into()),
        };
        let expected = [ask, Turn::Tell("{}".into()), Turn::Await("m".into()), reply];
        assert_eq!(turns, expected);
        assert_eq!(read.sent().len(), 3);
        assert!(Conversation::parse("t", "+ {}\n").is_err());
        assert!(Conversation::parse("t", "% {}\n").is_err());
    }
}
