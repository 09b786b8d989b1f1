//! The text of a learned profile, and its file.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, OFlags};

use super::Learn;
use super::generalise::Learned;
use crate::policy::{Net, Policy};

/// Bytes of a profile that is added to.
const LONGEST: u64 = 1 << 20;

/// The lists of a profile, as they are written.
#[derive(Debug, Default, PartialEq, Eq)]
struct Lists {
    read: BTreeSet<String>,
    write: BTreeSet<String>,
    net: BTreeSet<String>,
}

/// Adds what was learned to the profile, and writes it anew. Another shim that writes it at the same time waits.
pub(super) fn save(policy: &Policy, learn: &Learn, learned: &Learned) -> io::Result<()> {
    let folder = learn.file.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(folder)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let lock = rustix::fs::open(folder, flags, Mode::empty())?;
    rustix::fs::flock(&lock, FlockOperation::LockExclusive)?;
    let before = match fs::metadata(&learn.file) {
        Ok(about) if about.len() <= LONGEST => read(&fs::read_to_string(&learn.file)?),
        _ => Lists::default(),
    };
    let text = text(policy, learn, learned, before);
    let new = learn
        .file
        .with_extension(format!("new-{}", std::process::id()));
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true);
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(&new)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&new, &learn.file)
}

/// The lists of a profile that exists. One that a person broke counts as none.
fn read(text: &str) -> Lists {
    #[derive(serde::Deserialize)]
    #[serde(untagged)]
    enum Words {
        One(String),
        Several(Vec<String>),
    }
    #[derive(Default, serde::Deserialize)]
    #[serde(default)]
    struct Written {
        read: Vec<String>,
        write: Vec<String>,
        net: Option<Words>,
    }
    let written: Written = toml::from_str(text).unwrap_or_default();
    Lists {
        read: written.read.into_iter().collect(),
        write: written.write.into_iter().collect(),
        net: match written.net {
            Some(Words::One(one)) => BTreeSet::from([one]),
            Some(Words::Several(several)) => several.into_iter().collect(),
            None => BTreeSet::new(),
        },
    }
}

fn text(policy: &Policy, learn: &Learn, learned: &Learned, mut lists: Lists) -> String {
    let mut left_out = learned.left_out.clone();
    let home = learn.home.as_deref();
    let mut add = |list: &mut BTreeSet<String>, path: &PathBuf| match written(path, home) {
        Some(path) => {
            list.insert(path);
        }
        None => {
            let path = path.display();
            left_out.insert(format!("uses \"{path}\": the path is not UTF-8"));
        }
    };
    let write = policy
        .write
        .iter()
        .filter(|path| !learn.private.contains(path));
    let read = policy.read.iter();
    read.chain(&learned.read)
        .for_each(|path| add(&mut lists.read, path));
    write
        .chain(&learned.write)
        .for_each(|path| add(&mut lists.write, path));
    // A later run may have seen more than an earlier one.
    lists.write = outermost(&lists.write, &BTreeSet::new());
    lists.read = outermost(&lists.read, &lists.write);
    let mut text = format!(
        "# A sandbox for {}, learned from what it did. Read it before you use it: whatever is below a path is open, too.\n\
         # Use it with: mainstay wrap --sandbox={} -- COMMAND\n\
         # or in a file, under \"mainstay\" of the server: \"sandbox\": {}\n\n",
        plain(&learn.name),
        plain(&learn.file.display().to_string()),
        quoted(&learn.file.display().to_string()),
    );
    if !learn.presets.is_empty() {
        array(&mut text, "preset", learn.presets.iter());
    }
    array(&mut text, "read", lists.read.iter());
    array(&mut text, "write", lists.write.iter());
    net(&mut text, policy, learned, lists.net);
    array(
        &mut text,
        "env",
        learn.env.iter().collect::<BTreeSet<_>>().into_iter(),
    );
    let resources = &policy.resources;
    if *resources != Default::default() {
        let values = BTreeMap::from([
            ("processes", resources.processes),
            ("descriptors", resources.descriptors),
            ("memory", resources.memory),
            ("temporary", resources.temporary),
        ]);
        text.push_str("\n[resources]\n");
        for (name, value) in values {
            let _ = writeln!(text, "{name} = {value}");
        }
    }
    if !left_out.is_empty() {
        text.push_str("\n# Not in it. The server\n");
        for one in left_out {
            let _ = writeln!(text, "# * {}", plain(&one));
        }
    }
    text
}

fn net(text: &mut String, policy: &Policy, learned: &Learned, before: BTreeSet<String>) {
    let has = |word: &str| before.contains(word);
    if policy.net == Net::All || has("all") {
        text.push_str("net = \"all\"\n");
        return;
    }
    let loopback = learned.loopback || policy.net == Net::Loopback || has("loopback");
    let mut endpoints: BTreeSet<String> =
        before.into_iter().filter(|one| one.contains(':')).collect();
    endpoints.extend(learned.endpoints.iter().cloned());
    if let Net::Hosts(named) = &policy.net {
        endpoints.extend(named.iter().map(ToString::to_string));
    }
    match (endpoints.is_empty(), loopback) {
        (false, _) => array(text, "net", endpoints.iter()),
        (true, true) => text.push_str("net = \"loopback\"\n"),
        (true, false) => text.push_str("net = \"none\"\n"),
    }
}

fn array<'a>(text: &mut String, key: &str, values: impl ExactSizeIterator<Item = &'a String>) {
    if values.len() == 0 {
        let _ = writeln!(text, "{key} = []");
        return;
    }
    let _ = writeln!(text, "{key} = [");
    for value in values {
        let _ = writeln!(text, "    {},", quoted(value));
    }
    text.push_str("]\n");
}

/// A path as a profile has it: below `~` where the home directory is.
fn written(path: &Path, home: Option<&Path>) -> Option<String> {
    let below = home.and_then(|home| path.strip_prefix(home).ok());
    let path = match below {
        Some(below) if !below.as_os_str().is_empty() => Path::new("~").join(below),
        _ => path.to_owned(),
    };
    path.to_str().map(str::to_owned)
}

/// Without paths below another one, or below one of the others.
fn outermost(paths: &BTreeSet<String>, others: &BTreeSet<String>) -> BTreeSet<String> {
    let has =
        |paths: &BTreeSet<String>, one: &Path| one.to_str().is_some_and(|one| paths.contains(one));
    let is_covered = |path: &String| {
        let path = Path::new(path);
        let above = || {
            path.ancestors()
                .skip(1)
                .filter(|above| *above != Path::new("~"))
        };
        above().any(|above| has(paths, above) || has(others, above)) || has(others, path)
    };
    paths
        .iter()
        .filter(|path| !is_covered(path))
        .cloned()
        .collect()
}

/// A basic string of TOML.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => {
                let _ = write!(quoted, "\\u{:04X}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// A text for a comment: it stays on its line.
fn plain(text: &str) -> String {
    let shown = |c: char| if c.is_control() { '\u{FFFD}' } else { c };
    text.chars().map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn learn() -> Learn {
        Learn {
            file: "/srv/me/x.toml".into(),
            name: "notes".into(),
            home: Some("/srv/me".into()),
            env: vec!["API_TOKEN".into()],
            presets: Vec::new(),
            private: vec!["/srv/me/.cache/x".into()],
        }
    }

    fn learned() -> Learned {
        Learned {
            read: ["/srv/me/in \"x\"\n".into(), "/srv/data".into()].into(),
            write: ["/srv/me/notes".into()].into(),
            endpoints: ["api.example.com:443".to_owned()].into(),
            loopback: false,
            left_out: ["lists \"/srv/me\"\nread = [\"/\"]".to_owned()].into(),
        }
    }

    #[test]
    fn a_profile_is_toml_that_a_person_can_read() {
        let policy = Policy {
            write: vec!["/srv/me/.cache/x".into()],
            ..Policy::default()
        };
        let text = text(&policy, &learn(), &learned(), Lists::default());
        let body = text.split_once("\n\n").unwrap().1;
        assert_eq!(
            body,
            "read = [\n    \"/srv/data\",\n    \"~/in \\\"x\\\"\\u000A\",\n]\n\
             write = [\n    \"~/notes\",\n]\n\
             net = [\n    \"api.example.com:443\",\n]\n\
             env = [\n    \"API_TOKEN\",\n]\n\n\
             # Not in it. The server\n# * lists \"/srv/me\"\u{FFFD}read = [\"/\"]\n"
        );
        assert_eq!(read(&text).write, BTreeSet::from(["~/notes".to_owned()]));
        assert_eq!(read(&text).read.len(), 2);
    }

    #[test]
    fn runs_add_to_each_other_and_the_order_does_not_matter() {
        let more = Learned {
            read: ["/srv/me/other".into()].into(),
            write: ["/srv".into()].into(),
            loopback: true,
            ..Learned::default()
        };
        let policy = Policy::default();
        let one = text(&policy, &learn(), &learned(), Lists::default());
        let both = text(&policy, &learn(), &more, read(&one));
        let other = text(&policy, &learn(), &more, Lists::default());
        let again = text(
            &policy,
            &learn(),
            &Learned {
                left_out: BTreeSet::new(),
                ..learned()
            },
            read(&other),
        );
        assert_eq!(both, again);
        assert!(both.contains("api.example.com:443") && both.contains("~/other"));
        assert!(!both.contains("/srv/data"), "{both}");
    }

    #[test]
    fn a_broken_profile_is_replaced() {
        assert_eq!(read("read = [\n<<<"), Lists::default());
        assert_eq!(
            read("net = \"loopback\"").net,
            BTreeSet::from(["loopback".to_owned()])
        );
    }
}
