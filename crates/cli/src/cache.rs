//! `mainstay cache`: the indexes of the code pack.

use std::path::Path;
use std::process::ExitCode;
use std::time::SystemTime;

use anyhow::{Context as _, anyhow};
use mainstay_contract::render::{self, Bounds, Porcelain};
use mainstay_host::files;
use mainstay_pack_code::cache::{self, CachedIndex};

use crate::args::CacheCommand;
use crate::environment::Environment;
use crate::exit::{self, Failure, print};

/// Lists or removes.
pub(crate) fn run(command: &CacheCommand) -> Result<ExitCode, Failure> {
    let environment = Environment::read_for_operator()?;
    let dir = environment.cache_dir.ok_or_else(|| {
        Failure::input(anyhow!("there is no cache directory"))
            .hint("set MAINSTAY_CACHE_DIR to an absolute path")
    })?;
    let folder = dir.join(cache::FOLDER);
    if folder.symlink_metadata().is_ok() {
        files::create_own(&folder).map_err(Failure::input)?;
    }
    let indexes = cache::list(&dir)
        .with_context(|| format!("cannot read {}", dir.display()))
        .map_err(Failure::input)?;
    match command {
        CacheCommand::List => list(&dir, &indexes),
        CacheCommand::Clear { root } => clear(&indexes, root.as_deref()),
    }
}

fn list(dir: &Path, indexes: &[CachedIndex]) -> Result<ExitCode, Failure> {
    let bytes: u64 = indexes.iter().map(|index| index.bytes).sum();
    let summary = format!(
        "{}, {} in {}",
        render::count(indexes.len(), "index", "indexes"),
        render::bytes(bytes),
        dir.display()
    );
    let rows = indexes.iter().map(|index| {
        let age = SystemTime::now()
            .duration_since(index.modified)
            .unwrap_or_default();
        let root = if index.root.is_empty() {
            "(not readable)"
        } else {
            &index.root
        };
        [
            root.to_owned(),
            render::bytes(index.bytes),
            index.generation.to_string(),
            render::elapsed(age),
        ]
    });
    let text = Porcelain::summary(summary).table(&["root", "size", "generation", "age"], rows);
    print(&format!("{}\n", text.finish(Bounds::PORCELAIN)))?;
    Ok(ExitCode::SUCCESS)
}

fn clear(indexes: &[CachedIndex], root: Option<&Path>) -> Result<ExitCode, Failure> {
    let wanted = root.map(|root| root.canonicalize().unwrap_or_else(|_| root.to_owned()));
    let chosen: Vec<&CachedIndex> = indexes
        .iter()
        .filter(|index| {
            wanted
                .as_ref()
                .is_none_or(|wanted| Path::new(&index.root) == wanted)
        })
        .collect();
    if let (Some(wanted), true) = (&wanted, chosen.is_empty()) {
        return Err(
            Failure::input(anyhow!("there is no index of {}", wanted.display()))
                .hint("mainstay cache list shows them"),
        );
    }
    let (mut removed, mut bytes, mut busy) = (0, 0, 0);
    for index in chosen {
        let cleared = cache::clear(index)
            .with_context(|| format!("cannot remove {}", index.folder.display()))
            .map_err(Failure::input)?;
        if cleared {
            removed += 1;
            bytes += index.bytes;
        } else {
            busy += 1;
        }
    }
    let mut text = Porcelain::summary(format!(
        "removed {}, {}",
        render::count(removed, "index", "indexes"),
        render::bytes(bytes)
    ));
    if busy > 0 {
        text = text.warning(format!(
            "{} left: a worker is writing there",
            render::count(busy, "index was", "indexes were")
        ));
    }
    print(&format!("{}\n", text.finish(Bounds::PORCELAIN)))?;
    Ok(ExitCode::from(if busy > 0 {
        exit::NO
    } else {
        exit::SUCCESS
    }))
}
