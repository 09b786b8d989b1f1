//! Allowed dependencies: the directions between crates and the third-party budgets.
//!
//! `ROWS` is the map of `ARCHITECTURE.md` as data. A new edge is a design
//! decision: it is made there, then here. Dev-dependencies may use `testkit`
//! and any third-party crate on top.

use anyhow::Context as _;
use serde_json::Value;

use super::finding::Finding;
use super::tree::Tree;

const THIS_TABLE: &str = "ROWS in xtask/src/tidy/crates.rs";

struct Row {
    /// The package's folder without `crates/`; a final `*` stands for any name.
    folder: &'static str,
    internal: &'static [&'static str],
    external: Budget,
}

enum Budget {
    Only(&'static [&'static str]),
    /// Nothing of it ships.
    Free,
}

const ROWS: &[Row] = &[
    Row {
        folder: "contract",
        internal: &[],
        external: Budget::Only(&[
            "memchr",
            "percent-encoding", // URIs
            "serde",
            "serde_json",
            "sha2",
            "strsim", // the tool that a misspelled name probably means
            "thiserror",
            "time", // dates of envelopes; its clock is not compiled in
            "uuid",
        ]),
    },
    Row {
        folder: "seal",
        internal: &[],
        external: Budget::Only(&[
            "ring", // key derivation and authenticated encryption
            "thiserror",
        ]),
    },
    // Hosts and nodes of a fleet meet here: a dependency of it would be one of every host.
    Row {
        folder: "engine",
        internal: &[],
        external: Budget::Only(&[]),
    },
    Row {
        folder: "system",
        internal: &[],
        external: Budget::Only(&["libc"]),
    },
    Row {
        folder: "sandbox",
        internal: &["system"],
        external: Budget::Only(&[
            "landlock",
            "libc",
            "rustix",
            "serde",
            "thiserror",
            "toml", // a profile that is learned in several runs
        ]),
    },
    Row {
        folder: "schema",
        internal: &["contract"],
        external: Budget::Only(&[
            "jsonschema",
            "memchr", // how deep a text may nest, counted before every check
            "serde",
            "serde_json",
            "sha2",
            "strsim", // the member that a misspelled name probably means
            "thiserror",
        ]),
    },
    Row {
        folder: "kernel",
        // schema: texts, digests and verdicts; the kernel never compiles a schema.
        internal: &["contract", "schema"],
        external: Budget::Only(&[
            "regex", // argument patterns of approval rules, in linear time
            "serde",
            "serde_json",
            "thiserror",
        ]),
    },
    Row {
        folder: "ledger",
        internal: &[],
        external: Budget::Only(&[
            "rusqlite", // the file that several hosts share
            "rustix",   // locks of leases
            "thiserror",
        ]),
    },
    Row {
        folder: "worker",
        internal: &["contract", "schema"],
        external: Budget::Only(&["rustix", "serde", "serde_json", "sha2", "thiserror"]),
    },
    Row {
        folder: "pack-asset",
        internal: &["contract", "schema", "worker"],
        // ureq: the one request of populate_backend.
        external: Budget::Only(&["rustix", "serde", "serde_json", "thiserror", "ureq"]),
    },
    Row {
        folder: "pack-code",
        internal: &["contract", "schema", "worker"],
        external: Budget::Only(&[
            "crc32fast",    // checksums of index files
            "globset",      // the globs of arguments
            "grep-matcher", // with the next two: ripgrep's own engine, so that lines are its lines
            "grep-regex",
            "grep-searcher",
            "ignore",       // ripgrep's own walker and rules
            "memchr",       // lines and literals at full speed
            "regex-syntax", // from a pattern to its trigrams
            "rustix",       // locks and the directory watch
            "serde",
            "serde_json",
            "sha2",               // the hash of a content
            "streaming-iterator", // the form in which tree-sitter gives its matches
            "thiserror",
            "tree-sitter", // symbols; one crate for each grammar
            "tree-sitter-bash",
            "tree-sitter-c",
            "tree-sitter-c-sharp",
            "tree-sitter-cpp",
            "tree-sitter-go",
            "tree-sitter-java",
            "tree-sitter-javascript",
            "tree-sitter-php",
            "tree-sitter-python",
            "tree-sitter-ruby",
            "tree-sitter-rust",
            "tree-sitter-typescript",
        ]),
    },
    Row {
        folder: "pack-*",
        internal: &["contract", "schema", "worker"],
        external: Budget::Only(&["rustix", "serde", "serde_json", "thiserror"]),
    },
    Row {
        folder: "host",
        internal: &["contract", "kernel", "ledger", "sandbox", "schema", "seal"],
        external: Budget::Only(&[
            "base64", // headers and access tokens
            "bytes",  // bodies of hyper
            "hyper",  // HTTP/1.1
            "hyper-util",
            "memchr",
            "ring", // signatures of access tokens
            "rustix",
            "rustls", // remote servers; in the tree already, under ureq
            "serde",
            "serde_json",
            "sha2",   // what is kept of a token
            "subtle", // comparison of tokens
            "thiserror",
            "time", // the date of a timestamp
            "tokio",
            "tokio-rustls", // TLS on the host's own loop
            "ureq",         // posts to a collector, from a thread of their own
            "webpki-roots", // authorities where the system names none; in the tree already, under ureq
        ]),
    },
    Row {
        folder: "cli",
        internal: &[
            "contract",
            "host",
            "pack-asset",
            "pack-code",
            "sandbox",
            "schema",
            "seal", // the fleet key
            "system",
            "worker",
        ],
        external: Budget::Only(&[
            "anyhow",
            "clap",
            "rustix",
            "saphyr-parser", // where values stand in goose's YAML
            "serde",
            "serde_json",
            "shlex",
            "toml",
            "ureq", // a host over HTTP
        ]),
    },
    Row {
        folder: TESTKIT,
        // host: only with the feature `simulation`, which drives its engine.
        internal: &["contract", "host", "kernel", "schema", "worker"],
        external: Budget::Free,
    },
    Row {
        folder: "conformance-server",
        internal: &[],
        external: Budget::Free,
    },
    Row {
        folder: "examples/*",
        internal: &["worker"],
        external: Budget::Free,
    },
    Row {
        folder: "xtask",
        internal: &[TESTKIT],
        external: Budget::Only(&["anyhow", "serde_json"]),
    },
];

const TESTKIT: &str = "testkit";

#[derive(Debug)]
pub(crate) struct Package {
    /// Relative to the workspace, as in `crates/host`.
    folder: String,
    dependencies: Vec<Dependency>,
}

#[derive(Debug)]
struct Dependency {
    name: String,
    /// Where it lives when it is one of ours.
    folder: Option<String>,
    is_dev: bool,
}

/// Reads the output of `cargo metadata --no-deps`.
pub(crate) fn packages(metadata: &str) -> anyhow::Result<Vec<Package>> {
    let metadata: Value = serde_json::from_str(metadata)?;
    let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
    let list = |value: &Value, key: &str| value.get(key).and_then(Value::as_array).cloned();
    let root = text(&metadata, "workspace_root").context("no workspace_root")?;
    let inside = |path: &str| {
        let path = path.strip_prefix(&root)?;
        Some(path.trim_start_matches(['/', '\\']).replace('\\', "/"))
    };
    let mut packages = Vec::new();
    for package in list(&metadata, "packages").context("no packages")? {
        let manifest = text(&package, "manifest_path").context("no manifest_path")?;
        let manifest = inside(&manifest).context("a package outside the workspace")?;
        let mut dependencies = Vec::new();
        for dependency in list(&package, "dependencies").context("no dependencies")? {
            dependencies.push(Dependency {
                name: text(&dependency, "name").context("a dependency without a name")?,
                folder: text(&dependency, "path").map(|path| inside(&path).unwrap_or(path)),
                is_dev: text(&dependency, "kind").as_deref() == Some("dev"),
            });
        }
        let folder = manifest
            .trim_end_matches("Cargo.toml")
            .trim_end_matches('/')
            .to_owned();
        packages.push(Package {
            folder,
            dependencies,
        });
    }
    Ok(packages)
}

/// `tree` gives the manifests' text, for line numbers only.
pub(crate) fn check(packages: &[Package], tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in packages {
        let manifest = format!("{}/Cargo.toml", package.folder);
        let folder = short(&package.folder);
        let Some(row) = ROWS.iter().find(|row| matches(row.folder, folder)) else {
            let message =
                format!("a crate without a place in the map; give it one in {THIS_TABLE}");
            findings.push(Finding::fault(&manifest, 1, message));
            continue;
        };
        for dependency in &package.dependencies {
            if let Some(message) = objection(folder, row, dependency) {
                let line = line_of(tree.text(&manifest).unwrap_or(""), &dependency.name);
                findings.push(Finding::fault(&manifest, line, message));
            }
        }
    }
    findings
}

fn objection(folder: &str, row: &Row, dependency: &Dependency) -> Option<String> {
    let name = &dependency.name;
    match (&dependency.folder, &row.external) {
        (Some(other), _) => {
            let other = short(other);
            let allowed = row.internal.iter().any(|pattern| matches(pattern, other))
                || (dependency.is_dev && other == TESTKIT);
            (!allowed).then(|| {
                format!("`{folder}` must not depend on `{other}`; move the code, or argue for the edge and add it to {THIS_TABLE}")
            })
        }
        (None, Budget::Only(budget)) => {
            let allowed = dependency.is_dev || budget.contains(&name.as_str());
            (!allowed).then(|| {
                format!("`{name}` is not in the budget of `{folder}`; do without it, or argue for it and add it to {THIS_TABLE}")
            })
        }
        (None, Budget::Free) => None,
    }
}

fn short(folder: &str) -> &str {
    folder.strip_prefix("crates/").unwrap_or(folder)
}

fn matches(pattern: &str, folder: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => folder.starts_with(start),
        None => folder == pattern,
    }
}

/// The line that names the dependency, else the first.
fn line_of(manifest: &str, name: &str) -> usize {
    manifest
        .lines()
        .position(|line| {
            let rest = line.trim_start().trim_start_matches('"').strip_prefix(name);
            rest.is_some_and(|rest| rest.starts_with(['.', ' ', '=', '"']))
        })
        .map_or(1, |index| index + 1)
}

#[cfg(test)]
mod tests {
    use super::{check, packages};
    use crate::tidy::tree::Tree;

    /// One package at `folder` with one dependency; `path` makes it internal.
    fn findings(folder: &str, name: &str, path: Option<&str>, kind: Option<&str>) -> Vec<String> {
        let metadata = serde_json::json!({
            "workspace_root": "/ws",
            "packages": [{
                "manifest_path": format!("/ws/{folder}/Cargo.toml"),
                "dependencies": [{
                    "name": name,
                    "path": path.map(|path| format!("/ws/{path}")),
                    "kind": kind,
                }],
            }],
        });
        let packages = packages(&metadata.to_string()).unwrap();
        let tree = Tree::of([(
            "crates/kernel/Cargo.toml",
            "[dependencies]\n\ntokio = \"1\"\n",
        )]);
        check(&packages, &tree)
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    fn internal(folder: &str, other: &str, kind: Option<&str>) -> usize {
        findings(folder, "any", Some(other), kind).len()
    }

    #[test]
    fn the_directions_of_the_map_pass() {
        assert_eq!(internal("crates/cli", "crates/host", None), 0);
        assert_eq!(internal("crates/cli", "crates/pack-asset", None), 0);
        assert_eq!(internal("crates/pack-code", "crates/worker", None), 0);
        assert_eq!(internal("examples/ledger", "crates/worker", None), 0);
        assert_eq!(internal("xtask", "crates/testkit", None), 0);
    }

    #[test]
    fn a_direction_against_the_map_fails() {
        assert_eq!(internal("crates/kernel", "crates/worker", None), 1);
        assert_eq!(internal("crates/host", "crates/pack-asset", None), 1);
        assert_eq!(internal("examples/ledger", "crates/contract", None), 1);
        assert_eq!(internal("crates/contract", "crates/kernel", Some("dev")), 1);
        assert_eq!(internal("xtask", "crates/contract", None), 1);
    }

    #[test]
    fn testkit_is_for_tests() {
        assert_eq!(internal("crates/host", "crates/testkit", Some("dev")), 0);
        assert_eq!(internal("crates/host", "crates/testkit", None), 1);
        assert_eq!(internal("crates/host", "crates/testkit", Some("build")), 1);
    }

    #[test]
    fn a_crate_outside_the_budget_fails_at_its_line() {
        let found = findings("crates/kernel", "tokio", None, None);
        assert!(
            found[0].starts_with("crates/kernel/Cargo.toml:3: `tokio` is not"),
            "{found:?}"
        );
        assert!(findings("crates/kernel", "tokio", None, Some("dev")).is_empty());
        assert!(findings("crates/host", "tokio", None, None).is_empty());
        assert!(findings("crates/testkit", "anyhow", None, None).is_empty());
    }

    #[test]
    fn a_crate_that_is_not_on_the_map_fails() {
        assert_eq!(findings("crates/extra", "serde", None, None).len(), 1);
    }
}
