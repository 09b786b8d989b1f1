//! Arguments of the commands with which a new user begins: the demonstration, the set-up of clients, and the doctor.

use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// Be the server of the demonstration, with its files in DIR
    #[arg(long, value_name = "DIR", hide = true)]
    pub(crate) server: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Each client's file is changed as mainstay adopt does it: a backup lies beside the file, and mainstay adopt FILE --undo
restores it to the byte. Exit codes: 0 all servers answer, 1 one does not or you said no, 2 input or I/O error.")]
pub(crate) struct Setup {
    /// Change the files without asking
    #[arg(long, conflicts_with = "dry_run")]
    pub(crate) yes: bool,
    /// Show what would change, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Only the servers of this name; may be repeated
    #[arg(long, value_name = "NAME")]
    pub(crate) only: Vec<String>,
    /// Not the servers of this name; may be repeated
    #[arg(long, value_name = "NAME")]
    pub(crate) except: Vec<String>,
    /// Do not start the servers to see if they answer
    #[arg(long)]
    pub(crate) no_check: bool,
    /// The mainstay that clients start; a bare name is looked up by the client [default: the whole path of this one]
    #[arg(long, value_name = "PATH")]
    pub(crate) binary: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes: 0 nothing is wrong, 1 something is, 2 the doctor cannot look.")]
pub(crate) struct Doctor {
    /// Also look at this configuration file, and start its servers
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Do not start servers
    #[arg(long)]
    pub(crate) no_start: bool,
    /// Print the findings as JSON
    #[arg(long)]
    pub(crate) json: bool,
}
