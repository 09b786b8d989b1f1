//! The command line.

mod approvals;
mod first_steps;
mod stores;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use mainstay_host::config::ToolListRules;
use serde::Deserialize;

pub(crate) use self::approvals::{
    Approve, ApproveCommand, Audit, AuditArgs, AuditCommand, AuditShow, AuditVerify,
};
pub(crate) use self::first_steps::{Demo, Doctor, Setup};
pub(crate) use self::stores::{
    Cache, CacheCommand, Skill, SkillCommand, SkillInstall, Tasks, TasksCommand,
};
use crate::server_file::ServerEntry;
use crate::{sandbox, values};

const AFTER: &str = "\
Exit codes: 0 success, 1 the answer is no, 2 input, configuration or I/O error, 3 internal fault.
mainstay COMMAND --help describes the options of a command, mainstay environment the variables,
mainstay errors every error.";

/// The hardened MCP host: it owns the client's session, and workers may come and go.
///
/// With no command it serves MCP on standard input and output.
#[derive(Debug, Parser)]
#[command(name = "mainstay", version = crate::VERSION, after_help = AFTER)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) serve: Serve,
    /// Validate a JSON file against its schema and end: 0 valid, 1 not valid, 2 no asset at all
    #[arg(long, value_name = "PATH")]
    pub(crate) validate: Option<PathBuf>,
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve tool packs to MCP clients (the default)
    Serve(Serve),
    /// Run somebody else's MCP server so that its crashes, hangs and floods do not reach its client
    Wrap(Box<Wrap>),
    /// Share one process of a server among all clients of this user
    Share(Share),
    /// Wrap every server in a client's configuration file, or undo it
    Adopt(Adopt),
    /// Find the clients on this machine, and wrap their servers
    Setup(Setup),
    /// Name what is wrong on this machine or in a configuration, each with its fix
    Doctor(Doctor),
    /// Show in a few seconds what a host does when a server crashes
    Demo(Demo),
    /// Call one tool and print its answer
    Call(Call),
    /// List the tools
    Tools(Tools),
    /// Validate a JSON file against its schema (also: mainstay --validate PATH)
    Validate(Validate),
    /// Record what the tools promise, and find changes that need a higher version
    Lock(Lock),
    /// Run a fixed list of requests over HTTP and write the validation log
    Once(Once),
    /// Look at validation logs
    #[command(subcommand)]
    Log(LogCommand),
    /// Show the hosts of this user that are running
    Status(Status),
    /// Stop a running host: it finishes what is in flight, then ends
    Stop(Stop),
    /// Replace the workers of a running host: fresh ones take over, the old ones finish
    Rollout(RolloutArgs),
    /// Replace the executable of a running host: same process, same sessions, no call is lost
    Upgrade(UpgradeArgs),
    /// List the indexes of the code pack, or remove them
    Cache(Cache),
    /// List, show, cancel or remove the tasks that hosts of this user run or have run
    Tasks(Tasks),
    /// Grant or deny calls that wait for a person
    Approve(Approve),
    /// Check and show audit files
    Audit(Audit),
    /// Install the skill with which coding agents build MCP servers on Mainstay
    Skill(Skill),
    /// Print the error table
    Errors(Errors),
    /// Print the environment variables that are read, and which are set
    Environment(EnvironmentPage),
    /// Run a built-in pack as a worker (used by the host itself)
    Worker(Worker),
}

#[derive(Debug, Args)]
pub(crate) struct Once {
    /// Ids that follow from each request, the same in every run
    #[arg(long)]
    pub(crate) deterministic_ids: bool,
    /// Folder of the logs; the last five are kept in mcp_server below it
    #[arg(long, value_name = "DIR")]
    pub(crate) log_dir: PathBuf,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LogCommand {
    /// Compare a validation log with the golden one: 0 no difference, 1 some
    Diff(LogDiff),
}

#[derive(Debug, Args)]
pub(crate) struct LogDiff {
    /// The log of a run
    #[arg(long, value_name = "FILE")]
    pub(crate) new: PathBuf,
    /// The log that it should be like
    #[arg(long, value_name = "FILE")]
    pub(crate) golden: PathBuf,
    /// Records may stand in any order
    #[arg(long)]
    pub(crate) ignore_order: bool,
}

/// What is served, wherever it is served.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Packs {
    /// Pack to serve: a built-in one by NAME, or any program written with the worker library as
    /// NAME=COMMAND; may be repeated [default: all built-in packs]
    #[arg(long = "pack", value_name = "NAME[=COMMAND]")]
    pub(crate) packs: Vec<String>,
    /// Configuration file, TOML or JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Repository of the code pack; may be repeated [default: the roots of a client on standard
    /// input that has some, else the current directory]
    #[arg(long = "root", value_name = "DIR")]
    pub(crate) roots: Vec<PathBuf>,
}

/// How clients come, instead of one on standard input and output. Each client of a wrapped server
/// has a server of its own.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Transports {
    /// Serve many clients on a Unix socket
    #[arg(long, value_name = "PATH", conflicts_with = "http")]
    pub(crate) socket: Option<PathBuf>,
    /// Serve many clients over HTTP; port 0 takes any free one
    #[arg(long, value_name = "ADDR:PORT", value_parser = values::address)]
    pub(crate) http: Option<std::net::SocketAddr>,
    /// Additional host name to accept in the Host header; may be repeated
    #[arg(long, value_name = "NAME")]
    pub(crate) allow_host: Vec<String>,
}

/// The list of tools that clients get.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ToolLists {
    /// Form of our definitions in tools/list: brief, or full with the schemas of results and every error
    /// code [default: brief]
    #[arg(long, value_name = "FORM", value_enum)]
    pub(crate) tool_definitions: Option<Definitions>,
    /// Replace a list of more than N tools by search_tools and call_tool
    #[arg(long, value_name = "N", value_parser = values::count)]
    pub(crate) search_above: Option<u32>,
    /// Keep this tool in a replaced list; may be repeated
    #[arg(long, value_name = "TOOL")]
    pub(crate) pin: Vec<String>,
}

impl ToolLists {
    /// The settings of a file, with those of the command line over them.
    pub(crate) fn over(&self, mut rules: ToolListRules) -> ToolListRules {
        if let Some(form) = self.tool_definitions {
            rules.definitions = form.into();
        }
        let above = self.search_above.and_then(|above| above.try_into().ok());
        rules.search_above = above.or(rules.search_above);
        rules.pinned.extend(self.pin.iter().cloned());
        rules
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Definitions {
    Brief,
    Full,
}

impl From<Definitions> for mainstay_contract::tool::DefinitionForm {
    fn from(form: Definitions) -> Self {
        match form {
            Definitions::Brief => Self::Brief,
            Definitions::Full => Self::Full,
        }
    }
}

#[derive(Clone, Debug, Args)]
pub(crate) struct Serve {
    #[command(flatten)]
    pub(crate) packs: Packs,
    #[command(flatten)]
    pub(crate) transport: Transports,
    #[command(flatten)]
    pub(crate) tool_lists: ToolLists,
    #[command(flatten)]
    pub(crate) audit: AuditArgs,
    /// Withdraw tools of packs that differ from this lock, or are not in it
    #[arg(long, value_name = "FILE")]
    pub(crate) lock: Option<PathBuf>,
    /// Roll out a pack when its executable changes, and the asset pack when its files do
    #[arg(long)]
    pub(crate) watch: bool,
    /// Append one JSON line per ended request and worker event to a file
    #[arg(long, value_name = "FILE")]
    pub(crate) telemetry: Option<PathBuf>,
    /// Text form of answers for clients that do not choose
    #[arg(long, value_name = "MODE", value_enum)]
    pub(crate) render: Option<Render>,
    /// Check of the envelopes that the host sends: off skips it, shadow reports a mismatch, enforce
    /// sends an error instead [default: shadow]
    #[arg(long, value_name = "MODE", value_enum)]
    pub(crate) envelopes: Option<Envelopes>,
    /// Least severe lines to log on standard error [default: info]
    #[arg(long, value_name = "LEVEL", value_enum)]
    pub(crate) log: Option<LogLevel>,
    /// Name of this host for mainstay status, stop and rollout [default: mainstay]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
}

#[derive(Clone, Debug, Default, Args)]
#[command(override_usage = "mainstay wrap [OPTIONS] [--] <COMMAND>...
       mainstay wrap [OPTIONS] --url <URL>
       mainstay wrap [OPTIONS] --config <FILE>")]
pub(crate) struct Wrap {
    #[command(flatten)]
    pub(crate) server: WrapRules,
    #[command(flatten)]
    pub(crate) transport: Transports,
    #[command(flatten)]
    pub(crate) tool_lists: ToolLists,
    #[command(flatten)]
    pub(crate) audit: AuditArgs,
    /// Roll out the server when this file changes, or anything below this directory; may be repeated
    #[arg(long, value_name = "PATH")]
    pub(crate) watch: Vec<PathBuf>,
    /// Append one JSON line per ended request and worker event to a file
    #[arg(long, value_name = "FILE")]
    pub(crate) telemetry: Option<PathBuf>,
    /// Check of the envelopes that the host sends: off skips it, shadow reports a mismatch, enforce
    /// sends an error instead [default: shadow]
    #[arg(long, value_name = "MODE", value_enum)]
    pub(crate) envelopes: Option<Envelopes>,
    /// Least severe lines to log on standard error [default: info]
    #[arg(long, value_name = "LEVEL", value_enum)]
    pub(crate) log: Option<LogLevel>,
    /// Name of this host for mainstay status, stop and rollout [default: the server's name]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// The server: its program and its arguments, after the options of mainstay
    #[arg(trailing_var_arg = true, value_name = "COMMAND")]
    pub(crate) command: Vec<std::ffi::OsString>,
}

/// How a server is wrapped.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct WrapRules {
    /// Configuration file with the server and its rules: a client's JSON with mcpServers, or TOML
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Name of the server in that file, where it has several
    #[arg(long, value_name = "NAME", requires = "config")]
    pub(crate) server: Option<String>,
    /// Withdraw every tool that differs from this lock, or is not in it
    #[arg(long, value_name = "FILE")]
    pub(crate) lock: Option<PathBuf>,
    /// Time for a request to the server, except for opening a session and subscriptions; a number is
    /// seconds, other units are ms, m and h [default: 120]
    #[arg(long, value_name = "TIME", value_parser = values::time)]
    pub(crate) timeout: Option<Duration>,
    /// Longest time for the server to open a session, as long as its client waits [default: 10m]
    #[arg(long, value_name = "TIME", value_parser = values::time)]
    pub(crate) start_timeout: Option<Duration>,
    /// Restarts within a period, after which the server is left alone for a while [default: 10/60]
    #[arg(long, value_name = "N/TIME", value_parser = values::restarts)]
    pub(crate) restarts: Option<(u32, Duration)>,
    /// Most bytes of text in one result; the rest can be read as a resource
    #[arg(long, value_name = "BYTES", value_parser = values::bytes)]
    pub(crate) max_output: Option<u64>,
    /// Most bytes of memory of the server and all it starts; past it the server is replaced
    #[arg(long, value_name = "BYTES", value_parser = values::bytes)]
    pub(crate) max_memory: Option<u64>,
    /// Stop the server after this time without work, until it is needed again
    #[arg(long, value_name = "TIME", value_parser = values::time)]
    pub(crate) idle_stop: Option<Duration>,
    /// Start the server only when something is asked of it
    #[arg(long)]
    pub(crate) lazy: bool,
    /// Ask the server for its handshake and its lists at every start, instead of giving those of its last run
    /// while it starts
    #[arg(long)]
    pub(crate) no_remember: bool,
    /// Serve clients of the stateless revision on a server with sessions, and the reverse
    #[arg(long)]
    pub(crate) bridge: bool,
    /// Offer only tools of this name, * for any characters; may be repeated
    #[arg(long, value_name = "TOOL")]
    pub(crate) allow: Vec<String>,
    /// Do not offer tools of this name; may be repeated
    #[arg(long, value_name = "TOOL")]
    pub(crate) deny: Vec<String>,
    /// Ask a person before each call of tools of this name; may be repeated
    #[arg(long, value_name = "TOOL")]
    pub(crate) ask: Vec<String>,
    /// Do not believe the server's own hints about what may run again
    #[arg(long)]
    pub(crate) distrust_hints: bool,
    /// Add the tools system_health and system_telemetry
    #[arg(long)]
    pub(crate) system_tools: bool,
    /// Run calls of clients that ask for it as tasks, which outlive the client and this host
    #[arg(long)]
    pub(crate) tasks: bool,
    /// Keep a second server running, which takes over at once
    #[arg(long)]
    pub(crate) standby: bool,
    /// Put the server into a PID namespace of its own
    #[arg(long)]
    pub(crate) isolate: bool,
    /// Run the server without access to your files, the network and other processes: strict (the default), best-effort, learn
    /// (only write a profile of what it uses), or the path of a profile; see --read, --write, --net and --env
    #[arg(long, value_name = "MODE|FILE", num_args = 0..=1, require_equals = true, default_missing_value = "strict",
        value_parser = sandbox::Choice::parse)]
    pub(crate) sandbox: Option<sandbox::Choice>,
    /// The profile that --sandbox=learn writes [default: sandbox/NAME.toml in the state directory]; else the profile to use
    #[arg(long, value_name = "FILE", requires = "sandbox")]
    pub(crate) profile: Option<PathBuf>,
    /// Let the sandboxed server download and run itself as these do, with a cache of its own; may be repeated
    #[arg(long, value_name = "NAME", requires = "sandbox")]
    pub(crate) preset: Vec<sandbox::Preset>,
    /// Let the sandboxed server read this file or directory; may be repeated
    #[arg(long, value_name = "PATH", requires = "sandbox")]
    pub(crate) read: Vec<PathBuf>,
    /// Let the sandboxed server change this file or directory; may be repeated
    #[arg(long, value_name = "PATH", requires = "sandbox")]
    pub(crate) write: Vec<PathBuf>,
    /// Network of the sandboxed server: none, loopback, all, or HOST:PORT, which may be repeated [default: none]
    #[arg(long, value_name = "NET", requires = "sandbox")]
    pub(crate) net: Vec<String>,
    /// Pass this variable on to the sandboxed server; may be repeated
    #[arg(long, value_name = "NAME", requires = "sandbox")]
    pub(crate) env: Vec<String>,
    #[command(flatten)]
    pub(crate) remote: RemoteArgs,
}

/// Options that only a server at a URL has; all others keep the usual heading.
const AT_A_URL: &str = "A server at a URL";

/// A server that is reached over HTTP. Credentials are never arguments: other users see those.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub(crate) struct RemoteArgs {
    /// The server's URL, instead of a command
    #[arg(long, help_heading = AT_A_URL, value_name = "URL", conflicts_with = "command")]
    pub(crate) url: Option<String>,
    /// Its transport: http is Streamable HTTP, sse the older one of 2024-11-05 [default: auto]
    #[arg(long, help_heading = AT_A_URL, value_name = "TYPE", value_enum)]
    pub(crate) url_type: Option<UrlType>,
    /// File with the bearer token, read again when the server rejects the token
    #[arg(long, help_heading = AT_A_URL, value_name = "FILE", conflicts_with_all = ["token_command", "token_env"])]
    pub(crate) token_file: Option<PathBuf>,
    /// Command that prints the bearer token, run again when the server rejects the token
    #[arg(long, help_heading = AT_A_URL, value_name = "COMMAND", conflicts_with = "token_env")]
    pub(crate) token_command: Option<String>,
    /// Variable that holds the bearer token
    #[arg(long, help_heading = AT_A_URL, value_name = "NAME")]
    pub(crate) token_env: Option<String>,
    /// File with more headers, NAME: VALUE in each line
    #[arg(long, help_heading = AT_A_URL, value_name = "FILE")]
    pub(crate) header_file: Option<PathBuf>,
    /// Variable that holds the value of a header; may be repeated
    #[arg(long, help_heading = AT_A_URL, value_name = "HEADER=NAME")]
    pub(crate) header_env: Vec<String>,
    /// Certificates to trust beside those of the system, in PEM form
    #[arg(long, help_heading = AT_A_URL, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    /// HTTP proxy to use, instead of HTTPS_PROXY and NO_PROXY
    #[arg(long, help_heading = AT_A_URL, value_name = "URL")]
    pub(crate) proxy: Option<String>,
}

impl RemoteArgs {
    /// True if anything is given.
    pub(crate) fn has_any(&self) -> bool {
        *self != Self::default()
    }
}

/// The transport of a server at a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum UrlType {
    Auto,
    #[value(aliases = ["streamable-http", "streamableHttp", "streamable_http"])]
    Http,
    Sse,
}

impl From<UrlType> for mainstay_host::config::RemoteTransport {
    fn from(kind: UrlType) -> Self {
        match kind {
            UrlType::Auto => Self::Auto,
            UrlType::Http => Self::Http,
            UrlType::Sse => Self::Sse,
        }
    }
}

#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    override_usage = "mainstay share [OPTIONS] -- <COMMAND>...
       mainstay share [OPTIONS] --config <FILE> [--server <NAME>]
       mainstay share check [OPTIONS] -- <COMMAND>..."
)]
pub(crate) struct Share {
    #[command(flatten)]
    pub(crate) server: ShareServer,
    #[command(subcommand)]
    pub(crate) command: Option<ShareCommand>,
}

/// A server, and who uses it.
#[derive(Debug, Args)]
pub(crate) struct ShareServer {
    /// Declare that clients may share the server: it keeps no state of a session and asks its client nothing
    #[arg(long, conflicts_with = "exclusive")]
    pub(crate) shared: bool,
    /// Declare that each client needs a server of its own
    #[arg(long)]
    pub(crate) exclusive: bool,
    /// Name of the server in logs and mainstay status [default: that of its program or package]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Variable that the server needs, beside those that every shared server gets; may be repeated
    #[arg(long, value_name = "NAME")]
    pub(crate) env: Vec<String>,
    /// Working directory of the server; clients with another one do not share it [default: the client's]
    #[arg(long, value_name = "DIR", conflicts_with = "config")]
    pub(crate) cwd: Option<PathBuf>,
    /// Configuration file with the server, its rules, its secrets and its sandbox; clients with other ones do not share it
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Name of the server in that file, where it has several
    #[arg(long, value_name = "NAME", requires = "config")]
    pub(crate) server: Option<String>,
    /// Offer only tools of this name, * for any characters; may be repeated
    #[arg(long, value_name = "TOOL")]
    pub(crate) allow: Vec<String>,
    /// Do not offer tools of this name; may be repeated
    #[arg(long, value_name = "TOOL")]
    pub(crate) deny: Vec<String>,
    /// Ask a person before each call of tools of this name; may be repeated
    #[arg(long, value_name = "TOOL")]
    pub(crate) ask: Vec<String>,
    /// The server: its program and its arguments
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<std::ffi::OsString>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ShareCommand {
    /// Run two sessions side by side and say if clients may share the server: 0 it looks safe, 1 it does not
    Check(ShareCheck),
    /// Run the host that serves all clients (started by the first of them)
    #[command(hide = true)]
    Host(ShareHost),
}

#[derive(Debug, Args)]
pub(crate) struct ShareCheck {
    /// Time for each answer of the server; a number is seconds, other units are ms, m and h [default: 60]
    #[arg(long, value_name = "TIME", value_parser = values::time)]
    pub(crate) timeout: Option<Duration>,
    /// The server: its program and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<std::ffi::OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct ShareHost {
    /// This process is the host itself
    #[arg(long)]
    pub(crate) detached: bool,
    /// Time without clients after which it ends
    #[arg(long, value_name = "TIME", value_parser = values::time)]
    pub(crate) idle: Option<Duration>,
}

const CLIENT_FILES: &str = "\
Files of clients, as far as they are known:
  Claude Code     .mcp.json of a project, ~/.claude.json
  Claude Desktop  ~/Library/Application Support/Claude/claude_desktop_config.json (macOS),
                  ~/.config/Claude/claude_desktop_config.json (Linux)
  Cursor          .cursor/mcp.json of a project, ~/.cursor/mcp.json
  VS Code         .vscode/mcp.json of a folder, mcp.json or settings.json of the user
  Codex           ~/.codex/config.toml, .codex/config.toml of a project
  Windsurf        ~/.codeium/windsurf/mcp_config.json
  Zed             ~/.config/zed/settings.json, .zed/settings.json of a project
  opencode        ~/.config/opencode/opencode.json, opencode.json of a project
  goose           ~/.config/goose/config.yaml
  Gemini CLI      ~/.gemini/settings.json, .gemini/settings.json of a project
mainstay setup looks for all of them.
Only members that start or reach its servers are changed.";

#[derive(Debug, Args)]
#[command(after_help = CLIENT_FILES)]
pub(crate) struct Adopt {
    /// The client's configuration file
    pub(crate) file: PathBuf,
    /// Take it back: the client starts its servers itself again
    #[arg(long)]
    pub(crate) undo: bool,
    /// Show what would change, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Only the servers of this name; may be repeated
    #[arg(long, value_name = "NAME")]
    pub(crate) only: Vec<String>,
    /// Not the servers of this name; may be repeated
    #[arg(long, value_name = "NAME")]
    pub(crate) except: Vec<String>,
    /// Lead the servers to the host that all clients of this user share (mainstay share)
    #[arg(long, conflicts_with = "undo")]
    pub(crate) share: bool,
    /// Declare that clients may share the server of this name; may be repeated
    #[arg(long, value_name = "NAME", requires = "share")]
    pub(crate) shared: Vec<String>,
    /// The mainstay that the client starts; a bare name is looked up by the client [default: the
    /// whole path of this one]
    #[arg(long, value_name = "PATH", conflicts_with = "undo")]
    pub(crate) binary: Option<PathBuf>,
}

/// Where a one-off command finds its tools.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Target {
    #[command(flatten)]
    pub(crate) packs: Packs,
    /// Ask the host that serves this socket, instead of starting one for this command
    #[arg(long, value_name = "PATH", conflicts_with_all = ["packs", "config", "roots"])]
    pub(crate) socket: Option<PathBuf>,
    /// Ask the host at this URL, with the token of MAINSTAY_TOKEN_FILE or MAINSTAY_TOKEN
    #[arg(long, value_name = "URL", conflicts_with_all = ["packs", "config", "roots", "socket"])]
    pub(crate) url: Option<String>,
    /// Ask this MCP server, wrapped for the moment
    #[arg(last = true, value_name = "COMMAND", conflicts_with_all = ["packs", "config", "roots", "socket", "url"])]
    pub(crate) command: Vec<std::ffi::OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct Call {
    /// Name of the tool
    pub(crate) tool: String,
    /// Arguments: one JSON object, or KEY=VALUE pairs; a bare word goes to the tool's only
    /// required string argument
    #[arg(value_name = "ARGUMENT")]
    pub(crate) arguments: Vec<String>,
    #[command(flatten)]
    pub(crate) target: Target,
    /// Form of the answer
    #[arg(long, value_name = "MODE", value_enum)]
    pub(crate) render: Option<Render>,
}

#[derive(Debug, Args)]
pub(crate) struct Tools {
    #[command(flatten)]
    pub(crate) target: Target,
    /// Print the whole definitions as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Lock {
    #[command(subcommand)]
    pub(crate) command: LockCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LockCommand {
    /// Record every tool's contract; refused while a change lacks a bump or a reason
    Write(LockWrite),
    /// Say whether the tools are what the lock says, and what is missing if not
    Check(LockCheck),
    /// Show every change since the lock was written
    Diff(LockDiff),
}

/// Which lock, and which tools it is about.
#[derive(Clone, Debug, Args)]
pub(crate) struct Locked {
    #[command(flatten)]
    pub(crate) target: Target,
    /// The lock
    #[arg(long, value_name = "FILE", default_value = crate::lock::FILE)]
    pub(crate) file: PathBuf,
    /// Leave out the host's own tools, for the lock of a pack
    #[arg(long, conflicts_with_all = ["socket", "url"])]
    pub(crate) packs_only: bool,
    /// The server of the configuration file that this lock is about.
    #[arg(skip)]
    pub(crate) server: Option<Box<ServerEntry>>,
}

#[derive(Debug, Args)]
pub(crate) struct LockWrite {
    #[command(flatten)]
    pub(crate) locked: Locked,
    /// Why a changed description needs no higher version, or why a tool is gone; may be repeated
    #[arg(long = "reason", value_name = "TOOL[.ARGUMENT]: TEXT")]
    pub(crate) reasons: Vec<String>,
    /// Also write each tool's published definition to DIR/TOOL.json
    #[arg(long, value_name = "DIR")]
    pub(crate) schemas: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct LockCheck {
    #[command(flatten)]
    pub(crate) locked: Locked,
    /// Also check what changed between this older lock and the present one
    #[arg(long, value_name = "FILE")]
    pub(crate) since: Option<PathBuf>,
    /// Also check the published definitions in DIR
    #[arg(long, value_name = "DIR")]
    pub(crate) schemas: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct LockDiff {
    #[command(flatten)]
    pub(crate) locked: Locked,
    /// Print every change as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Which of several running hosts is meant.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Chosen {
    /// The host with this process id
    #[arg(long, value_name = "PID", value_parser = values::pid)]
    pub(crate) pid: Option<u32>,
    /// The host that was started with this --name
    #[arg(long, value_name = "NAME", conflicts_with = "pid")]
    pub(crate) name: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Status {
    #[command(flatten)]
    pub(crate) chosen: Chosen,
    /// Print everything as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Stop {
    #[command(flatten)]
    pub(crate) chosen: Chosen,
}

#[derive(Debug, Args)]
pub(crate) struct RolloutArgs {
    #[command(flatten)]
    pub(crate) chosen: Chosen,
    /// Only this pack
    #[arg(long, value_name = "NAME")]
    pub(crate) pack: Option<String>,
    /// Why a changed tool needs no higher schemaVersion, or why it is gone; may be repeated
    #[arg(long, value_name = "TOOL[.ARGUMENT]: WHY")]
    pub(crate) reason: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct UpgradeArgs {
    #[command(flatten)]
    pub(crate) chosen: Chosen,
    /// The new executable; without it, the file at the path that the host was started from
    #[arg(value_name = "BINARY")]
    pub(crate) binary: Option<PathBuf>,
    /// End answers over HTTP that are still open at the drain limit, instead of refusing the upgrade
    #[arg(long)]
    pub(crate) now: bool,
}

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Errors {
    /// Print it as a page of Markdown
    #[arg(long, conflicts_with = "json")]
    pub(crate) markdown: bool,
    /// Print every row as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct Validate {
    /// The file: one JSON value
    pub(crate) path: PathBuf,
    /// Name of the schema [default: what the asset or its file's name says]
    #[arg(long, value_name = "NAME")]
    pub(crate) schema: Option<String>,
    /// Form of the verdict [default: json]
    #[arg(long, value_name = "MODE", value_enum)]
    pub(crate) render: Option<Render>,
    /// Configuration file, TOML or JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct EnvironmentPage {
    /// Print them as a page of Markdown
    #[arg(long)]
    pub(crate) markdown: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Worker {
    /// Name of the built-in pack
    #[arg(long, value_name = "NAME")]
    pub(crate) pack: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Render {
    Porcelain,
    Json,
}

impl From<Render> for mainstay_contract::render::RenderMode {
    fn from(render: Render) -> Self {
        match render {
            Render::Porcelain => Self::Porcelain,
            Render::Json => Self::Json,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Envelopes {
    Off,
    Shadow,
    Enforce,
}

impl From<Envelopes> for mainstay_host::config::EnvelopeMode {
    fn from(mode: Envelopes) -> Self {
        match mode {
            Envelopes::Off => Self::Off,
            Envelopes::Shadow => Self::Shadow,
            Envelopes::Enforce => Self::Enforce,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
}

impl From<LogLevel> for mainstay_host::Level {
    fn from(level: LogLevel) -> Self {
        match level {
            LogLevel::Error => Self::Error,
            LogLevel::Warn => Self::Warn,
            LogLevel::Info => Self::Info,
            LogLevel::Debug => Self::Debug,
        }
    }
}
