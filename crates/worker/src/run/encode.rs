//! Messages to the host as lines, without their newline.

use std::fmt::Write as _;
use std::io;

use mainstay_contract::id::CallId;
use mainstay_contract::json::push_string;
use mainstay_contract::outcome::ToolReply;
use mainstay_contract::rpc::{Answer, FromWorker};

/// Room for everything around a tool's own text.
const ENVELOPE_BYTES: usize = 96;

pub(super) fn message(message: &FromWorker) -> io::Result<Vec<u8>> {
    Ok(serde_json::to_vec(message)?)
}

/// As [`message`], but a tool's JSON is copied as it stands: serialising it would parse it again,
/// which for a large answer costs more than everything else here.
pub(super) fn answer(call: CallId, answer: Answer) -> io::Result<Vec<u8>> {
    match answer {
        Answer::Tool(reply) => Ok(tool_reply(call, &reply).into_bytes()),
        answer => message(&FromWorker::Answer { call, answer }),
    }
}

fn tool_reply(call: CallId, reply: &ToolReply) -> String {
    let text_bytes = reply
        .text
        .as_ref()
        .map_or(0, |text| text.len() + text.len() / 8);
    let mut line = String::with_capacity(ENVELOPE_BYTES + reply.json.len() + text_bytes);
    let _ = write!(
        line,
        r#"{{"answer":{{"call":{call},"answer":{{"tool":{{"json":"#
    );
    line.push_str(reply.json.as_str());
    if let Some(text) = &reply.text {
        line.push_str(r#","text":"#);
        push_string(&mut line, text);
    }
    line.push_str("}}}}");
    line
}

#[cfg(test)]
mod tests {
    use mainstay_contract::json::Json;

    use super::*;

    #[test]
    fn the_short_way_says_the_same_as_the_long_one() {
        for text in [None, Some("two\nlines \"quoted\"\u{1}".to_owned())] {
            let json = Json::parse(r#"{"n":1.00,"s":"\u00e9"}"#).unwrap();
            let reply = ToolReply { json, text };
            let call = CallId::new(7);
            let line = answer(call, Answer::Tool(reply.clone())).unwrap();
            let long = FromWorker::Answer {
                call,
                answer: Answer::Tool(reply),
            };
            assert_eq!(serde_json::from_slice::<FromWorker>(&line).unwrap(), long);
            assert_eq!(line, message(&long).unwrap());
        }
    }
}
