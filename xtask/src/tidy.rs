//! `cargo xtask tidy`: the rules of the house that no compiler knows.
//!
//! Every check is a function from text to findings, with no file access of its
//! own; `tree` reads the workspace once and this module lays the checks over
//! it. A finding names its place and what to do about it; a note is printed
//! and forgiven.

mod arguments;
mod bounds;
mod crates;
mod finding;
mod links;
mod machine_paths;
mod module_docs;
mod names;
mod rust_text;
mod sizes;
mod tree;
mod voice;
mod whitespace;
mod words;

use anyhow::{Context as _, bail};

use self::finding::{Finding, Level};
use self::tree::Tree;
use crate::context::Context;
use crate::step::output;

/// Prints what is found; an error when anything but notes was.
pub(crate) fn run(context: &Context) -> anyhow::Result<()> {
    let tree = Tree::load(&context.root)?;
    let metadata = output(context.cargo([
        "metadata",
        "--no-deps",
        "--offline",
        "--format-version",
        "1",
    ]))?;
    let packages = crates::packages(&metadata).context("reading cargo metadata")?;

    let mut findings = crates::check(&packages, &tree);
    findings.extend(check_tree(&tree));
    findings.sort();

    for finding in &findings {
        println!("{finding}");
    }
    let faults = findings
        .iter()
        .filter(|finding| finding.level == Level::Fault)
        .count();
    let notes = findings.len() - faults;
    println!(
        "tidy: {} files, {faults} findings, {notes} notes",
        tree.len()
    );
    if faults > 0 {
        bail!("tidy found {faults} things to put right");
    }
    Ok(())
}

fn check_tree(tree: &Tree) -> Vec<Finding> {
    let mut findings = arguments::check(tree);
    for (path, text) in tree.texts() {
        findings.extend(machine_paths::check(path, text));
        // Fixtures are what tests feed to the product: they may be ugly on purpose.
        if tree::is_fixture(path) {
            continue;
        }
        match tree::extension(path) {
            "rs" => {
                findings.extend(whitespace::check(path, text));
                findings.extend(bounds::check(path, text));
                findings.extend(names::check(path));
                findings.extend(sizes::check(path, text));
                findings.extend(module_docs::check(path, text));
                findings.extend(words::check(path, text));
                findings.extend(voice::check(path, text));
            }
            "md" => {
                findings.extend(whitespace::check(path, text));
                findings.extend(links::check(path, text, tree));
                findings.extend(voice::check(path, text));
            }
            "toml" => findings.extend(whitespace::check(path, text)),
            _ => {}
        }
    }
    findings
}
