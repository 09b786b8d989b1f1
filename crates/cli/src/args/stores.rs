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

#[derive(Debug, Args)]
pub(crate) struct Skill {
    #[command(subcommand)]
    pub(crate) command: SkillCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SkillCommand {
    /// Write the skill into a folder of skills, or bring the one there up to date
    Install(SkillInstall),
}

#[derive(Debug, Args)]
pub(crate) struct SkillInstall {
    /// Folder of skills [default: those of Claude Code and of the clients that read ~/.agents/skills]
    #[arg(value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Link to the skill of the checkout around the current directory
    #[arg(long, conflicts_with = "force")]
    pub(crate) link: bool,
    /// Replace files that were edited
    #[arg(long)]
    pub(crate) force: bool,
}
