//! Every `_meta` key that the host reads or writes.

/// Protocol version of a modern request.
pub const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
/// Capabilities of the client of a modern request.
pub const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
/// Name and version of the client of a modern request.
pub const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
/// Name and version of the server, in a modern result.
pub const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
/// Lowest severity of log messages that a modern request asks for.
pub const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
/// Subscription to which a modern notification belongs.
pub const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";

/// The extension of modern clients and servers for tasks.
pub const TASKS: &str = "io.modelcontextprotocol/tasks";
/// Task to which a legacy message belongs.
pub const RELATED_TASK: &str = "io.modelcontextprotocol/related-task";

/// Token under which a client asks for progress; in a progress notification it is a parameter.
pub const PROGRESS_TOKEN: &str = "progressToken";

/// Span of the caller (W3C Trace Context).
pub const TRACEPARENT: &str = "traceparent";
/// Vendor state of the caller's trace (W3C Trace Context).
pub const TRACESTATE: &str = "tracestate";
/// Properties of the caller's trace (W3C Baggage).
pub const BAGGAGE: &str = "baggage";

/// The contract inside a tool definition.
pub const CONTRACT: &str = "io.mainstay/contract";
/// The form of definitions that a `tools/list` request asks for: `full`.
pub const DEFINITIONS: &str = "io.mainstay/definitions";
/// The servers whose tools are missing in a full `tools/list`, each with the reason.
pub const MISSING: &str = "io.mainstay/missing";
/// Fields of a progress notification beyond those of MCP.
pub const PROGRESS: &str = "io.mainstay/progress";
/// Replay class that a wrapped server's tool definition declares.
pub const REPLAY: &str = "io.mainstay/replay";
/// Restarts during a call, in the result of a wrapped server.
pub const RESTART: &str = "io.mainstay/restart";
