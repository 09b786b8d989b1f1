//! `/v1/invoke`: one run of a tool, asked for with a request envelope and answered with a response
//! envelope.

use std::net::IpAddr;
use std::time::Instant;

use hyper::body::Incoming;
use hyper::header::HeaderMap;
use mainstay_contract::dialect::run_of;
use mainstay_contract::envelope::{Auth, AuthType, Invocation, TOOL_ID_PREFIX, Timings};
use mainstay_contract::error::ErrorKind;
use mainstay_contract::outcome::{Outcome, Problem};
use mainstay_contract::trace::TraceContext;

use super::super::Front;
use super::super::access::{Access, Credential, presented};
use super::super::refusals::Denied;
use super::super::respond::{self, Answer};
use super::Sender;
use super::ask::{self, Order};
use super::tasks;
use crate::clock::iso_now;
use crate::envelopes::Responds;
use crate::forwarded::Reader;

/// The request that is answered where none could be read.
const NOBODY: Responds<'static> = Responds {
    id: "",
    trace_id: None,
    tool: None,
};

pub(super) async fn answer(
    front: &Front,
    headers: &HeaderMap,
    body: Incoming,
    (who, peer): (Option<Credential>, IpAddr),
) -> Answer {
    let denied = |why| front.refusals.record(why, "/v1/invoke", peer);
    let sender = match who {
        Some(_) => Sender::Known,
        None => Sender::Unknown,
    };
    let body = match super::read(front, headers, body, sender).await {
        Ok(body) => body,
        Err(problem) => return refuse(front, &problem),
    };
    let started = Instant::now();
    let invocation = match Invocation::parse(body.trim_ascii(), front.limits.json_depth) {
        Ok(invocation) => invocation,
        Err(refused) => {
            let id = refused.id.as_deref();
            front.envelopes.refused(&refused.reason, id);
            // What it says may be used only by those who may ask at all.
            if who.is_none() {
                denied("no_token");
                return refuse(front, &Problem::of(ErrorKind::Unauthorized));
            }
            let asked = Responds {
                id: refused.id.as_deref().unwrap_or_default(),
                trace_id: refused.trace_id.as_deref(),
                tool: None,
            };
            let problem = refused.reason.to_problem();
            return respond_to(front, &asked, &Err(problem), started);
        }
    };
    let asked = Responds {
        id: &invocation.id,
        trace_id: invocation.trace_id.as_deref(),
        tool: Some(&invocation.tool),
    };
    let shown = presented(headers);
    let who = match admitted(&front.guard.access, invocation.auth.as_ref(), who, shown) {
        Ok(who) => who,
        Err(Denied { why, problem }) => {
            denied(why);
            return respond_to(front, &asked, &Err(problem), started);
        }
    };
    front.recorder.invocation(&invocation);
    let id = format!("{TOOL_ID_PREFIX}{}", invocation.tool);
    let run = run_of(&id, Some(invocation.payload.as_str()));
    let outcome = match run.and_then(|op| Ok((op, tasks::wish(headers)?))) {
        Ok((op, task)) => {
            let order = Order {
                bytes: body.len(),
                id: &invocation.id,
                reader: Reader::Program,
                trace: invocation.trace_id.as_deref().map(TraceContext::named),
                task,
            };
            ask::run(front, &who, op, order).await.outcome
        }
        Err(problem) => Err(problem),
    };
    let answer = respond_to(front, &asked, &outcome, started);
    tasks::accepted(&outcome, answer)
}

/// Refuses a request that was not read.
pub(super) fn refuse(front: &Front, problem: &Problem) -> Answer {
    respond_to(front, &NOBODY, &Err(problem.clone()), Instant::now())
}

fn respond_to(front: &Front, asked: &Responds<'_>, outcome: &Outcome, since: Instant) -> Answer {
    let timings = Timings {
        timestamp: iso_now(),
        duration_ms: ask::millis_since(since),
    };
    let sealed = front.envelopes.response(asked, outcome, &timings);
    respond::of_kind(sealed.kind, respond::retry_after_ms(outcome), sealed.text)
}

/// On whose behalf an envelope comes: what it says itself must not contradict the header.
fn admitted(
    access: &Access,
    auth: Option<&Auth>,
    header: Option<Credential>,
    shown: Option<&str>,
) -> Result<Credential, Denied> {
    let refused = |why, said: &str, hint: &str| {
        let problem = Problem::new(ErrorKind::Unauthorized, said).with_hint(hint);
        Err(Denied::new(why, problem))
    };
    let contradicts = || {
        refused(
            "two_tokens",
            "auth and the Authorization header contradict each other",
            "send the same token in both, or one of them",
        )
    };
    let header = match auth.map(|auth| (auth.kind, auth.token.as_deref())) {
        Some((AuthType::ApiKey | AuthType::Basic, _)) => {
            return refused(
                "not_a_bearer_token",
                "credentials of this kind are not accepted",
                "send auth of the type bearer",
            );
        }
        Some((AuthType::Bearer, Some(token))) if access.asks() => {
            let own = access.judge(token)?.who;
            if header.is_some_and(|header| header != own) {
                return contradicts();
            }
            Some(own)
        }
        // The host does not authenticate here, but two different tokens are still one too many.
        Some((AuthType::Bearer, Some(token))) if shown.is_some_and(|shown| shown != token) => {
            return contradicts();
        }
        _ => header,
    };
    if let Some(scope) = auth.and_then(|auth| auth.scopes.first()) {
        let scope = mainstay_contract::render::shorten(scope, 64);
        let said = format!("there is no scope {scope:?}");
        let problem = Problem::new(ErrorKind::Forbidden, said)
            .with_hint("leave auth.scopes empty: a token opens every tool or none");
        return Err(Denied::new("unknown_scope", problem));
    }
    header.ok_or_else(|| {
        let problem = Problem::of(ErrorKind::Unauthorized).with_hint(
            "send a token as Authorization: Bearer TOKEN, or as auth of the type bearer",
        );
        Denied::new("no_token", problem)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn auth(kind: AuthType, token: Option<&str>) -> Auth {
        Auth {
            kind,
            token: token.map(str::to_owned),
            scopes: Vec::new(),
        }
    }

    #[test]
    fn an_envelope_may_name_its_sender_and_must_not_contradict_the_header() {
        let access = Access::new(Some("s3cret"), None, "");
        let known = access.judge("s3cret").unwrap().who;
        let bearer = |token| auth(AuthType::Bearer, Some(token));
        let admit = |auth: Option<&Auth>, header: Option<&Credential>| {
            admitted(&access, auth, header.cloned(), None).map_err(|denied| denied.problem.kind)
        };
        assert_eq!(admit(None, Some(&known)), Ok(known.clone()));
        assert_eq!(admit(Some(&bearer("s3cret")), None), Ok(known.clone()));
        assert_eq!(
            admit(Some(&bearer("s3cret")), Some(&known)),
            Ok(known.clone())
        );
        let none = auth(AuthType::None, None);
        assert_eq!(admit(Some(&none), Some(&known)), Ok(known.clone()));
        let unauthorized = Err(ErrorKind::Unauthorized);
        assert_eq!(admit(None, None), unauthorized);
        assert_eq!(admit(Some(&none), None), unauthorized);
        assert_eq!(admit(Some(&bearer("other")), None), unauthorized);
        assert_eq!(admit(Some(&bearer("other")), Some(&known)), unauthorized);
        let other = Credential::Token([7; 32]);
        assert_eq!(admit(Some(&bearer("s3cret")), Some(&other)), unauthorized);
        for kind in [AuthType::ApiKey, AuthType::Basic] {
            let auth = auth(kind, Some("s3cret"));
            assert_eq!(admit(Some(&auth), Some(&known)), unauthorized);
        }
        let mut scoped = bearer("s3cret");
        scoped.scopes.push("search:read".to_owned());
        assert_eq!(admit(Some(&scoped), None), Err(ErrorKind::Forbidden));
    }

    #[test]
    fn where_nobody_is_asked_a_token_only_must_not_contradict_the_header() {
        let access = Access::default();
        let bearer = auth(AuthType::Bearer, Some("anything"));
        let anonymous = Some(Credential::Anonymous);
        let admit = admitted(&access, Some(&bearer), anonymous.clone(), Some("anything"));
        assert_eq!(admit.unwrap(), Credential::Anonymous);
        let refused = admitted(&access, Some(&bearer), anonymous, Some("another"));
        assert_eq!(refused.unwrap_err().problem.kind, ErrorKind::Unauthorized);
    }
}
