//! The MCP clients and servers of others that tests talk to, installed under `target/tools`.
//!
//! `tests/clients`, `tests/servers` and `tests/conformance` each have a `requirements.txt`, which
//! becomes a virtual environment, and a `package.json`, which becomes a folder with
//! `node_modules`: `python` and `node` for the clients, `python-servers` and `node-servers` for
//! the servers, which need other versions of the same libraries, `python-conformance` and
//! `node-conformance` for the judges of HTTP: the official suite, with a newer Node.js to run it,
//! and what reads our OpenAPI. A stamp beside each holds what it was made
//! from, so a second run does nothing. System packages are touched only when
//! `may_install` says so; what is missing otherwise is skipped with a line,
//! and is an error in CI.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, bail};

use crate::context::Context;
use crate::step::{output, run, succeeds};

/// Packages that are installed together: where they are listed, and the names of their folders.
struct Set {
    listed: &'static str,
    python: &'static str,
    /// Where Python's modules go when there are no virtual environments.
    python_site: &'static str,
    node: &'static str,
}

const SETS: [Set; 3] = [
    Set {
        listed: "tests/clients",
        python: "python",
        python_site: "python-site",
        node: "node",
    },
    Set {
        listed: "tests/servers",
        python: "python-servers",
        python_site: "python-servers-site",
        node: "node-servers",
    },
    Set {
        listed: "tests/conformance",
        python: "python-conformance",
        python_site: "python-conformance-site",
        node: "node-conformance",
    },
];

pub(crate) fn install(context: &Context, may_install: bool) -> anyhow::Result<()> {
    for set in &SETS {
        python(context, set, may_install)?;
        node(context, set, may_install)?;
    }
    // For the test that traces system calls.
    have(context, "strace", &["strace"], may_install)?;
    // For the test that asks the secret service of a desktop.
    let desktop = ["gnome-keyring", "libsecret-tools", "dbus"];
    have(context, "gnome-keyring-daemon", &desktop, may_install)?;
    // For the tests of the files under `deploy`.
    have(context, "nginx", &["nginx-light"], may_install)?;
    have(context, "systemd-analyze", &["systemd"], may_install)?;
    have(context, "curl", &["curl"], may_install)?;
    have(context, "openssl", &["openssl"], may_install)?;
    // For the tests of the operator's page.
    let browser = ["chromium", "chromium-driver"];
    have(context, "chromium", &browser, may_install)?;
    have(context, "chromedriver", &browser, may_install)?;
    Ok(())
}

/// The proxies of others that `cargo xtask bench http` measures ours beside: `tests/bench` under
/// `node-bench`, and a program of crates.io under `cargo`. Only that benchmark needs them.
pub(crate) fn install_peers(context: &Context) -> anyhow::Result<()> {
    node(context, &PEERS, false)?;
    let folder = context.tools().join("cargo");
    let (name, version) = RUST_PEER;
    let stamp = format!("{name} {version}");
    if is_current(&folder, &stamp) {
        println!("{stamp}: up to date");
        return Ok(());
    }
    let mut install = context.cargo(["install", "--locked", name, "--version", version]);
    install.arg("--root").arg(&folder);
    run(install)?;
    mark(&folder, &stamp)
}

const PEERS: Set = Set {
    listed: "tests/bench",
    python: "python-bench",
    python_site: "python-bench-site",
    node: "node-bench",
};

const RUST_PEER: (&str, &str) = ("mcp-proxy", "0.6.0");

fn python(context: &Context, set: &Set, may_install: bool) -> anyhow::Result<()> {
    let listed = set.listed;
    let requirements = context.root.join(listed).join("requirements.txt");
    let Some(wanted) = read_if_there(&requirements)? else {
        println!("no {listed}/requirements.txt: nothing of Python to install");
        return Ok(());
    };
    if !have(
        context,
        "python3",
        &["python3", "python3-venv"],
        may_install,
    )? {
        return Ok(());
    }
    let stamp = stamp_of(context, "python3", &wanted)?;
    let tools = context.tools();
    let environment = tools.join(set.python);
    let site = tools.join(set.python_site);
    if is_current(&environment, &stamp) || is_current(&site, &stamp) {
        println!("{listed}, Python: up to date");
        return Ok(());
    }
    empty(&environment)?;
    empty(&site)?;
    if !has_venv(context) && may_install {
        system_packages(context, &["python3-venv"])?;
    }
    if has_venv(context) {
        let mut make = context.command("python3");
        make.args(["-m", "venv"]).arg(&environment);
        run(make)?;
        let mut pip = context.command(environment.join("bin").join("python"));
        pip.args(PIP).arg("--requirement").arg(&requirements);
        run(pip)?;
        mark(&environment, &stamp)
    } else {
        println!(
            "python3 has no venv module: installing into target/tools/{} instead",
            set.python_site
        );
        let mut pip = context.command("python3");
        pip.args(PIP)
            .arg("--target")
            .arg(&site)
            .arg("--requirement")
            .arg(&requirements);
        run(pip)?;
        mark(&site, &stamp)
    }
}

const PIP: [&str; 5] = [
    "-m",
    "pip",
    "install",
    "--disable-pip-version-check",
    "--no-warn-script-location",
];

/// Debian splits `ensurepip` off into python3-venv; `venv` alone is not enough.
fn has_venv(context: &Context) -> bool {
    let mut probe = context.command("python3");
    probe.args(["-c", "import venv, ensurepip"]);
    succeeds(probe)
}

fn node(context: &Context, set: &Set, may_install: bool) -> anyhow::Result<()> {
    let listed = set.listed;
    let source = context.root.join(listed);
    let Some(wanted) = read_if_there(&source.join("package.json"))? else {
        println!("no {listed}/package.json: nothing of Node.js to install");
        return Ok(());
    };
    if !have(context, "npm", &["nodejs", "npm"], may_install)? {
        return Ok(());
    }
    let lock = read_if_there(&source.join("package-lock.json"))?;
    let stamp = stamp_of(
        context,
        "node",
        &[&*wanted, lock.as_deref().unwrap_or("")].concat(),
    )?;
    let folder = context.tools().join(set.node);
    if is_current(&folder, &stamp) {
        println!("{listed}, Node.js: up to date");
        return Ok(());
    }
    empty(&folder)?;
    fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
    write(&folder.join("package.json"), &wanted)?;
    if let Some(lock) = &lock {
        write(&folder.join("package-lock.json"), lock)?;
    }
    let mut npm = context.command("npm");
    npm.args(["install", "--no-audit", "--no-fund", "--omit=dev"])
        .current_dir(&folder);
    run(npm)?;
    mark(&folder, &stamp)
}

/// True if `program` can be used; installs its system packages where allowed.
fn have(
    context: &Context,
    program: &str,
    packages: &[&str],
    may_install: bool,
) -> anyhow::Result<bool> {
    if answers(context, program) {
        return Ok(true);
    }
    if may_install {
        system_packages(context, packages)?;
        if answers(context, program) {
            return Ok(true);
        }
    }
    if context.ci {
        bail!("{program} is missing, and in CI nothing is skipped");
    }
    println!("SKIPPED: {program} is missing; tests that need it skip (--install installs it)");
    Ok(false)
}

fn answers(context: &Context, program: &str) -> bool {
    // nginx knows only the short form, OpenSSL 3.0 only the word.
    ["--version", "-v", "version"].iter().any(|version| {
        let mut probe = context.command(program);
        probe.arg(version);
        succeeds(probe)
    })
}

fn system_packages(context: &Context, packages: &[&str]) -> anyhow::Result<()> {
    if !answers(context, "apt-get") {
        println!("no apt-get here: install {} by hand", packages.join(" "));
        return Ok(());
    }
    let mut update = context.command("apt-get");
    update.args(["update", "--quiet"]);
    run(update)?;
    let mut install = context.command("apt-get");
    install
        .args(["install", "--yes", "--quiet", "--no-install-recommends"])
        .args(packages);
    install.env("DEBIAN_FRONTEND", "noninteractive");
    run(install)
}

/// The inputs of an installation: the list of packages and the interpreter
/// that they were chosen for.
fn stamp_of(context: &Context, interpreter: &str, wanted: &str) -> anyhow::Result<String> {
    let mut version = context.command(interpreter);
    version.arg("--version");
    Ok(format!("{}\n{wanted}", output(version)?))
}

fn is_current(folder: &Path, stamp: &str) -> bool {
    fs::read_to_string(folder.join(STAMP)).is_ok_and(|found| found == stamp)
}

/// Written last: an installation that was cut off has no stamp and is made again.
fn mark(folder: &Path, stamp: &str) -> anyhow::Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
    write(&folder.join(STAMP), stamp)
}

const STAMP: &str = ".made-from";

fn empty(folder: &Path) -> anyhow::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("removing {}", folder.display()))
        }
        _ => Ok(()),
    }
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(path, text).with_context(|| format!("writing {}", path.display()))
}

fn read_if_there(path: &Path) -> anyhow::Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("reading {}", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::{empty, is_current, mark, read_if_there};

    #[test]
    fn an_installation_is_current_only_while_its_stamp_matches() {
        let folder = std::env::temp_dir().join(format!("xtask-stamp-{}", std::process::id()));
        assert!(!is_current(&folder, "a==1"));
        mark(&folder, "a==1").unwrap();
        assert!(is_current(&folder, "a==1"));
        assert!(!is_current(&folder, "a==2"));
        empty(&folder).unwrap();
        empty(&folder).unwrap();
        assert!(!is_current(&folder, "a==1"));
    }

    #[test]
    fn a_missing_list_is_not_an_error() {
        let path = std::env::temp_dir().join("xtask-no-such-list.txt");
        assert!(read_if_there(&path).unwrap().is_none());
    }
}
