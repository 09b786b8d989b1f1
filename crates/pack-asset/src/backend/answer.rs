//! Translates the backend's answer for the client.

use std::collections::BTreeMap;

use mainstay_worker::render::shorten;
use mainstay_worker::{ErrorKind, Json, Problem, warn};
use serde_json::{Value, json};
use ureq::http::StatusCode;

use super::client::{Answered, MAX_BODY_BYTES, TIMEOUT, Unanswered};

/// Longest detail that is passed on, in characters.
const MAX_DETAIL_CHARS: usize = 200;

/// Longest id that is passed on, in bytes.
const MAX_ID_BYTES: usize = 1024;

/// Said whenever the asset may be there although the call failed.
const LOOK_FIRST: &str = "the asset may have been stored: look before sending it again";

/// A failure of the backend: `status` and `detail` are what the client gets.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Failed {
    status: u16,
    detail: String,
    message: String,
    hint: Option<&'static str>,
}

impl From<Failed> for Problem {
    fn from(failed: Failed) -> Self {
        let details = json!({"ok": false, "reason": "backend_error",
            "status": failed.status, "detail": failed.detail});
        let problem =
            Self::new(ErrorKind::BackendError, failed.message).with_details(Json::from(details));
        match failed.hint {
            Some(hint) => problem.with_hint(hint),
            None => problem,
        }
    }
}

/// The id that was given to the asset.
pub(super) fn read(answer: Result<Answered, Unanswered>) -> Result<String, Failed> {
    match answer {
        Ok(answer) if (200..300).contains(&answer.status) => created(&answer),
        Ok(answer) => Err(refused(&answer)),
        Err(why) => Err(unanswered(why)),
    }
}

fn created(answer: &Answered) -> Result<String, Failed> {
    let failed = |why: &str| Failed {
        status: answer.status,
        detail: format!("the backend's answer {why}"),
        message: format!(
            "the backend answered {}, but its answer {why}",
            answer.status
        ),
        hint: Some(LOOK_FIRST),
    };
    if answer.cut {
        return Err(failed(&format!("has more than {MAX_BODY_BYTES} bytes")));
    }
    let members: BTreeMap<String, Json> =
        serde_json::from_slice(&answer.body).map_err(|_| failed("is not a JSON object"))?;
    let id = members.get("id").and_then(id_text);
    match id {
        None => Err(failed("has no id")),
        Some(id) if id.len() > MAX_ID_BYTES => Err(failed(&format!(
            "has an id of more than {MAX_ID_BYTES} bytes"
        ))),
        Some(id) => Ok(id),
    }
}

/// An id as text: a string that says something, or a number as it is written.
fn id_text(id: &Json) -> Option<String> {
    match id.to_value().ok()? {
        Value::String(text) if !text.is_empty() => Some(text),
        Value::Number(_) => Some(id.as_str().to_owned()),
        _ => None,
    }
}

fn refused(answer: &Answered) -> Failed {
    let status = answer.status;
    let detail = said(&answer.body).unwrap_or_else(|| {
        let reason = StatusCode::from_u16(status).ok();
        let reason = reason.and_then(|status| status.canonical_reason());
        reason.unwrap_or("no detail").to_lowercase()
    });
    Failed {
        status,
        message: format!("the backend answered {status}: {detail}"),
        detail,
        hint: (300..400)
            .contains(&status)
            .then_some("redirects are not followed: set SYN_BACKEND_URL to where it leads"),
    }
}

/// A body as one short line; nothing if it is a page for people.
fn said(body: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(body);
    let text = text.trim();
    let words = match serde_json::from_str::<Value>(text) {
        Ok(Value::Object(members)) => {
            let named = ["detail", "message", "error"];
            let found = named.iter().find_map(|name| members.get(*name));
            match found {
                Some(Value::String(words)) => words.clone(),
                Some(other) => other.to_string(),
                None => text.to_owned(),
            }
        }
        Ok(Value::String(words)) => words,
        Ok(_) => text.to_owned(),
        Err(_) if text.starts_with('<') => return None,
        Err(_) => text.lines().next().unwrap_or_default().to_owned(),
    };
    Some(shorten(words.trim(), MAX_DETAIL_CHARS)).filter(|words| !words.is_empty())
}

fn unanswered(why: Unanswered) -> Failed {
    match why {
        Unanswered::Timeout => Failed {
            status: 504,
            detail: "timeout".to_owned(),
            message: format!("the backend did not answer within {} s", TIMEOUT.as_secs()),
            hint: Some(LOOK_FIRST),
        },
        Unanswered::Unreachable { cause } => {
            warn("backend_unreachable", &cause);
            Failed {
                status: 503,
                detail: "network_unreachable".to_owned(),
                message: "the backend cannot be reached".to_owned(),
                hint: Some("check that the backend runs where SYN_BACKEND_URL says"),
            }
        }
        Unanswered::Broken { cause } => {
            warn("backend_broken_answer", &cause);
            Failed {
                status: 502,
                detail: "incomplete_answer".to_owned(),
                message: "the backend took the request, but gave no whole HTTP answer".to_owned(),
                hint: Some(LOOK_FIRST),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, body: &str) -> Result<String, Failed> {
        read(Ok(Answered {
            status,
            body: body.as_bytes().to_vec(),
            cut: false,
        }))
    }

    #[test]
    fn an_id_is_text_or_a_number_as_it_is_written() {
        for (body, id) in [
            (r#"{"id":"a-1"}"#, "a-1"),
            (
                r#"{"id":12345678901234567890123,"x":{}}"#,
                "12345678901234567890123",
            ),
            (r#"{"id":1.50}"#, "1.50"),
        ] {
            assert_eq!(answer(201, body).unwrap(), id);
        }
        for body in [
            "{}",
            r#"{"id":null}"#,
            r#"{"id":""}"#,
            r#"{"id":true}"#,
            r#"{"id":{}}"#,
        ] {
            let failed = answer(200, body).unwrap_err();
            assert_eq!(
                (failed.status, failed.detail.as_str()),
                (200, "the backend's answer has no id")
            );
        }
    }

    #[test]
    fn an_answer_that_is_no_object_is_a_failure_with_its_own_status() {
        for body in ["", "OK", "[1]", "\"x\"", "{\"id\":1"] {
            let failed = answer(201, body).unwrap_err();
            assert_eq!(failed.status, 201, "{body}");
            assert!(failed.detail.contains("not a JSON object"), "{failed:?}");
            assert!(failed.hint.unwrap().contains("may have been stored"));
        }
        let long = format!(r#"{{"id":"{}"}}"#, "x".repeat(2000));
        assert!(answer(201, &long).unwrap_err().detail.contains("1024"));
    }

    #[test]
    fn a_refusal_is_told_in_the_backends_words() {
        for (body, detail) in [
            (r#"{"detail":"no such user"}"#, "no such user"),
            (r#"{"message":"broken","x":1}"#, "broken"),
            (
                r#"{"detail":[{"loc":["body","name"],"msg":"field required"}]}"#,
                r#"[{"loc":["body","name"],"msg":"field required"}]"#,
            ),
            (r#"{"code":7}"#, r#"{"code":7}"#),
            ("plain words\nmore", "plain words"),
            ("<html><body>oops</body></html>", "internal server error"),
            ("", "internal server error"),
        ] {
            let failed = answer(500, body).unwrap_err();
            assert_eq!((failed.status, failed.detail.as_str()), (500, detail));
        }
        let long = answer(400, &"x".repeat(5000)).unwrap_err();
        assert_eq!(long.detail.chars().count(), MAX_DETAIL_CHARS);
        assert_eq!(answer(599, "").unwrap_err().detail, "no detail");
    }

    #[test]
    fn a_redirect_says_that_it_is_not_followed() {
        let failed = answer(307, "").unwrap_err();
        assert_eq!(
            (failed.status, failed.detail.as_str()),
            (307, "temporary redirect")
        );
        assert!(failed.hint.unwrap().contains("not followed"));
    }
}
