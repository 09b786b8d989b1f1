//! Arguments about what hosts keep on the disk: indexes and tasks.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::values;

#[derive(Debug, Args)]
pub(crate) struct Cache {
    #[command(subcommand)]
    pub(crate) command: CacheCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CacheCommand {
    /// List the indexes with their roots and sizes
    List,
    /// Remove indexes; they are built again when they are needed
    Clear {
        /// Only the index of this root
        #[arg(long, value_name = "DIR")]
        root: Option<PathBuf>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Tasks {
    #[command(subcommand)]
    pub(crate) command: TasksCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TasksCommand {
    /// List tasks, the newest first
    List,
    /// Show a task, and its outcome once there is one
    Show {
        /// The task
        #[arg(value_name = "ID")]
        id: String,
    },
    /// Cancel a task
    Cancel {
        /// The task
        #[arg(value_name = "ID")]
        id: String,
    },
    /// Remove tasks that have ended
    Prune {
        /// Only those that ended longer ago
        #[arg(long, value_name = "HOURS", default_value_t = 0, value_parser = values::count)]
        older_than: u32,
    },
}
