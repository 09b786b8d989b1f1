//! Sessions of people at the page: a cookie that only this server's own page can use.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use hyper::StatusCode;
use hyper::body::Incoming;
use hyper::header::{COOKIE, HeaderMap, HeaderName, HeaderValue, ORIGIN, SET_COOKIE};
use hyper::http::request::Parts;
use mainstay_contract::error::ErrorKind;
use mainstay_contract::outcome::Problem;
use mainstay_contract::trace::Hex;
use serde::Deserialize;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use tokio::time::Instant;

use super::super::super::Front;
use super::super::super::access::{Admitted, Credential};
use super::super::super::body::lock;
use super::super::super::headers::value;
use super::super::super::refusals::Denied;
use super::super::super::respond::{self, Answer};
use super::super::{Sender, read};
use crate::entropy::random_id;

/// Time after which a person signs in again.
const LIFETIME: Duration = Duration::from_secs(12 * 60 * 60);
/// Sessions that exist at the same time; the oldest makes room.
const MOST: usize = 64;
/// The header with the secret of a session.
const SECRET: HeaderName = HeaderName::from_static("x-mainstay-page");
const SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// People who are signed in. They sign in again after an upgrade of the host.
#[derive(Debug, Default)]
pub(in crate::http) struct SignedIn {
    /// By the hash of the cookie.
    sessions: Mutex<BTreeMap<[u8; 32], Session>>,
}

/// One person.
#[derive(Clone, Debug)]
pub(super) struct Session {
    key: [u8; 32],
    pub(super) who: Credential,
    pub(super) may_approve: bool,
    pub(super) may_cancel: bool,
    /// Text that every change must carry.
    secret: String,
    began: Instant,
    until: Instant,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    #[serde(default)]
    token: Option<String>,
}

/// Signs a person in, with a token if the host asks for one.
pub(super) async fn begin(
    front: &Front,
    parts: &Parts,
    body: Incoming,
    port: u16,
) -> Result<Answer, Denied> {
    check_site(&parts.headers)?;
    let invalid = |problem| Denied::new("bad_sign_in", problem);
    let read = read(front, &parts.headers, body, Sender::Unknown).await;
    let body: Body = serde_json::from_slice(&read.map_err(invalid)?).map_err(|_| {
        let said = r#"the body must be {"token": "..."}, or {} where no token is asked for"#;
        invalid(Problem::new(ErrorKind::InvalidParams, said))
    })?;
    let access = &front.guard.access;
    let token = body
        .token
        .as_deref()
        .map(str::trim)
        .filter(|token| !token.is_empty());
    let Admitted { who, expires } = match token {
        Some(token) => access.judge(token)?,
        None if access.asks() => return Err(no_session()),
        None => Credential::Anonymous.into(),
    };
    let may_approve = token.is_some_and(|token| access.is_approvers(token));
    let cookie = secret();
    let now = Instant::now();
    let until = now + LIFETIME;
    let session = Session {
        key: hash(&cookie),
        who,
        may_approve,
        may_cancel: may_approve || !access.has_several(),
        secret: secret(),
        began: now,
        until: expires.map_or(until, |expires| expires.min(until)),
    };
    front.signed_in.add(session.clone(), now);
    let mut answer = session.describe();
    // A proxy with TLS is in front: the cookie shall not travel without.
    let is_secure =
        value(&parts.headers, &ORIGIN).is_some_and(|origin| origin.starts_with("https:"));
    set_cookie(&mut answer, port, &cookie, LIFETIME.as_secs(), is_secure);
    Ok(answer)
}

impl SignedIn {
    fn add(&self, session: Session, now: Instant) {
        let mut sessions = lock(&self.sessions);
        sessions.retain(|_, session| session.until > now);
        while sessions.len() >= MOST
            && let Some(oldest) = sessions.values().min_by_key(|session| session.began)
        {
            let key = oldest.key;
            sessions.remove(&key);
        }
        sessions.insert(session.key, session);
    }

    /// The session that a cookie names.
    pub(super) fn find(&self, headers: &HeaderMap, port: u16) -> Result<Session, Denied> {
        let cookie = cookie(headers, port).ok_or_else(no_session)?;
        let sessions = lock(&self.sessions);
        let session = sessions.get(&hash(cookie)).ok_or_else(no_session)?;
        match session.until > Instant::now() {
            true => Ok(session.clone()),
            false => Err(no_session()),
        }
    }

    /// Signs a person out.
    pub(super) fn end(&self, session: &Session, port: u16) -> Answer {
        lock(&self.sessions).remove(&session.key);
        let mut answer = super::done();
        set_cookie(&mut answer, port, "", 0, false);
        answer
    }
}

impl Session {
    /// The facts that the page may know of it.
    pub(super) fn describe(&self) -> Answer {
        let known = json!({
            "secret": self.secret,
            "may_approve": self.may_approve,
            "may_cancel": self.may_cancel,
            "asked": self.who != Credential::Anonymous,
        });
        respond::json(StatusCode::OK, known.to_string())
    }

    /// Rejects a change that does not come from this session's own page.
    pub(super) fn check_change(&self, headers: &HeaderMap) -> Result<(), Denied> {
        check_site(headers)?;
        let shown = value(headers, &SECRET).unwrap_or_default();
        if bool::from(shown.as_bytes().ct_eq(self.secret.as_bytes())) {
            return Ok(());
        }
        Err(foreign(
            "the change does not carry the secret of its session",
        ))
    }
}

/// Rejects a request that a browser sends for a page of another origin.
fn check_site(headers: &HeaderMap) -> Result<(), Denied> {
    match value(headers, &SITE) {
        Some(site) if site != "same-origin" => {
            Err(foreign("the request comes from a page of another origin"))
        }
        _ => Ok(()),
    }
}

fn foreign(said: &'static str) -> Denied {
    let problem =
        Problem::new(ErrorKind::Forbidden, said).with_hint("reload the page, and try again");
    Denied::new("foreign_page", problem)
}

fn no_session() -> Denied {
    let problem = Problem::of(ErrorKind::Unauthorized).with_hint("sign in at /");
    Denied::new("no_page_session", problem)
}

/// Text that no other person can guess.
fn secret() -> String {
    let halves = [random_id(), random_id()].concat();
    Hex(&halves).to_string()
}

fn hash(cookie: &str) -> [u8; 32] {
    Sha256::digest(cookie.as_bytes()).into()
}

/// Browsers send cookies to all ports of a machine, so each host has a name of its own.
fn name(port: u16) -> String {
    format!("mainstay_page_{port}")
}

/// The value of our cookie, if it is there once.
fn cookie(headers: &HeaderMap, port: u16) -> Option<&str> {
    let name = name(port);
    let all = headers.get_all(COOKIE).iter();
    let texts = all.filter_map(|value| value.to_str().ok());
    let pairs = texts.flat_map(|text| text.split(';'));
    let mut values = pairs.filter_map(|pair| {
        let (key, value) = pair.trim().split_once('=')?;
        (key == name).then_some(value)
    });
    let first = values.next()?;
    values.next().is_none().then_some(first)
}

fn set_cookie(answer: &mut Answer, port: u16, value: &str, seconds: u64, is_secure: bool) {
    let secure = if is_secure { "; Secure" } else { "" };
    let name = name(port);
    let text =
        format!("{name}={value}; Path=/page; HttpOnly; SameSite=Strict; Max-Age={seconds}{secure}");
    if let Ok(header) = HeaderValue::try_from(text) {
        answer.headers_mut().insert(SET_COOKIE, header);
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

    fn session(number: u64) -> Session {
        let now = Instant::now();
        Session {
            key: hash(&number.to_string()),
            who: Credential::Anonymous,
            may_approve: false,
            may_cancel: true,
            secret: "s3cret".to_owned(),
            began: now + Duration::from_secs(number),
            until: now + LIFETIME,
        }
    }

    #[test]
    fn a_change_needs_the_secret_and_a_page_of_ours() {
        let session = session(1);
        let good = |pairs: &[(&'static str, &str)]| session.check_change(&headers(pairs)).is_ok();
        assert!(good(&[("x-mainstay-page", "s3cret")]));
        assert!(good(&[
            ("x-mainstay-page", "s3cret"),
            ("sec-fetch-site", "same-origin")
        ]));
        for site in ["cross-site", "same-site", "none"] {
            assert!(
                !good(&[("x-mainstay-page", "s3cret"), ("sec-fetch-site", site)]),
                "{site}"
            );
        }
        assert!(!good(&[]));
        assert!(!good(&[("x-mainstay-page", "other")]));
        assert!(!good(&[
            ("x-mainstay-page", "s3cret"),
            ("x-mainstay-page", "s3cret")
        ]));
    }

    #[test]
    fn the_cookie_is_read_by_its_own_name_alone() {
        let value = |text: &str| cookie(&headers(&[("cookie", text)]), 80).map(str::to_owned);
        assert_eq!(value("a=b; mainstay_page_80=x"), Some("x".to_owned()));
        assert_eq!(value("mainstay_page_81=x"), None);
        assert_eq!(value("mainstay_page_80=x; mainstay_page_80=y"), None);
        let mut answer = respond::plain(StatusCode::OK);
        set_cookie(&mut answer, 80, "x", 5, true);
        assert_eq!(
            answer.headers()[SET_COOKIE],
            "mainstay_page_80=x; Path=/page; HttpOnly; SameSite=Strict; Max-Age=5; Secure"
        );
    }

    #[test]
    fn the_oldest_session_makes_room() {
        let signed_in = SignedIn::default();
        for number in 0..=MOST as u64 {
            signed_in.add(session(number), Instant::now());
        }
        let sessions = lock(&signed_in.sessions);
        assert_eq!(sessions.len(), MOST);
        assert!(!sessions.contains_key(&hash("0")));
        assert!(sessions.contains_key(&hash("1")));
    }
}
