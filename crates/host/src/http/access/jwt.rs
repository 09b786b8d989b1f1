//! Access tokens: JSON Web Tokens signed by an issuer whose keys are known.
//!
//! Only what is needed to check a token, and nothing that chooses by itself: the algorithm is that
//! of the key, and the key is one of the set that the operator gave.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256, RSA_PSS_2048_8192_SHA256,
    RsaPublicKeyComponents, UnparsedPublicKey,
};
use serde::Deserialize;
use thiserror::Error;

/// Longest token that is looked at.
const TOKEN_BYTES: usize = 16 * 1024;
/// By how much clocks may differ.
const LEEWAY: Duration = Duration::from_secs(60);

/// Why a set of keys cannot be used.
#[derive(Debug, Error)]
pub enum KeysError {
    #[error("the key set is not a JSON object with a list of keys")]
    Form(#[source] serde_json::Error),
    #[error("the key set has no key that can check a signature (RS256, PS256, ES256 or EdDSA)")]
    Empty,
    #[error("two keys of the set have the same kid {0:?}, or none")]
    Ambiguous(String),
}

/// Why a token is refused, for the client and the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum TokenError {
    #[error("it is not a signed token")]
    Form,
    #[error("no key of the set fits its header")]
    Key,
    #[error("its signature is wrong")]
    Signature,
    #[error("it is from another issuer")]
    Issuer,
    #[error("it is meant for somebody else")]
    Audience,
    #[error("its time is over, or has not begun")]
    Time,
    #[error("it names nobody")]
    Subject,
}

impl TokenError {
    /// The reason in log lines and metrics.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Form => "token_malformed",
            Self::Key => "token_key_unknown",
            Self::Signature => "token_signature",
            Self::Issuer => "token_issuer",
            Self::Audience => "token_audience",
            Self::Time => "token_expired",
            Self::Subject => "token_subject",
        }
    }
}

/// The issuer's public keys.
pub struct Keys {
    keys: Vec<Key>,
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.keys.iter().map(|key| &key.kid))
            .finish()
    }
}

struct Key {
    kid: String,
    kind: Kind,
}

enum Kind {
    Rsa {
        n: Vec<u8>,
        e: Vec<u8>,
        /// The only algorithm it is for, if it says so.
        alg: Option<String>,
    },
    P256(Vec<u8>),
    Ed25519(Vec<u8>),
}

#[derive(Deserialize)]
struct KeySet {
    keys: Vec<WrittenKey>,
}

#[derive(Deserialize)]
struct WrittenKey {
    kty: String,
    #[serde(default)]
    kid: String,
    #[serde(rename = "use")]
    usage: Option<String>,
    alg: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

impl Keys {
    /// Reads a JSON Web Key Set. Keys of other kinds are left aside.
    pub fn parse(text: &str) -> Result<Self, KeysError> {
        let set: KeySet = serde_json::from_str(text).map_err(KeysError::Form)?;
        let mut keys: Vec<Key> = Vec::new();
        for written in set.keys {
            if written.usage.as_deref().is_some_and(|usage| usage != "sig") {
                continue;
            }
            let Some(kind) = Kind::read(&written) else {
                continue;
            };
            if keys.iter().any(|key| key.kid == written.kid) {
                return Err(KeysError::Ambiguous(written.kid));
            }
            keys.push(Key {
                kid: written.kid,
                kind,
            });
        }
        if keys.is_empty() {
            return Err(KeysError::Empty);
        }
        Ok(Self { keys })
    }

    fn find(&self, header: &Header) -> Option<&Key> {
        let mut fitting = self
            .keys
            .iter()
            .filter(|key| header.kid.as_ref().is_none_or(|kid| *kid == key.kid))
            .filter(|key| key.kind.takes(&header.alg));
        let key = fitting.next()?;
        // Without a name only one key may be meant.
        fitting.next().is_none().then_some(key)
    }
}

impl Kind {
    fn read(written: &WrittenKey) -> Option<Self> {
        let part = |text: &Option<String>| base64url(text.as_deref()?);
        let curve = written.crv.as_deref();
        match (written.kty.as_str(), curve) {
            ("RSA", _) => Some(Self::Rsa {
                n: part(&written.n)?,
                e: part(&written.e)?,
                alg: written.alg.clone(),
            }),
            ("EC", Some("P-256")) => {
                let (x, y) = (part(&written.x)?, part(&written.y)?);
                let fits = x.len() == 32 && y.len() == 32;
                fits.then(|| Self::P256([&[4][..], &x, &y].concat()))
            }
            ("OKP", Some("Ed25519")) => part(&written.x).map(Self::Ed25519),
            _ => None,
        }
    }

    fn takes(&self, algorithm: &str) -> bool {
        match (self, algorithm) {
            (Self::Rsa { alg, .. }, "RS256" | "PS256") => {
                alg.as_ref().is_none_or(|alg| alg == algorithm)
            }
            (Self::P256(_), "ES256") | (Self::Ed25519(_), "EdDSA" | "Ed25519") => true,
            _ => false,
        }
    }

    fn verify(&self, algorithm: &str, message: &[u8], signature: &[u8]) -> bool {
        match self {
            Self::Rsa { n, e, .. } => {
                let kind = if algorithm == "PS256" {
                    &RSA_PSS_2048_8192_SHA256
                } else {
                    &RSA_PKCS1_2048_8192_SHA256
                };
                RsaPublicKeyComponents { n, e }
                    .verify(kind, message, signature)
                    .is_ok()
            }
            Self::P256(point) => UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point)
                .verify(message, signature)
                .is_ok(),
            Self::Ed25519(key) => UnparsedPublicKey::new(&ED25519, key)
                .verify(message, signature)
                .is_ok(),
        }
    }
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    /// Extensions that must be understood; none are.
    crit: Option<serde_json::Value>,
}

#[derive(Deserialize)]
struct Claims {
    iss: Option<String>,
    sub: Option<String>,
    client_id: Option<String>,
    aud: Option<Audience>,
    exp: Option<f64>,
    nbf: Option<f64>,
    /// Scopes, with a space between them (RFC 8693).
    scope: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Many(Vec<String>),
}

impl Audience {
    fn has(&self, wanted: &str) -> bool {
        match self {
            Self::One(one) => one == wanted,
            Self::Many(many) => many.iter().any(|one| one == wanted),
        }
    }
}

/// The claims that a token must have.
#[derive(Debug)]
pub(crate) struct Expected<'a> {
    pub(crate) keys: &'a Keys,
    pub(crate) issuer: &'a str,
    pub(crate) audience: &'a str,
    pub(crate) now: SystemTime,
}

/// The one that a token speaks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Subject {
    /// The claim that names it.
    pub(crate) claim: &'static str,
    pub(crate) name: String,
    pub(crate) valid_for: Duration,
    scopes: String,
}

impl Subject {
    pub(crate) fn has_scope(&self, wanted: &str) -> bool {
        self.scopes.split(' ').any(|scope| scope == wanted)
    }
}

/// Checks a token; gives the one it speaks for.
pub(crate) fn check(token: &str, expected: &Expected<'_>) -> Result<Subject, TokenError> {
    if token.len() > TOKEN_BYTES {
        return Err(TokenError::Form);
    }
    let (message, signature) = token.rsplit_once('.').ok_or(TokenError::Form)?;
    let (header, claims) = message.split_once('.').ok_or(TokenError::Form)?;
    let header: Header = part(header)?;
    if header.crit.is_some() {
        return Err(TokenError::Form);
    }
    let key = expected.keys.find(&header).ok_or(TokenError::Key)?;
    let signature = base64url(signature).ok_or(TokenError::Form)?;
    if !key.kind.verify(&header.alg, message.as_bytes(), &signature) {
        return Err(TokenError::Signature);
    }
    // From here on the issuer itself speaks.
    let claims: Claims = part(claims)?;
    if claims.iss.as_deref() != Some(expected.issuer) {
        return Err(TokenError::Issuer);
    }
    if !claims.aud.is_some_and(|aud| aud.has(expected.audience)) {
        return Err(TokenError::Audience);
    }
    let now = expected.now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (now, leeway) = (now.as_secs_f64(), LEEWAY.as_secs_f64());
    let left = claims.exp.map_or(0.0, |exp| exp + leeway - now);
    if left <= 0.0 || claims.nbf.is_some_and(|nbf| now + leeway < nbf) {
        return Err(TokenError::Time);
    }
    let valid_for = Duration::try_from_secs_f64(left).unwrap_or(Duration::MAX);
    let (claim, name) = match (claims.sub, claims.client_id) {
        (Some(sub), _) => ("sub", sub),
        (None, Some(client)) => ("client_id", client),
        (None, None) => return Err(TokenError::Subject),
    };
    if name.is_empty() {
        return Err(TokenError::Subject);
    }
    Ok(Subject {
        claim,
        name,
        valid_for,
        scopes: claims.scope.unwrap_or_default(),
    })
}

fn part<T: for<'a> Deserialize<'a>>(coded: &str) -> Result<T, TokenError> {
    let bytes = base64url(coded).ok_or(TokenError::Form)?;
    serde_json::from_slice(&bytes).map_err(|_| TokenError::Form)
}

/// Base64 for URLs, without padding.
fn base64url(text: &str) -> Option<Vec<u8>> {
    BASE64_URL_SAFE_NO_PAD.decode(text).ok()
}
