//! The repositories of this worker.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use mainstay_worker::{ErrorKind, Problem, render};

use crate::fresh::repo::{Repo, identity};
use crate::query::pattern::Patterns;
use crate::settings::{CodeSettings, RootSetting};

/// All repositories, the broken ones included.
#[derive(Debug, Default)]
pub(crate) struct Workspace {
    pub(crate) members: Vec<Member>,
    pub(crate) cache: Option<PathBuf>,
    pub(crate) settings: CodeSettings,
    pub(crate) patterns: Patterns,
}

/// One repository, or why it cannot be used.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) alias: String,
    pub(crate) root: PathBuf,
    pub(crate) repo: Result<Arc<Repo>, String>,
}

/// The workspace as each call finds it.
#[derive(Debug)]
pub(crate) struct Current(Mutex<Arc<Workspace>>);

impl Current {
    pub(crate) fn new(workspace: Workspace) -> Self {
        Self(Mutex::new(Arc::new(workspace)))
    }

    /// The workspace of a call. A root whose path names another directory by now is opened anew, for
    /// all that is held of it (files, watches, rules) is of the one before.
    pub(crate) fn get(&self) -> Arc<Workspace> {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if held.members.iter().any(Member::is_outdated) {
            *held = Arc::new(held.reopened());
        }
        Arc::clone(&held)
    }
}

impl Member {
    /// The path names another directory than the one that is held, or one at last.
    fn is_outdated(&self) -> bool {
        match &self.repo {
            Ok(repo) => identity(&self.root) != Some(repo.identity),
            Err(_) => identity(&self.root).is_some(),
        }
    }
}

impl Workspace {
    /// The same workspace with every outdated root opened anew.
    fn reopened(&self) -> Self {
        let reopen = |(member, setting): (&Member, &RootSetting)| Member {
            alias: member.alias.clone(),
            root: member.root.clone(),
            repo: match member.is_outdated() {
                true => open(setting, &self.settings),
                false => member.repo.clone(),
            },
        };
        let members = self.members.iter().zip(&self.settings.roots);
        Self {
            members: members.map(reopen).collect(),
            cache: self.cache.clone(),
            settings: self.settings.clone(),
            patterns: Patterns::default(),
        }
    }

    pub(crate) fn open(settings: &CodeSettings) -> Self {
        let mut workspace = Self {
            cache: settings.cache_dir.clone(),
            settings: settings.clone(),
            ..Self::default()
        };
        for root in &settings.roots {
            let opened = open(root, settings);
            let wanted = match &opened {
                Ok(repo) => repo.alias.clone(),
                Err(_) => root.alias.clone().unwrap_or_else(|| {
                    root.path.file_name().map_or_else(
                        || "root".to_owned(),
                        |name| name.to_string_lossy().into_owned(),
                    )
                }),
            };
            // Two roots may have the same last part: later ones get a number.
            let taken = |name: &str| workspace.members.iter().any(|member| member.alias == name);
            let alias = std::iter::once(wanted.clone())
                .chain((2..).map(|number| format!("{wanted}-{number}")))
                .find(|name| !taken(name))
                .unwrap_or(wanted);
            workspace.members.push(Member {
                alias,
                root: root.path.clone(),
                repo: opened,
            });
        }
        workspace
    }

    /// The one repository that a call means.
    pub(crate) fn one(&self, name: Option<&str>) -> Result<(&Member, &Arc<Repo>), Problem> {
        let member = match (name, self.members.as_slice()) {
            (Some(name), _) => self.named(name)?,
            (None, [only]) => only,
            (None, []) => return Err(no_root()),
            (None, several) => {
                let names: Vec<&str> = several.iter().map(|member| member.alias.as_str()).collect();
                return Err(Problem::new(
                    ErrorKind::InvalidArguments,
                    format!(
                        "the workspace has {} repositories; say which with repo",
                        names.len()
                    ),
                )
                .with_hint(format!("repo is one of: {}", names.join(", "))));
            }
        };
        match &member.repo {
            Ok(repo) => Ok((member, repo)),
            Err(why) => Err(broken(member, why)),
        }
    }

    /// The repositories that a search means: all that can be used, unless some are named.
    pub(crate) fn several(&self, names: &[String]) -> Result<Vec<(&Member, &Arc<Repo>)>, Problem> {
        if self.members.is_empty() {
            return Err(no_root());
        }
        let mut found = Vec::new();
        if names.is_empty() {
            found.extend(
                self.members
                    .iter()
                    .filter_map(|member| Some((member, member.repo.as_ref().ok()?))),
            );
            if let ([], Some(Member { repo: Err(why), .. })) =
                (found.as_slice(), self.members.first())
                && let Some(first) = self.members.first()
            {
                return Err(broken(first, why));
            }
            return Ok(found);
        }
        for name in names {
            let (member, repo) = self.one(Some(name))?;
            if !found.iter().any(|(known, _)| known.alias == member.alias) {
                found.push((member, repo));
            }
        }
        Ok(found)
    }

    /// The repositories that a search of all means and cannot use, each with the reason.
    pub(crate) fn unusable(&self, names: &[String]) -> Vec<(&str, &str)> {
        let members = self.members.iter().filter(|_| names.is_empty());
        members
            .filter_map(|member| {
                Some((member.alias.as_str(), member.repo.as_ref().err()?.as_str()))
            })
            .collect()
    }

    fn named(&self, name: &str) -> Result<&Member, Problem> {
        let is_called = |member: &&Member| {
            member.alias == name || member.repo.as_ref().is_ok_and(|repo| repo.is_called(name))
        };
        self.members.iter().find(is_called).ok_or_else(|| {
            let names: Vec<&str> = self
                .members
                .iter()
                .map(|member| member.alias.as_str())
                .collect();
            Problem::new(
                ErrorKind::NotFound,
                format!(
                    "the workspace has no repository {:?}",
                    render::shorten(name, 80)
                ),
            )
            .with_hint(format!("repositories: {}", names.join(", ")))
        })
    }
}

fn open(root: &RootSetting, settings: &CodeSettings) -> Result<Arc<Repo>, String> {
    match &settings.cache_dir {
        Some(cache) => Repo::open(root, settings, cache).map(Arc::new),
        None => Err("there is no cache directory that belongs to this user alone; set MAINSTAY_CACHE_DIR to one".to_owned()),
    }
}

fn no_root() -> Problem {
    Problem::new(ErrorKind::NotFound, "the workspace has no repository")
        .with_hint("start mainstay in a checkout, or name one with --root DIR")
}

fn broken(member: &Member, why: &str) -> Problem {
    Problem::new(
        ErrorKind::NotFound,
        format!("the repository {} cannot be used: {why}", member.alias),
    )
    .with_hint("check_status says what to do; the other repositories are not affected")
}
