//! The files and variables that a program needs in order to run at all.

use std::fs;
use std::path::{Path, PathBuf};

/// Variables that a sandboxed server gets without being named; `LC_*` beside them.
pub const ENVIRONMENT: &[&str] = &[
    "COLORTERM",
    "HOME",
    "LANG",
    "LANGUAGE",
    "LOGNAME",
    "NODE_EXTRA_CA_CERTS",
    "NO_COLOR",
    "PATH",
    "SHELL",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
    "TERM",
    "TZ",
    "USER",
    "VIRTUAL_ENV",
];

/// Programs whose first argument is the program that they run.
const INTERPRETERS: &[&str] = &[
    "node", "nodejs", "bun", "deno", "python", "python3", "ruby", "perl", "bash", "sh",
];
/// Files that mark the root of a package.
const MARKS: &[&str] = &[
    "package.json",
    "pyproject.toml",
    "pyvenv.cfg",
    "deno.json",
    "Gemfile",
];
/// Links that are followed from a program to its file.
const LINKS: usize = 8;
/// Entries of a directory of packages that are looked at.
const ENTRIES: usize = 4096;
/// Bytes of a file in which a `#!` line or the home of a virtual environment is found.
const HEAD: usize = 4096;

/// Files and directories outside the system's that running `program` reads: the installation that it belongs to, the
/// interpreter of a script, and the package of the script that an interpreter is given.
#[must_use]
pub fn runtime_of(
    program: &Path,
    arguments: &[impl AsRef<std::ffi::OsStr>],
    cwd: Option<&Path>,
) -> Vec<PathBuf> {
    let mut found = Vec::new();
    add_program(program, &mut found, 0);
    let stem = program
        .file_name()
        .map(|name| name.to_string_lossy().into_owned());
    let is_interpreter = stem.is_some_and(|stem| {
        let bare = stem.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
        INTERPRETERS.contains(&stem.as_str()) || INTERPRETERS.contains(&bare)
    });
    let script = arguments
        .iter()
        .map(AsRef::as_ref)
        .find(|word| !word.as_encoded_bytes().starts_with(b"-"));
    if let (true, Some(script)) = (is_interpreter, script) {
        let script = cwd.map_or_else(|| PathBuf::from(script), |cwd| cwd.join(script));
        if script.is_file() {
            add_package(&script, &mut found);
        }
    }
    found.sort();
    found.dedup();
    found
}

/// Adds a program: each link on the way to its file, its installation, and its interpreter.
fn add_program(program: &Path, found: &mut Vec<PathBuf>, depth: usize) {
    if depth > LINKS {
        return;
    }
    add_package(program, found);
    if let Ok(target) = fs::read_link(program) {
        let target = program
            .parent()
            .map_or_else(|| target.clone(), |parent| parent.join(&target));
        add_program(&target, found, depth + 1);
        return;
    }
    let Some(head) = head_of(program) else { return };
    if let Some(interpreter) = head
        .strip_prefix("#!")
        .and_then(|line| line.split_whitespace().next())
    {
        add_program(Path::new(interpreter), found, depth + 1);
    }
}

/// True if a directory holds the programs of an installation: `shims` is that of version managers.
fn is_for_programs(folder: &Path) -> bool {
    folder.ends_with("bin") || folder.ends_with("shims")
}

/// Adds the package of a file: its installation if it is in a directory of programs, else the nearest directory with a mark of a
/// package, else the file alone.
fn add_package(file: &Path, found: &mut Vec<PathBuf>) {
    let Ok(file) = std::path::absolute(file) else {
        return;
    };
    let Some(folder) = file.parent() else { return };
    let installation = folder
        .parent()
        .filter(|above| is_for_programs(folder) && is_deep(above));
    if let Some(installation) = installation {
        found.push(installation.to_owned());
        if let Some(home) = home_of_environment(installation) {
            found.push(home);
        }
        return;
    }
    let is_package = |folder: &&Path| MARKS.iter().any(|mark| folder.join(mark).is_file());
    let modules = |folder: &&Path| folder.ends_with("node_modules");
    let above = || folder.ancestors().filter(|folder| is_deep(folder));
    match above()
        .filter(modules)
        .last()
        .or_else(|| above().find(is_package))
    {
        Some(package) => found.push(package.to_owned()),
        None => found.push(file),
    }
}

/// True if a directory is below the home directories and the top level, so that reading it reveals one package only.
pub(crate) fn is_deep(folder: &Path) -> bool {
    let names = folder.components().count();
    let is_home = std::env::home_dir().is_some_and(|home| home == folder);
    names > 2 && !is_home && !(names == 3 && folder.starts_with("/home"))
}

/// The installation behind a Python virtual environment.
fn home_of_environment(environment: &Path) -> Option<PathBuf> {
    let head = head_of(&environment.join("pyvenv.cfg"))?;
    let home = head.lines().find_map(|line| {
        let (key, value) = line.split_once('=')?;
        (key.trim() == "home").then(|| PathBuf::from(value.trim()))
    })?;
    let installation = home.parent()?.to_owned();
    is_deep(&installation).then_some(installation)
}

/// The virtual environment of a program in it.
#[must_use]
pub fn environment_below(program: &Path) -> Option<PathBuf> {
    let environment = program.parent()?.parent()?;
    let is_one = environment.join("pyvenv.cfg").is_file();
    is_one.then(|| environment.to_owned())
}

/// A virtual environment, the installation behind it, and the packages that it uses where they are developed: a `.pth` file
/// names their directories.
#[must_use]
pub fn runtime_of_environment(environment: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    add_program(&environment.join("bin/python"), &mut found, 0);
    let entries = |folder: &Path| {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).take(ENTRIES)
    };
    for versions in ["lib", "lib64"].map(|name| environment.join(name)) {
        for packages in entries(&versions).map(|version| version.join("site-packages")) {
            let files =
                entries(&packages).filter(|path| path.extension().is_some_and(|it| it == "pth"));
            for text in files.filter_map(|file| head_of(&file)) {
                let folders = text.lines().map(Path::new);
                let folders =
                    folders.filter(|path| path.is_absolute() && path.is_dir() && is_deep(path));
                found.extend(folders.map(Path::to_owned));
            }
        }
    }
    found.sort();
    found.dedup();
    found
}

fn head_of(file: &Path) -> Option<String> {
    use std::io::Read as _;
    let mut head = Vec::new();
    // Opening a FIFO would wait for its writer.
    if !fs::metadata(file).ok()?.is_file() {
        return None;
    }
    let file = fs::File::open(file).ok()?;
    file.take(HEAD.try_into().ok()?)
        .read_to_end(&mut head)
        .ok()?;
    Some(String::from_utf8_lossy(&head).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let folder =
            std::env::temp_dir().join(format!("mainstay-runtime-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    fn write(path: PathBuf, text: &str) -> PathBuf {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    const NONE: [&str; 0] = [];

    #[test]
    fn an_installation_and_a_virtual_environment_are_found() {
        let folder = scratch("venv");
        let base = folder.join("base/versions/3.11");
        write(base.join("bin/python3"), "");
        write(
            folder.join("venv/pyvenv.cfg"),
            &format!("home = {}\n", base.join("bin").display()),
        );
        fs::create_dir_all(folder.join("venv/bin")).unwrap();
        std::os::unix::fs::symlink(base.join("bin/python3"), folder.join("venv/bin/python"))
            .unwrap();
        let found = runtime_of(&folder.join("venv/bin/python"), &NONE, None);
        assert_eq!(found, [base, folder.join("venv")]);
    }

    #[test]
    fn an_environment_has_packages_that_are_developed_elsewhere() {
        let folder = scratch("editable");
        let environment = folder.join("venv");
        write(environment.join("pyvenv.cfg"), "");
        fs::create_dir_all(folder.join("source/src")).unwrap();
        let link = format!(
            "import x\n{}\n/\n/absent/x\n",
            folder.join("source/src").display()
        );
        write(
            environment.join("lib/python3.11/site-packages/server.pth"),
            &link,
        );
        let python = write(environment.join("bin/python"), "");
        assert_eq!(environment_below(&python), Some(environment.clone()));
        let found = runtime_of_environment(&environment);
        assert_eq!(found, [folder.join("source/src"), environment]);
    }

    #[test]
    fn a_script_brings_its_package_and_its_interpreter() {
        let folder = scratch("script");
        write(folder.join("app/node_modules/server/package.json"), "{}");
        let script = write(
            folder.join("app/node_modules/server/dist/index.js"),
            "#!/opt/runtime/bin/node\n",
        );
        let found = runtime_of(&script, &NONE, None);
        assert!(
            found.contains(&folder.join("app/node_modules")),
            "{found:?}"
        );
        assert!(found.contains(&PathBuf::from("/opt/runtime")), "{found:?}");
    }

    #[test]
    fn an_argument_of_an_interpreter_is_its_script() {
        let folder = scratch("argument");
        let script = write(folder.join("server.py"), "");
        let found = runtime_of(
            Path::new("/usr/bin/python3.11"),
            &["-u", "server.py"],
            Some(&folder),
        );
        assert!(found.contains(&script), "{found:?}");
        let other = runtime_of(Path::new("/usr/bin/server"), &["server.py"], Some(&folder));
        assert!(!other.contains(&script), "{other:?}");
    }

    #[test]
    fn a_home_directory_is_never_a_package() {
        let homes = Path::new("/home");
        assert!(!is_deep(&homes.join("me")));
        assert!(!is_deep(Path::new("/root")));
        assert!(!is_deep(Path::new("/")));
        assert!(is_deep(&homes.join("me/app")));
    }
}
