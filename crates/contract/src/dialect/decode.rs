//! From one line to an [`Inbound`]: shape of the message, its dialect, its method.
//!
//! The dialect is decided by the message alone: `mcp.discover` and `mcp.tool.invoke` are the envelope
//! dialect; `server/discover` or a protocol version in `_meta` means modern; any other method of
//! MCP's form means legacy; everything else is a tool name in the direct dialect. What cannot be
//! decided is answered in the direct form.

use std::borrow::Cow;

use super::envelope;
use super::params::{self, CallParams, bad, unsupported_version};
use super::{
    Answer, Cancel, CancelKind, Dialect, EchoId, Form, Inbound, Notice, Op, Refused, Request,
    Shape, TaskOp, TaskWish,
};
use crate::error::ErrorKind;
use crate::id::RequestId;
use crate::json::Json;
use crate::meta::{
    CLIENT_CAPABILITIES, DEFINITIONS, PROGRESS_TOKEN, PROTOCOL_VERSION, TASKS, TRACEPARENT,
};
use crate::method::{CANCEL_REQUEST, ListKind, Method, NOTIFICATION_PREFIX};
use crate::outcome::Problem;
use crate::scan::{self, Envelope, ScanError, ScanErrorKind};
use crate::trace::TraceContext;

/// Reads one line.
pub fn decode(line: &[u8], max_depth: usize) -> Inbound {
    let envelope = match scan::scan(line, max_depth) {
        Ok(envelope) => envelope,
        Err(error) => return Inbound::Refused(malformed_line(&error, max_depth)),
    };
    message(&envelope)
}

/// The error for a line that is not a message.
pub(super) fn malformed_line(error: &ScanError<'_>, max_depth: usize) -> Refused {
    let (at, invalid) = (error.offset, ErrorKind::InvalidMessage);
    let (id, kind, said) = match error.kind {
        ScanErrorKind::BadJson => {
            let said = format!("the line is not valid JSON (at byte {at})");
            (EchoId::Null, ErrorKind::ParseError, said)
        }
        ScanErrorKind::NotAnObject => {
            let said = "the message is not an object; batches are not supported";
            (EchoId::Null, invalid, said.to_owned())
        }
        ScanErrorKind::DuplicateKey => {
            let said = format!("the message has a key twice (at byte {at})");
            (echo(error.id), invalid, said)
        }
        ScanErrorKind::TooManyMembers => {
            let said = format!("the message has too many members (at byte {at})");
            (echo(error.id), invalid, said)
        }
        ScanErrorKind::TooDeep => {
            let said = format!("the message is nested deeper than {max_depth} levels");
            (echo(error.id), invalid, said)
        }
    };
    refusal(id, kind, said)
}

/// Answers a line that was too long to be read, from what its first bytes show.
pub fn decode_oversize(head: &[u8], last: Option<Dialect>, limit: usize) -> Inbound {
    let facts = scan::head_id(head);
    let decided = facts
        .method
        .as_deref()
        .map(|method| dialect_of(method, facts.has_modern_meta));
    // An envelope says which method it answers, so it takes one.
    let last = last.filter(|last| last.is_mcp());
    let dialect = decided.or(last).unwrap_or(Dialect::Direct);
    let id = match (facts.id.map(RequestId::parse), dialect) {
        (Some(Ok(id)), _) => EchoId::Known(id),
        (_, Dialect::Direct | Dialect::Envelope | Dialect::Rest) => EchoId::Null,
        (_, Dialect::Legacy | Dialect::Modern) => EchoId::Absent,
    };
    let shape = match dialect {
        Dialect::Envelope => envelope::shape(facts.method.as_deref().unwrap_or_default()),
        _ => Shape::Plain,
    };
    Inbound::Refused(Refused {
        id,
        form: Form { dialect, shape },
        problem: Problem::too_large(limit),
        payload: None,
    })
}

fn message(envelope: &Envelope<'_>) -> Inbound {
    let id = match envelope.id.map(RequestId::parse) {
        None => None,
        Some(Ok(id)) => Some(id),
        Some(Err(reason)) => {
            return malformed(EchoId::Null, ErrorKind::InvalidMessage, reason.to_string());
        }
    };
    let echo_id = || id.clone().map_or(EchoId::Null, EchoId::Known);
    if envelope.jsonrpc.and_then(scan::unquote).as_deref() != Some("2.0") {
        let said = "the member jsonrpc must be \"2.0\"".to_owned();
        return malformed(echo_id(), ErrorKind::InvalidMessage, said);
    }
    let Some(method) = envelope.method else {
        let result = match (envelope.result, envelope.error) {
            (Some(result), None) => Some(Ok(Json::from_scanned(result))),
            (None, Some(error)) => Some(Err(Json::from_scanned(error))),
            _ => None,
        };
        if let (Some(id), Some(result)) = (id.clone(), result) {
            return Inbound::Answer(Answer { id, result });
        }
        let said = "the message has no method".to_owned();
        return malformed(echo_id(), ErrorKind::InvalidMessage, said);
    };
    let Some(method) = scan::unquote(method) else {
        let said = "the method is not a string".to_owned();
        return malformed(echo_id(), ErrorKind::InvalidMessage, said);
    };
    let Some(id) = id else {
        return notification(&method, envelope.params);
    };
    if envelope
        .params
        .is_some_and(|params| !params.starts_with('{'))
    {
        let said = "the params are not an object".to_owned();
        return malformed(EchoId::Known(id), ErrorKind::InvalidMessage, said);
    }
    request(id, &method, envelope.params.unwrap_or("{}"))
}

/// Without an id nothing is answered, and only control messages are obeyed.
fn notification(method: &str, params: Option<&str>) -> Inbound {
    let (key, kind) = match Method::parse(method) {
        None if method == CANCEL_REQUEST => ("id", CancelKind::Answered),
        Some(Method::Cancelled) => ("requestId", CancelKind::Silent),
        Some(Method::Initialized) => return Inbound::Notice(Notice::Initialized),
        Some(Method::RootsChanged) => return Inbound::Notice(Notice::RootsChanged),
        _ => return Inbound::Ignored,
    };
    let target = params
        .and_then(|params| scan::member(params, key))
        .map(RequestId::parse);
    match target {
        Some(Ok(target)) => Inbound::Cancel(Cancel { target, kind }),
        _ => Inbound::Ignored,
    }
}

fn request(id: RequestId, method: &str, params: &str) -> Inbound {
    let read = CallParams::of(params);
    let meta = read.meta;
    let version = meta.and_then(|meta| scan::member(meta, PROTOCOL_VERSION));
    let dialect = dialect_of(method, version.is_some());
    if method.starts_with("$/") || method.starts_with(NOTIFICATION_PREFIX) {
        let said = format!("{method} is a notification: send it without an id");
        return malformed(EchoId::Known(id), ErrorKind::InvalidMessage, said);
    }
    let op = match dialect {
        Dialect::Direct => Ok(Op::CallTool {
            name: method.to_owned(),
            arguments: Json::from_scanned(params),
        }),
        Dialect::Modern => {
            check_modern(meta, version).and_then(|()| mcp(method, dialect, params, &read))
        }
        Dialect::Legacy => mcp(method, dialect, params, &read),
        Dialect::Envelope | Dialect::Rest => envelope::op(method, params),
    };
    match op {
        Ok(op) => {
            let progress_token = meta
                .and_then(|meta| scan::member(meta, PROGRESS_TOKEN))
                .filter(|token| RequestId::parse(token).is_ok())
                .map(Json::from_scanned);
            let trace = meta
                .and_then(|meta| scan::member(meta, TRACEPARENT))
                .and_then(scan::unquote)
                .and_then(|text| TraceContext::parse(&text));
            let task = match &op {
                Op::CallTool { .. } => task_wish(dialect, read.task, meta),
                _ => None,
            };
            Inbound::Request(Request {
                id,
                dialect,
                op,
                progress_token,
                trace,
                task,
            })
        }
        Err(problem) => {
            let (shape, payload) = match dialect {
                Dialect::Envelope => (envelope::shape(method), Some(Json::from_scanned(params))),
                _ => (Shape::Plain, None),
            };
            Inbound::Refused(Refused {
                id: EchoId::Known(id),
                form: Form { dialect, shape },
                problem,
                payload,
            })
        }
    }
}

pub(super) fn dialect_of(method: &str, has_version: bool) -> Dialect {
    if envelope::METHODS.contains(&method) {
        Dialect::Envelope
    } else if method == Method::Discover.name() || has_version {
        Dialect::Modern
    } else if method.contains('/') || Method::parse(method).is_some() {
        Dialect::Legacy
    } else {
        Dialect::Direct
    }
}

fn check_modern(meta: Option<&str>, version: Option<&str>) -> Result<(), Problem> {
    let version = check_members(meta, version)?;
    if version != super::MODERN_VERSION {
        return Err(unsupported_version(&version));
    }
    Ok(())
}

/// The version that a modern request carries; one that carries too little is refused. Whether the
/// version is served is another question.
pub fn modern_version(params: Option<&str>) -> Result<Cow<'_, str>, Problem> {
    let meta = params.and_then(|params| scan::member(params, "_meta"));
    let meta = meta.filter(|meta| meta.starts_with('{'));
    let version = meta.and_then(|meta| scan::member(meta, PROTOCOL_VERSION));
    check_members(meta, version)
}

fn check_members<'a>(
    meta: Option<&'a str>,
    version: Option<&'a str>,
) -> Result<Cow<'a, str>, Problem> {
    let Some(version) = version.and_then(scan::unquote) else {
        return Err(bad(format!(
            "_meta must carry {PROTOCOL_VERSION} as a string"
        )));
    };
    // A version that is not served may want other members.
    let capabilities = meta.and_then(|meta| scan::member(meta, CLIENT_CAPABILITIES));
    let is_object = capabilities.is_some_and(|capabilities| capabilities.starts_with('{'));
    if !is_object && version == super::MODERN_VERSION {
        return Err(bad(format!(
            "_meta must carry {CLIENT_CAPABILITIES} as an object"
        )));
    }
    Ok(version)
}

/// The operation that a request of MCP asks for, if its era has the method and we offer it.
fn mcp(method: &str, dialect: Dialect, params: &str, read: &CallParams<'_>) -> Result<Op, Problem> {
    match Method::parse(method).filter(|known| known.era().includes(dialect)) {
        Some(Method::Initialize) => {
            let version = params::string(params, "protocolVersion")?;
            let capabilities = scan::member(params, "capabilities");
            let roots = capabilities
                .filter(|capabilities| capabilities.starts_with('{'))
                .and_then(|capabilities| scan::member(capabilities, "roots"))
                .is_some_and(|roots| roots.starts_with('{'));
            let elicits = capabilities.is_some_and(declares_forms);
            Ok(Op::Initialize {
                version,
                roots,
                elicits,
            })
        }
        Some(Method::Discover) => Ok(Op::Discover {}),
        Some(Method::Ping) => Ok(Op::Ping {}),
        Some(Method::Listen) => {
            let wanted = params::object(params, "notifications")?;
            let is_wanted =
                |kind: &ListKind| scan::member(wanted.as_str(), kind.wanted()) == Some("true");
            // Templates are announced with the resources.
            let lists = [ListKind::Tools, ListKind::Prompts, ListKind::Resources];
            let lists = lists.into_iter().filter(is_wanted).collect();
            Ok(Op::Listen { lists })
        }
        Some(Method::ListTools) => {
            let form = read.meta.and_then(|meta| scan::member(meta, DEFINITIONS));
            let full = form == Some("\"full\"");
            params::first_page(params).map(|()| Op::ListTools { full })
        }
        Some(Method::CallTool) => Ok(Op::CallTool {
            name: read.name()?,
            arguments: read.arguments()?,
        }),
        Some(Method::ListResources) => {
            params::cursor(params).map(|cursor| Op::ListResources { cursor })
        }
        Some(Method::ListResourceTemplates) => {
            params::first_page(params).map(|()| Op::ListResourceTemplates {})
        }
        Some(Method::ReadResource) => Ok(Op::ReadResource {
            uri: params::string(params, "uri")?,
        }),
        Some(Method::ListPrompts) => params::first_page(params).map(|()| Op::ListPrompts {}),
        Some(Method::GetPrompt) => Ok(Op::GetPrompt {
            name: read.name()?,
            arguments: read.arguments()?,
        }),
        Some(Method::Complete) => params::completion(params).map(Op::Complete),
        // A host of packs alone does not offer these three, with any parameters.
        Some(Method::SubscribeResource) => Ok(Op::Subscribe {
            uri: params::string(params, "uri").unwrap_or_default(),
        }),
        Some(Method::UnsubscribeResource) => Ok(Op::Unsubscribe {
            uri: params::string(params, "uri").unwrap_or_default(),
        }),
        Some(Method::SetLogLevel) => Ok(Op::SetLogLevel {
            level: params::string(params, "level").unwrap_or_default(),
        }),
        Some(
            method @ (Method::GetTask
            | Method::GetTaskResult
            | Method::ListTasks
            | Method::CancelTask
            | Method::UpdateTask),
        ) => task_op(method, dialect, params).map(Op::Task),
        _ => Err(unknown_method(method)),
    }
}

/// True if the capabilities of a client say that it can ask its user with a form.
pub fn declares_forms(capabilities: &str) -> bool {
    let declared = Some(capabilities)
        .filter(|capabilities| capabilities.starts_with('{'))
        .and_then(|capabilities| scan::member(capabilities, "elicitation"))
        .filter(|elicitation| elicitation.starts_with('{'));
    // Without a mode it means forms; a client may declare URLs alone.
    declared.is_some_and(|elicitation| {
        scan::member(elicitation, "form").is_some() || scan::member(elicitation, "url").is_none()
    })
}

/// The question of a `tasks/*` request. A modern client must declare the extension with every request.
pub fn task_op(method: Method, dialect: Dialect, params: &str) -> Result<TaskOp, Problem> {
    let meta = scan::member(params, "_meta").filter(|meta| meta.starts_with('{'));
    if dialect == Dialect::Modern && !declares_tasks(meta)? {
        return Err(params::missing_extension(TASKS));
    }
    let id = || params::string(params, "taskId");
    Ok(match method {
        Method::GetTaskResult => TaskOp::Result { id: id()? },
        Method::ListTasks => TaskOp::List {
            cursor: params::cursor(params)?,
        },
        Method::CancelTask => TaskOp::Cancel { id: id()? },
        Method::UpdateTask => TaskOp::Update { id: id()? },
        _ => TaskOp::Get { id: id()? },
    })
}

/// The wish of a tool call for a task: legacy clients ask for one, modern clients allow it.
/// `task` is that member of its parameters.
pub fn task_wish(dialect: Dialect, task: Option<&str>, meta: Option<&str>) -> Option<TaskWish> {
    let (required, malformed) = match dialect {
        Dialect::Legacy => (true, check_task(task?).err()),
        Dialect::Modern => match declares_tasks(meta) {
            Ok(true) => (false, None),
            Ok(false) => return None,
            Err(problem) => (false, Some(problem)),
        },
        _ => return None,
    };
    Some(TaskWish {
        required,
        malformed,
        ..TaskWish::default()
    })
}

/// Checks the member `task` of a legacy call.
fn check_task(task: &str) -> Result<(), Problem> {
    if !task.starts_with('{') {
        return Err(params::misplaced("/params/task", "must be an object"));
    }
    let is_duration = |ttl: &str| ttl.parse::<f64>().is_ok_and(|ttl| ttl >= 0.0);
    match scan::member(task, "ttl") {
        None | Some("null") => Ok(()),
        Some(ttl) if is_duration(ttl) => Ok(()),
        Some(_) => {
            let rule = "must be a number of milliseconds that is not negative";
            Err(params::misplaced("/params/task/ttl", rule))
        }
    }
}

/// True if a modern request declares the extension for tasks.
fn declares_tasks(meta: Option<&str>) -> Result<bool, Problem> {
    let declared = meta
        .and_then(|meta| scan::member(meta, CLIENT_CAPABILITIES))
        .filter(|capabilities| capabilities.starts_with('{'))
        .and_then(|capabilities| scan::member(capabilities, "extensions"))
        .filter(|extensions| extensions.starts_with('{'))
        .and_then(|extensions| scan::member(extensions, TASKS));
    match declared {
        None => Ok(false),
        Some(declared) if declared.starts_with('{') => Ok(true),
        Some(_) => {
            let escape = |name: &str| name.replace('~', "~0").replace('/', "~1");
            let (capabilities, tasks) = (escape(CLIENT_CAPABILITIES), escape(TASKS));
            let place = format!("/params/_meta/{capabilities}/extensions/{tasks}");
            Err(params::misplaced(&place, "must be an object"))
        }
    }
}

fn echo(raw: Option<&str>) -> EchoId {
    raw.and_then(|raw| RequestId::parse(raw).ok())
        .map_or(EchoId::Null, EchoId::Known)
}

fn malformed(id: EchoId, kind: ErrorKind, message: String) -> Inbound {
    Inbound::Refused(refusal(id, kind, message))
}

fn refusal(id: EchoId, kind: ErrorKind, message: String) -> Refused {
    Refused {
        id,
        form: Dialect::Direct.plain(),
        problem: Problem::new(kind, message),
        payload: None,
    }
}

fn unknown_method(method: &str) -> Problem {
    let shown: Cow<'_, str> = match method.char_indices().nth(64) {
        None => method.into(),
        Some((cut, _)) => format!("{}…", method.get(..cut).unwrap_or_default()).into(),
    };
    Problem::new(
        ErrorKind::UnknownMethod,
        format!("the method {shown} is not offered"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::method::{Direction, MethodKind};

    /// Reads the method with parameters that suit every method of ours.
    fn read(method: Method, dialect: Dialect, id: &str) -> Inbound {
        let meta = match dialect {
            Dialect::Modern => format!(
                r#","_meta":{{"{PROTOCOL_VERSION}":"{}","{CLIENT_CAPABILITIES}":{{"extensions":{{"{TASKS}":{{}}}}}}}}"#,
                super::super::MODERN_VERSION
            ),
            _ => String::new(),
        };
        let line = format!(
            r#"{{"jsonrpc":"2.0"{id},"method":"{}","params":{{"protocolVersion":"2025-11-25","name":"n","uri":"u:","taskId":"t","requestId":1,"level":"info","ref":{{"type":"ref/prompt","name":"n"}},"argument":{{"name":"a","value":""}}{meta}}}}}"#,
            method.name()
        );
        decode(line.as_bytes(), 16)
    }

    #[test]
    fn accepted_requests_are_those_that_the_table_gives_to_their_era() {
        let mut offered = 0;
        for &method in Method::ALL {
            let accepted = |dialect| match read(method, dialect, r#","id":1"#) {
                Inbound::Request(request) => {
                    assert_eq!(request.op.mcp_method(), Some(method));
                    request.dialect == dialect
                }
                Inbound::Refused(_) => false,
                other => panic!("{method:?}: {other:?}"),
            };
            let eras = [Dialect::Legacy, Dialect::Modern].map(accepted);
            let table = [Dialect::Legacy, Dialect::Modern].map(|era| method.era().includes(era));
            if eras != [false, false] {
                offered += 1;
                assert_eq!(eras, table, "{method:?}");
                assert_eq!(method.kind(), MethodKind::Request);
                assert_ne!(method.direction(), Direction::ServerToClient);
            }
        }
        assert_eq!(offered, 20, "every operation but the catalog of envelopes");
    }

    #[test]
    fn a_modern_request_about_a_task_must_declare_the_extension() {
        let line = |capabilities: &str| {
            format!(
                r#"{{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{{"taskId":"t","_meta":{{"{PROTOCOL_VERSION}":"{}","{CLIENT_CAPABILITIES}":{capabilities}}}}}}}"#,
                super::super::MODERN_VERSION
            )
        };
        let declares = format!(r#"{{"extensions":{{"{TASKS}":{{}}}}}}"#);
        let Inbound::Request(request) = decode(line(&declares).as_bytes(), 16) else {
            panic!("refused");
        };
        assert_eq!(request.op, Op::Task(TaskOp::Get { id: "t".into() }));
        for capabilities in ["{}", r#"{"extensions":{}}"#, r#"{"extensions":[]}"#] {
            let Inbound::Refused(refused) = decode(line(capabilities).as_bytes(), 16) else {
                panic!("accepted: {capabilities}");
            };
            assert_eq!(refused.problem.kind, ErrorKind::MissingClientCapability);
            let details = refused.problem.details.unwrap();
            assert_eq!(
                details.as_str(),
                format!(r#"{{"requiredCapabilities":{declares}}}"#)
            );
        }
    }

    #[test]
    fn legacy_calls_ask_for_a_task_and_modern_ones_allow_it() {
        let wish = |line: String| match decode(line.as_bytes(), 16) {
            Inbound::Request(request) => request.task,
            other => panic!("{other:?}"),
        };
        let call = |rest: &str| {
            format!(
                r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"n"{rest}}}}}"#
            )
        };
        assert_eq!(wish(call("")), None);
        for good in [
            "{}",
            r#"{"ttl":60000}"#,
            r#"{"ttl":null}"#,
            r#"{"ttl":1.5}"#,
        ] {
            let asked = wish(call(&format!(r#","task":{good}"#))).unwrap();
            assert_eq!((asked.required, asked.malformed), (true, None), "{good}");
        }
        for (bad, place) in [
            ("1", "/params/task"),
            ("null", "/params/task"),
            ("[]", "/params/task"),
            (r#"{"ttl":-1}"#, "/params/task/ttl"),
            (r#"{"ttl":"5"}"#, "/params/task/ttl"),
            (r#"{"ttl":{}}"#, "/params/task/ttl"),
        ] {
            let asked = wish(call(&format!(r#","task":{bad}"#))).unwrap();
            let problem = asked.malformed.unwrap();
            assert_eq!(problem.kind, ErrorKind::InvalidParams, "{bad}");
            let details = problem.details.unwrap().to_value().unwrap();
            assert_eq!(details["pointer"], place, "{bad}");
        }
        let modern = |extensions: &str| {
            let version = super::super::MODERN_VERSION;
            call(&format!(
                r#","task":{{}},"_meta":{{"{PROTOCOL_VERSION}":"{version}","{CLIENT_CAPABILITIES}":{{{extensions}}}}}"#
            ))
        };
        assert_eq!(wish(modern("")), None, "modern clients have no member task");
        let allowed = wish(modern(&format!(r#""extensions":{{"{TASKS}":{{}}}}"#))).unwrap();
        assert_eq!((allowed.required, allowed.malformed), (false, None));
        let odd = wish(modern(&format!(r#""extensions":{{"{TASKS}":5}}"#))).unwrap();
        assert!(odd.malformed.unwrap().message.starts_with("/params/_meta/"));
    }

    #[test]
    fn notifications_that_are_obeyed_are_in_the_table_as_sent_by_clients() {
        for &method in Method::ALL {
            let obeyed = !matches!(read(method, Dialect::Legacy, ""), Inbound::Ignored);
            let expected = [Method::Cancelled, Method::Initialized, Method::RootsChanged];
            assert_eq!(obeyed, expected.contains(&method), "{method:?}");
            if obeyed {
                assert_eq!(method.kind(), MethodKind::Notification);
                assert_ne!(method.direction(), Direction::ServerToClient);
            }
        }
    }
}
