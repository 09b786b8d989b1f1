//! The request envelope: asks for one run of one tool.

use std::fmt;

use serde_json::json;
use thiserror::Error;

use super::fields::{self, Field, FieldError, FieldErrorKind, Fields, Read};
use super::{ENVELOPE_VERSION, is_date_time, is_tool_name};
use crate::error::ErrorKind;
use crate::json::Json;
use crate::outcome::Problem;
use crate::render::shorten;
use crate::scan;

/// The members of a request.
const MEMBERS: [&str; 9] = [
    "id",
    "version",
    "timestamp",
    "tool",
    "payload",
    "trace_id",
    "context",
    "auth",
    "metadata",
];
/// Longest part of a version that is repeated to its sender.
const VERSION_SHOWN: usize = 32;

/// A request that keeps its contract.
#[derive(Clone, Debug, PartialEq)]
pub struct Invocation {
    pub id: String,
    pub version: String,
    pub timestamp: String,
    pub tool: String,
    /// The arguments: an object, as it was written.
    pub payload: Json,
    pub trace_id: Option<String>,
    pub context: Option<Json>,
    pub auth: Option<Auth>,
    pub metadata: Option<Json>,
}

/// The credentials of a request. Its debug form shows no token.
#[derive(Clone, PartialEq, Eq)]
pub struct Auth {
    pub kind: AuthType,
    pub token: Option<String>,
    pub scopes: Vec<String>,
}

/// The kind of credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthType {
    Bearer,
    ApiKey,
    Basic,
    None,
}

/// A request that cannot be used, and what could be read of it all the same.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{reason}")]
pub struct RefusedInvocation {
    pub id: Option<String>,
    pub trace_id: Option<String>,
    pub reason: InvocationError,
}

/// Why a request cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum InvocationError {
    #[error(transparent)]
    Field(#[from] FieldError),
    /// A member that a newer minor version may have, and ours has not.
    #[error(
        "the member {member:?} of version {version} is not known here; this host knows {ENVELOPE_VERSION}"
    )]
    NewerMember { member: String, version: String },
    #[error("version {version} is not supported; send {ENVELOPE_VERSION}")]
    UnsupportedVersion { version: String },
}

impl Invocation {
    /// Reads a request as strictly as its schema does.
    pub fn parse(text: &[u8], max_depth: usize) -> Result<Self, RefusedInvocation> {
        let document = fields::document(text, max_depth).map_err(|error| RefusedInvocation {
            id: None,
            trace_id: None,
            reason: error.into(),
        })?;
        read(document).map_err(|reason| {
            let string = |key| {
                let raw = scan::member(document, key)?;
                scan::unquote(raw).map(std::borrow::Cow::into_owned)
            };
            RefusedInvocation {
                id: string("id"),
                trace_id: string("trace_id").filter(|trace| !trace.is_empty()),
                reason,
            }
        })
    }
}

fn read(document: &str) -> Result<Invocation, InvocationError> {
    let whole = Field::whole(document);
    // First of all: what other members mean depends on it.
    let version = version(document)?;
    let fields = Fields::of(&whole, &MEMBERS).map_err(|error| match error.kind {
        FieldErrorKind::Unknown(member) if is_newer(version.as_deref()) => {
            InvocationError::NewerMember {
                member,
                version: shorten(version.as_deref().unwrap_or_default(), VERSION_SHOWN),
            }
        }
        _ => error.into(),
    })?;
    let object = |name| {
        fields
            .optional(name)
            .map(|field| field.object())
            .transpose()
    };
    let trace_id = fields.optional("trace_id").map(|field| field.text());
    let auth = fields.optional("auth").map(|field| Auth::parse(&field));
    Ok(Invocation {
        id: fields.required("id")?.string()?,
        version: fields.required("version")?.string()?,
        timestamp: fields
            .required("timestamp")?
            .string_that("a date and time of RFC 3339", is_date_time)?,
        tool: fields
            .required("tool")?
            .string_that("the name of a tool", is_tool_name)?,
        payload: fields.required("payload")?.object()?,
        trace_id: trace_id.transpose()?,
        context: object("context")?,
        auth: auth.transpose()?,
        metadata: object("metadata")?,
    })
}

/// The version, if there is one; one that is none, or not ours, is refused.
fn version(document: &str) -> Result<Option<String>, InvocationError> {
    let Some(raw) = scan::member(document, "version") else {
        return Ok(None);
    };
    let path = "/version".to_owned();
    let field = Field { path, raw };
    let text = field.string()?;
    match parts(&text) {
        Some(["1", _, _]) => Ok(Some(text)),
        Some(_) => Err(InvocationError::UnsupportedVersion {
            version: shorten(&text, VERSION_SHOWN),
        }),
        None => {
            let wanted = FieldErrorKind::WrongValue("three numbers, such as 1.0.0");
            Ok(field.wrong(wanted)?)
        }
    }
}

/// Major, minor and patch, all of them digits.
fn parts(version: &str) -> Option<[&str; 3]> {
    let mut parts = version.split('.');
    let three = [parts.next()?, parts.next()?, parts.next()?];
    let number = |part: &&str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    (parts.next().is_none() && three.iter().all(number)).then_some(three)
}

/// True if a 1.m version is of a later minor than ours.
fn is_newer(version: Option<&str>) -> bool {
    let minor = |version| parts(version).map(|[_, minor, _]| minor.trim_start_matches('0'));
    let ours = minor(ENVELOPE_VERSION).unwrap_or_default();
    version
        .and_then(minor)
        .is_some_and(|theirs| (theirs.len(), theirs) > (ours.len(), ours))
}

impl Auth {
    fn parse(field: &Field<'_>) -> Read<Self> {
        let fields = Fields::of(field, &["type", "token", "scopes"])?;
        let kind = fields
            .required("type")?
            .word("bearer, api_key, basic or none", |text| match text {
                "bearer" => Some(AuthType::Bearer),
                "api_key" => Some(AuthType::ApiKey),
                "basic" => Some(AuthType::Basic),
                "none" => Some(AuthType::None),
                _ => None,
            })?;
        let token = fields.optional("token");
        if let Some(token) = token.as_ref().filter(|_| kind == AuthType::None) {
            return token.wrong(FieldErrorKind::Contradicts("type"));
        }
        let scopes = match fields.optional("scopes") {
            None => Vec::new(),
            Some(scopes) => scopes
                .elements()?
                .iter()
                .map(Field::string)
                .collect::<Read<_>>()?,
        };
        Ok(Self {
            kind,
            token: token.map(|token| token.string()).transpose()?,
            scopes,
        })
    }
}

impl fmt::Debug for Auth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Auth")
            .field("kind", &self.kind)
            .field("token", &self.token.as_ref().map(|_| super::redact::MARK))
            .field("scopes", &self.scopes)
            .finish()
    }
}

impl InvocationError {
    /// The error for the client: a row whose status is 400.
    pub fn to_problem(&self) -> Problem {
        let (kind, path) = match self {
            Self::Field(FieldError {
                kind: FieldErrorKind::NotJson { .. },
                path,
            }) => (ErrorKind::ParseError, path.as_str()),
            Self::Field(error) => (ErrorKind::InvalidParams, error.path.as_str()),
            Self::NewerMember { .. } => (ErrorKind::InvalidParams, ""),
            Self::UnsupportedVersion { version } => {
                let details = json!({ "supported": [ENVELOPE_VERSION], "requested": version });
                return Problem::new(ErrorKind::UnsupportedVersion, self.to_string())
                    .with_hint(format!("send a request of version {ENVELOPE_VERSION}"))
                    .with_details(details.into());
            }
        };
        let said = match self {
            Self::Field(error) => error.kind.to_string(),
            other => other.to_string(),
        };
        let errors = json!([{ "path": path, "msg": said }]);
        let own = json!({ "ok": false, "reason": kind.row().reason, "errors": errors });
        Problem::new(kind, format!("the request envelope cannot be used: {self}"))
            .with_hint("send what schemas/v1/request.schema.json describes")
            .with_details(own.into())
    }
}
