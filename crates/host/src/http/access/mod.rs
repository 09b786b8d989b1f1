//! Who is who: a token of the operator's own, or access tokens of an issuer.

mod jwt;

use std::fmt;
use std::sync::Arc;

use hyper::header::{AUTHORIZATION, HeaderMap};
use mainstay_contract::error::ErrorKind;
use mainstay_contract::outcome::Problem;
use mainstay_contract::trace::Hex;
use serde::{Deserialize, Serialize};
use serde_json::json;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use tokio::time::Instant;

use self::jwt::Expected;
pub use self::jwt::{Keys, KeysError};
use super::refusals::Denied;
use crate::clock::wall;

/// The scope of credentials that may approve calls.
const APPROVE: &str = "approve";

/// Where the metadata of the protected resource is served.
pub(super) const METADATA: &str = "/.well-known/oauth-protected-resource";

/// An issuer of access tokens, its keys, and the name under which they must mean this server.
#[derive(Clone, Debug)]
pub struct Issuer {
    pub url: String,
    pub keys: Arc<Keys>,
    /// The audience of tokens; the address of `/mcp` where nothing else is said.
    pub resource: Option<String>,
}

/// On whose behalf a request comes. Sessions belong to the one that opened them.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Credential {
    /// The host does not authenticate its clients.
    Anonymous,
    /// The hash of a token.
    Token([u8; 32]),
    /// The hash of whom an issuer vouches for.
    Subject([u8; 32]),
}

impl Credential {
    /// A name for the one who asks that does not give away the token.
    pub(crate) fn caller(&self) -> String {
        match self {
            Self::Anonymous => "anonymous".to_owned(),
            Self::Token(hash) => format!("token:{}", Hex(hash)),
            Self::Subject(hash) => format!("subject:{}", Hex(hash)),
        }
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Anonymous => "Anonymous",
            Self::Token(_) => "Token(..)",
            Self::Subject(_) => "Subject(..)",
        })
    }
}

/// A request that may be answered.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Admitted {
    pub(crate) who: Credential,
    /// When its token expires; streams end by then.
    pub(crate) expires: Option<Instant>,
}

impl From<Credential> for Admitted {
    fn from(who: Credential) -> Self {
        let expires = None;
        Self { who, expires }
    }
}

/// The credentials that clients must present.
#[derive(Debug, Default)]
pub(crate) struct Access {
    token: Option<[u8; 32]>,
    /// The token that may approve calls.
    approver: Option<[u8; 32]>,
    issuer: Option<Trusted>,
}

#[derive(Debug)]
struct Trusted {
    url: String,
    keys: Arc<Keys>,
    resource: String,
}

impl Trusted {
    fn expected(&self) -> Expected<'_> {
        Expected {
            keys: &self.keys,
            issuer: &self.url,
            audience: &self.resource,
            now: wall(),
        }
    }

    /// Where the metadata is: the path of the resource follows the well-known one.
    fn metadata_url(&self) -> String {
        let (origin, path) = split(&self.resource);
        format!("{origin}{METADATA}{path}")
    }
}

impl Access {
    /// `place` is where the server is reached when the issuer's configuration does not say.
    pub(super) fn new(token: Option<&str>, issuer: Option<&Issuer>, place: &str) -> Self {
        Self {
            token: token.map(|token| hash(&[token])),
            approver: None,
            issuer: issuer.map(|issuer| {
                let resource = issuer.resource.clone();
                let resource = resource.unwrap_or_else(|| format!("{place}/mcp"));
                Trusted {
                    url: issuer.url.clone(),
                    keys: Arc::clone(&issuer.keys),
                    resource,
                }
            }),
        }
    }

    /// Lets the holder of one more token approve calls.
    pub(super) fn with_approver(mut self, token: Option<&str>) -> Self {
        self.approver = token.map(|token| hash(&[token]));
        self
    }

    /// True if a request shows a credential with the scope `approve`.
    pub(super) fn may_approve(&self, headers: &HeaderMap) -> bool {
        presented(headers).is_some_and(|shown| self.is_approvers(shown))
    }

    /// True for a token with the scope `approve`.
    pub(super) fn is_approvers(&self, shown: &str) -> bool {
        if self.is_approver(&hash(&[shown])) {
            return true;
        }
        let Some(trusted) = &self.issuer else {
            return false;
        };
        let subject = jwt::check(shown, &trusted.expected());
        subject.is_ok_and(|subject| subject.has_scope(APPROVE))
    }

    fn is_approver(&self, known: &[u8; 32]) -> bool {
        let approver = self.approver.as_ref();
        approver.is_some_and(|approver| bool::from(approver.ct_eq(known)))
    }

    /// True if several credentials can be presented, whose sessions must not crowd each other out.
    pub(super) const fn has_several(&self) -> bool {
        self.issuer.is_some()
    }

    /// True if clients must authenticate.
    pub(super) const fn asks(&self) -> bool {
        self.token.is_some() || self.issuer.is_some()
    }

    /// On whose behalf a request comes.
    pub(super) fn check(&self, headers: &HeaderMap) -> Result<Admitted, Denied> {
        if !self.asks() {
            let known = presented(headers).map(|shown| hash(&[shown]));
            return Ok(match known.filter(|known| self.is_approver(known)) {
                Some(known) => Credential::Token(known).into(),
                None => Credential::Anonymous.into(),
            });
        }
        let shown = presented(headers).ok_or_else(|| {
            let problem = Problem::of(ErrorKind::Unauthorized)
                .with_hint("send a token as Authorization: Bearer TOKEN");
            let has_any = headers.contains_key(AUTHORIZATION);
            Denied::new(
                if has_any {
                    "not_a_bearer_token"
                } else {
                    "no_token"
                },
                problem,
            )
        })?;
        self.judge(shown)
    }

    /// On whose behalf a token speaks.
    pub(super) fn judge(&self, shown: &str) -> Result<Admitted, Denied> {
        let known = hash(&[shown]);
        let is_token = self.token.as_ref();
        let is_token = is_token.is_some_and(|token| bool::from(token.ct_eq(&known)));
        if is_token || self.is_approver(&known) {
            return Ok(Credential::Token(known).into());
        }
        if let Some(trusted) = &self.issuer {
            return match jwt::check(shown, &trusted.expected()) {
                Ok(subject) => {
                    // A client's id is another name than a user's of the same spelling.
                    let parts = [trusted.url.as_str(), subject.claim, &subject.name];
                    Ok(Admitted {
                        who: Credential::Subject(hash(&parts)),
                        expires: Instant::now().checked_add(subject.valid_for),
                    })
                }
                Err(reason) => {
                    let said = format!("the access token was refused: {reason}");
                    let problem = Problem::new(ErrorKind::Unauthorized, said).with_hint(
                        "get a new one from the authorization server that the metadata names",
                    );
                    Err(Denied::new(reason.word(), problem))
                }
            };
        }
        let problem = Problem::of(ErrorKind::Unauthorized)
            .with_hint("send the server's token as Authorization: Bearer TOKEN");
        Err(Denied::new("wrong_token", problem))
    }

    /// The `WWW-Authenticate` header of a refusal.
    pub(super) fn challenge(&self) -> String {
        match &self.issuer {
            None => "Bearer".to_owned(),
            Some(trusted) => format!("Bearer resource_metadata=\"{}\"", trusted.metadata_url()),
        }
    }

    /// The metadata of the protected resource (RFC 9728) with this path, or with any; none without
    /// an issuer.
    pub(super) fn metadata(&self, of: &str) -> Option<String> {
        let trusted = self.issuer.as_ref()?;
        if !of.is_empty() && of != "/mcp" && of != split(&trusted.resource).1 {
            return None;
        }
        let metadata = json!({
            "resource": trusted.resource,
            "authorization_servers": [trusted.url],
            "bearer_methods_supported": ["header"],
        });
        Some(metadata.to_string())
    }
}

/// The bearer token of a request: exactly one.
pub(super) fn presented(headers: &HeaderMap) -> Option<&str> {
    let mut all = headers.get_all(AUTHORIZATION).iter();
    let value = all.next()?.to_str().ok()?;
    if all.next().is_some() {
        return None;
    }
    let (scheme, token) = value.split_once(' ')?;
    scheme
        .eq_ignore_ascii_case("bearer")
        .then(|| token.trim_matches(' '))
}

fn hash(parts: &[&str]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part.len().to_le_bytes());
        hash.update(part.as_bytes());
    }
    hash.finalize().into()
}

/// A URL up to its path, and its path.
fn split(url: &str) -> (&str, &str) {
    let after = url.find("://").map_or(0, |at| at + 3);
    let path = url.get(after..).and_then(|rest| rest.find('/'));
    match path {
        Some(path) => url.split_at(after + path),
        None => (url, ""),
    }
}

#[cfg(test)]
mod tests;
