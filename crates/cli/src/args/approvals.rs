//! Arguments about approvals and audit files.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::Chosen;

/// The audit file of a host.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct AuditArgs {
    /// Append one line per decision about a call and per effect to this file, chained by hashes
    #[arg(long, value_name = "FILE")]
    pub(crate) audit: Option<PathBuf>,
    /// Keep the head of the audit file in this file, so that a cut tail is found
    #[arg(long, value_name = "FILE")]
    pub(crate) audit_anchor: Option<PathBuf>,
    /// Sign the audit file with the key in this private file
    #[arg(long, value_name = "FILE")]
    pub(crate) audit_key: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Approve {
    #[command(subcommand)]
    pub(crate) command: ApproveCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ApproveCommand {
    /// List the calls that wait
    List {
        #[command(flatten)]
        chosen: Chosen,
        /// Print everything as JSON
        #[arg(long)]
        json: bool,
    },
    /// Show a call with its arguments
    Show {
        /// The approval
        #[arg(value_name = "ID")]
        id: String,
        #[command(flatten)]
        chosen: Chosen,
    },
    /// Let a call run once
    Grant {
        /// The approval
        #[arg(value_name = "ID")]
        id: String,
        #[command(flatten)]
        chosen: Chosen,
    },
    /// Refuse a call
    Deny {
        /// The approval
        #[arg(value_name = "ID")]
        id: String,
        #[command(flatten)]
        chosen: Chosen,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Audit {
    #[command(subcommand)]
    pub(crate) command: AuditCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AuditCommand {
    /// Check that no line was changed, removed, added or moved: 0 intact, 1 not
    Verify(AuditVerify),
    /// Show the last records
    Show(AuditShow),
}

#[derive(Debug, Args)]
pub(crate) struct AuditVerify {
    /// The files of one chain, the oldest first
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// Compare the end of the chain with this anchor
    #[arg(long, value_name = "FILE")]
    pub(crate) anchor: Option<PathBuf>,
    /// The key with which the chain was signed
    #[arg(long, value_name = "FILE")]
    pub(crate) key: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct AuditShow {
    /// The files of one chain, the oldest first
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// Show so many records, the last ones
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub(crate) last: usize,
    /// Only records of this event, or of those that begin so, such as approval
    #[arg(long, value_name = "EVENT")]
    pub(crate) event: Option<String>,
    /// Print one JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
}
