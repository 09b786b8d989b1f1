//! What a person is told: one line per server, what stands where, and what to do next.

use std::path::{Path, PathBuf};

use mainstay_contract::render::{Bounds, Porcelain, count};

use super::binary::missing;
use super::plan::{Fate, Plan, What};

/// Everything that is said beside the plan itself.
#[derive(Debug)]
pub(super) struct Report<'a> {
    file: &'a Path,
    undo: bool,
    dry_run: bool,
    /// What the client starts from now on.
    pub(super) binary: Option<String>,
    pub(super) backup: Option<PathBuf>,
    /// The backup that the file is now like.
    pub(super) identical: Option<PathBuf>,
    /// Names of the file that keep its old content.
    pub(super) other_names: u64,
    pub(super) difference: String,
}

impl<'a> Report<'a> {
    pub(super) const fn new(file: &'a Path, undo: bool, dry_run: bool) -> Self {
        Self {
            file,
            undo,
            dry_run,
            binary: None,
            backup: None,
            identical: None,
            other_names: 0,
            difference: String::new(),
        }
    }

    /// The whole answer.
    pub(super) fn text(&self, plan: &Plan) -> String {
        let rows = plan
            .fates
            .iter()
            .map(|fate| [fate.label.clone(), self.said(fate)]);
        let mut page = Porcelain::summary(self.summary(plan)).table(&["server", "what"], rows);
        let changed = plan.changed() > 0;
        if let Some(binary) = self.binary.as_ref().filter(|_| changed) {
            page = page.field("command", binary);
        }
        if let Some(backup) = &self.backup {
            page = page.field("backup", backup.display());
        }
        if let Some(identical) = &self.identical {
            page = page.field("identical to", identical.display());
        }
        for warning in self.warnings(plan) {
            page = page.warning(warning);
        }
        if changed {
            page = page.hint(self.next());
        }
        let mut text = page.finish(Bounds {
            lines: 10_000,
            bytes: 1 << 22,
        });
        text.push('\n');
        text.push_str(&self.difference);
        text
    }

    fn summary(&self, plan: &Plan) -> String {
        let (all, changed) = (plan.fates.len(), plan.changed());
        let file = self.file.display();
        let servers = count(all, "server", "servers");
        if all == 0 {
            return format!("nothing to do: {file} has no servers");
        }
        match (changed, self.undo, self.dry_run) {
            (0, false, _) => format!("nothing to do: none of {servers} in {file} is to be wrapped"),
            (0, true, _) => format!("nothing to undo: none of {servers} in {file} is wrapped"),
            (_, false, false) => format!("wrapped {changed} of {servers} in {file}"),
            (_, true, false) => format!("unwrapped {changed} of {servers} in {file}"),
            (_, false, true) => format!("would wrap {changed} of {servers} in {file}"),
            (_, true, true) => format!("would unwrap {changed} of {servers} in {file}"),
        }
    }

    fn warnings(&self, plan: &Plan) -> Vec<String> {
        let mut warnings = Vec::new();
        for Fate { label, what } in &plan.fates {
            let warning = match what {
                What::Wrapped {
                    program,
                    cwd,
                    own_path,
                } => missing(program, cwd.as_deref(), *own_path),
                What::AlreadyWrapped { by } => missing(by, None, false)
                    .map(|why| format!("{why}; --undo and adopt again name another")),
                What::Unwrapped { dropped, .. } if !dropped.is_empty() => {
                    Some(format!("options of mainstay went: {}", dropped.join(" ")))
                }
                _ => None,
            };
            warnings.extend(warning.map(|warning| format!("{label}: {warning}")));
        }
        if self.other_names > 0 {
            warnings.push(format!(
                "the file has {} (hard links), which keep its old content",
                count(
                    usize::try_from(self.other_names).unwrap_or(usize::MAX),
                    "other name",
                    "other names"
                )
            ));
        }
        warnings
    }

    fn next(&self) -> String {
        let file = self.file.to_string_lossy();
        // For the shell, where a space would part it.
        let file = shlex::try_quote(&file).unwrap_or_else(|_| "FILE".into());
        match (self.undo, self.dry_run) {
            (false, false) => format!(
                "restart the client; mainstay status then lists its servers, and mainstay adopt \
                 {file} --undo takes all this back"
            ),
            (true, false) => "restart the client".to_owned(),
            (_, true) => "nothing was changed; leave out --dry-run to do it".to_owned(),
        }
    }

    fn said(&self, fate: &Fate) -> String {
        let would = if self.dry_run { "to be " } else { "" };
        match &fate.what {
            What::Wrapped { program, .. } => format!("{would}wrapped: {program}"),
            What::Unwrapped { program, .. } => format!("{would}unwrapped: {program}"),
            What::AlreadyWrapped { .. } => "left alone: it is wrapped already".to_owned(),
            What::NotWrapped => "left alone: it is not wrapped".to_owned(),
            What::NotChosen => "left alone: it was not chosen".to_owned(),
            What::LeftAlone(reason) => format!("left alone: {reason}"),
        }
    }
}
