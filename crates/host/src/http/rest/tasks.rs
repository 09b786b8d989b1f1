//! Tasks over REST: the headers that make one, and `/v1/tasks/{id}`.

use hyper::header::{HeaderMap, HeaderName, HeaderValue, LOCATION};
use hyper::{Method, StatusCode};
use mainstay_contract::dialect::{Op, TaskAnswer, TaskOp, TaskWish};
use mainstay_contract::error::ErrorKind;
use mainstay_contract::outcome::{Outcome, Problem, Success};
use mainstay_contract::scan;

use super::super::Front;
use super::super::access::Credential;
use super::super::respond::{self, Answer, Tongue};
use super::ask::{self, Order};

const KEY: HeaderName = HeaderName::from_static("idempotency-key");
const PREFER: HeaderName = HeaderName::from_static("prefer");
const APPLIED: HeaderName = HeaderName::from_static("preference-applied");
const RESPOND_ASYNC: &str = "respond-async";
/// Longest idempotency key.
const KEY_BYTES: usize = 255;

/// The headers of a run that ask for a task.
pub(super) fn wish(headers: &HeaderMap) -> Result<Option<TaskWish>, Problem> {
    let key = key(headers)?;
    let answer = match prefers_async(headers) {
        true => TaskAnswer::Task,
        false => TaskAnswer::Outcome,
    };
    let is_plain = key.is_none() && answer == TaskAnswer::Outcome;
    Ok((!is_plain).then_some(TaskWish {
        answer,
        key,
        ..TaskWish::default()
    }))
}

fn key(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let mut keys = headers.get_all(KEY).iter();
    let Some(key) = keys.next() else {
        return Ok(None);
    };
    let is_only = keys.next().is_none();
    let text = key.to_str().map(str::trim).unwrap_or_default();
    let fits = (1..=KEY_BYTES).contains(&text.len()) && is_only;
    fits.then(|| Some(text.to_owned())).ok_or_else(|| {
        let said = format!("Idempotency-Key must be one text of 1 to {KEY_BYTES} characters");
        Problem::new(ErrorKind::InvalidParams, said)
            .with_hint("send the header once, for example with a UUID")
    })
}

fn prefers_async(headers: &HeaderMap) -> bool {
    let values = headers.get_all(PREFER).iter();
    values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|one| one.split(';').next().unwrap_or_default().trim())
        .any(|one| one.eq_ignore_ascii_case(RESPOND_ASYNC))
}

/// Adds to the answer of a run that was accepted as a task what such an answer has.
pub(super) fn accepted(outcome: &Outcome, mut answer: Answer) -> Answer {
    // A tool answers with an answer of its own; members are those of a task.
    let Ok(Success::Members(task)) = outcome else {
        return answer;
    };
    *answer.status_mut() = StatusCode::ACCEPTED;
    let id = scan::member(task.as_str(), "taskId").and_then(scan::unquote);
    let place = id.and_then(|id| HeaderValue::from_str(&format!("/v1/tasks/{id}")).ok());
    let headers = answer.headers_mut();
    headers.extend(place.map(|place| (LOCATION, place)));
    headers.insert(APPLIED, HeaderValue::from_static(RESPOND_ASYNC));
    answer
}

/// Reads or cancels a task.
pub(super) async fn answer(front: &Front, id: &str, method: &Method, who: &Credential) -> Answer {
    let id = id.to_owned();
    let op = match *method {
        Method::DELETE => TaskOp::Cancel { id },
        _ => TaskOp::Get { id },
    };
    let ended = ask::run(front, who, Op::Task(op), Order::own("task")).await;
    match ended.outcome {
        Ok(Success::Members(task)) => respond::json(StatusCode::OK, task.as_str().to_owned()),
        Ok(_) => respond::refuse(&Problem::of(ErrorKind::Internal), Tongue::Plain),
        Err(problem) => respond::refuse(&problem, Tongue::Plain),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    #[test]
    fn headers_without_a_wish_leave_the_call_as_it_is() {
        assert_eq!(wish(&headers(&[])), Ok(None));
        assert_eq!(wish(&headers(&[("prefer", "wait=10")])), Ok(None));
        let wished = wish(&headers(&[("prefer", "wait=1, Respond-Async; x=y")]));
        assert_eq!(wished.unwrap().unwrap().answer, TaskAnswer::Task);
    }

    #[test]
    fn a_key_is_one_short_text() {
        let wished = wish(&headers(&[("idempotency-key", " a-1 ")]))
            .unwrap()
            .unwrap();
        assert_eq!(wished.key.as_deref(), Some("a-1"));
        assert_eq!(wished.answer, TaskAnswer::Outcome);
        let longest = "k".repeat(KEY_BYTES);
        assert!(wish(&headers(&[("idempotency-key", &longest)])).is_ok());
        let longer = "k".repeat(KEY_BYTES + 1);
        for pairs in [
            &[("idempotency-key", longer.as_str())][..],
            &[("idempotency-key", "")],
            &[("idempotency-key", "a"), ("idempotency-key", "a")],
        ] {
            let problem = wish(&headers(pairs)).unwrap_err();
            assert_eq!(problem.kind, ErrorKind::InvalidParams);
        }
    }
}
