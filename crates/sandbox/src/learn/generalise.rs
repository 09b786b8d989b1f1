//! From facts to permissions: few paths, none of which opens much more than the server used.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use super::facts::{Connection, Facts};
use super::names;
use crate::runtime::is_deep;

/// Files of one directory that are read before the directory is named instead.
const FILES: usize = 4;
/// Directories below the home directory that many programs share.
const SHARED: &[&str] = &[
    "",
    ".cache",
    ".config",
    ".local",
    ".local/bin",
    ".local/lib",
    ".local/share",
    ".local/state",
];
/// Files and directories below the home directory that hold credentials.
const CREDENTIALS: &[&str] = &[
    ".aws",
    ".azure",
    ".bash_history",
    ".cargo/credentials.toml",
    ".config/gcloud",
    ".config/gh",
    ".docker",
    ".git-credentials",
    ".gnupg",
    ".kube",
    ".local/share/keyrings",
    ".mozilla",
    ".netrc",
    ".npmrc",
    ".password-store",
    ".pgpass",
    ".pypirc",
    ".ssh",
    ".vault-token",
    ".zsh_history",
];
/// Directories of packages: one package needs its neighbours.
const PACKAGES: &[&str] = &["node_modules", "site-packages", "dist-packages"];

/// Permissions that cover what a server did.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Learned {
    pub(super) read: BTreeSet<PathBuf>,
    pub(super) write: BTreeSet<PathBuf>,
    /// Endpoints; empty without any.
    pub(super) endpoints: BTreeSet<String>,
    pub(super) loopback: bool,
    /// Paths that are left out, and why.
    pub(super) left_out: BTreeSet<String>,
}

/// Finds the permissions. `resolve` gives the addresses of a name.
pub(super) fn generalise(
    facts: &Facts,
    home: Option<&Path>,
    hosts: &str,
    resolve: &mut dyn FnMut(&str) -> Vec<IpAddr>,
) -> Learned {
    let mut learned = Learned::default();
    let mut paths = Paths {
        home,
        facts,
        left_out: &mut learned.left_out,
    };
    learned.write = paths.writable();
    learned.read = paths.readable(&learned.write);
    let mut named = BTreeSet::new();
    for one in &facts.connections {
        let (ip, port) = (one.to.ip().to_canonical(), one.to.port());
        if ip.is_loopback() || ip.is_unspecified() {
            match facts.own_ports.contains(&port) {
                true => learned.loopback = true,
                false => {
                    learned.endpoints.insert(format!("127.0.0.1:{port}"));
                }
            }
            continue;
        }
        let found = names_of(one, ip, facts, hosts, resolve);
        if found.is_empty() {
            learned
                .endpoints
                .insert(SocketAddr::new(ip, port).to_string());
        }
        for name in found {
            learned.endpoints.insert(format!("{name}:{port}"));
            named.insert(name);
        }
    }
    for (_, name) in facts
        .lookups
        .iter()
        .filter(|(_, name)| !named.contains(name))
    {
        let why = "no connection was seen that belongs to it";
        learned.left_out.insert(format!("looks up {name:?}: {why}"));
    }
    learned.loopback |= !facts.own_ports.is_empty();
    let left_out = &mut learned.left_out;
    for port in &facts.offered_ports {
        left_out.insert(format!(
            "listens on port {port}: nothing outside the sandbox reaches it"
        ));
    }
    for to in &facts.datagrams {
        left_out.insert(format!("sends UDP to {to}: that needs net = \"all\""));
    }
    for name in &facts.unix {
        left_out.insert(format!(
            "uses the Unix socket {name:?}: it was refused, as in the sandbox"
        ));
    }
    if facts.dropped > 0 {
        left_out.insert(format!(
            "{} more files and addresses than a profile can have",
            facts.dropped
        ));
    }
    learned
}

/// The names that led to an address: from `/etc/hosts`, from lookups that give it, or from the last one of the process. Hosts
/// may share an address.
fn names_of(
    one: &Connection,
    ip: IpAddr,
    facts: &Facts,
    hosts: &str,
    resolve: &mut dyn FnMut(&str) -> Vec<IpAddr>,
) -> BTreeSet<String> {
    if let Some(name) = names::in_hosts(hosts, ip) {
        return BTreeSet::from([name]);
    }
    let before = facts.lookups.get(..one.lookups).unwrap_or_default();
    let own = before
        .iter()
        .rev()
        .find(|(process, _)| *process == one.process);
    let own = own.map(|(_, name)| name.clone());
    let gives_it = before
        .iter()
        .filter(|(_, name)| resolve(name).contains(&ip));
    let exact: BTreeSet<String> = gives_it.map(|(_, name)| name.clone()).collect();
    if exact.is_empty() {
        own.into_iter().collect()
    } else {
        exact
    }
}

struct Paths<'a> {
    home: Option<&'a Path>,
    facts: &'a Facts,
    left_out: &'a mut BTreeSet<String>,
}

impl Paths<'_> {
    fn writable(&mut self) -> BTreeSet<PathBuf> {
        let mut found = BTreeSet::new();
        for (folder, names) in &self.facts.names {
            if self.is_common(folder) {
                let (there, gone): (Vec<_>, Vec<_>) = names.iter().partition(|name| name.exists());
                if !gone.is_empty() {
                    let folder = folder.display();
                    let why = "which is left out, since others keep files there, too";
                    self.left_out
                        .insert(format!("makes and removes names in \"{folder}\", {why}"));
                }
                found.extend(there.into_iter().cloned());
            } else if folder.is_dir() {
                found.insert(folder.clone());
            }
        }
        let written = self.facts.written.iter().filter(|path| path.exists());
        found.extend(written.cloned());
        found.retain(|path| !self.is_secret(path, "writes") && !self.is_system(path));
        outermost(&found)
    }

    fn readable(&mut self, writable: &BTreeSet<PathBuf>) -> BTreeSet<PathBuf> {
        let is_writable = |path: &Path| path.ancestors().any(|above| writable.contains(above));
        let mut found = BTreeSet::new();
        let mut folders: BTreeMap<&Path, Vec<&PathBuf>> = BTreeMap::new();
        for path in self
            .facts
            .read
            .iter()
            .filter(|path| path.exists() && !is_writable(path))
        {
            if self.is_secret(path, "reads") {
                continue;
            }
            let above = |folder: &&Path| PACKAGES.iter().any(|name| folder.ends_with(name));
            match path.ancestors().filter(above).last() {
                Some(packages) => {
                    found.insert(packages.to_owned());
                }
                None => folders
                    .entry(path.parent().unwrap_or(path))
                    .or_default()
                    .push(path),
            }
        }
        for (folder, files) in folders {
            match files.len() >= FILES && !self.is_common(folder) {
                true => found.extend([folder.to_owned()]),
                false => found.extend(files.into_iter().cloned()),
            }
        }
        for folder in self
            .facts
            .listed
            .iter()
            .filter(|path| path.exists() && !is_writable(path))
        {
            if self.is_common(folder) {
                let folder = folder.display();
                let why = "which is left out, since it would open everything below";
                self.left_out.insert(format!("lists \"{folder}\", {why}"));
            } else if !self.is_secret(folder, "lists") {
                found.insert(folder.clone());
            }
        }
        outermost(&found)
    }

    /// True if a directory is one that no server has for itself.
    fn is_common(&self, folder: &Path) -> bool {
        let is_shared = |home: &Path| SHARED.iter().any(|below| home.join(below) == folder);
        !is_deep(folder) || self.home.is_some_and(is_shared)
    }

    fn is_secret(&mut self, path: &Path, does: &str) -> bool {
        let below = |home: &Path| {
            CREDENTIALS
                .iter()
                .any(|name| path.starts_with(home.join(name)))
        };
        let is_secret = self.home.is_some_and(below) || path.ends_with(".env");
        if is_secret {
            let path = path.display();
            let why = "which may hold a credential: name it yourself if the server must have it";
            self.left_out.insert(format!("{does} \"{path}\", {why}"));
        }
        is_secret
    }

    fn is_system(&mut self, path: &Path) -> bool {
        let is_system = self
            .facts
            .open_to_all
            .iter()
            .any(|open| path.starts_with(open));
        if is_system {
            let path = path.display();
            self.left_out.insert(format!(
                "writes \"{path}\", which belongs to installed programs"
            ));
        }
        is_system
    }
}

/// Without those that are below another one.
fn outermost(paths: &BTreeSet<PathBuf>) -> BTreeSet<PathBuf> {
    let is_outermost =
        |path: &&PathBuf| !path.ancestors().skip(1).any(|above| paths.contains(above));
    paths.iter().filter(is_outermost).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    struct Home(PathBuf);

    impl Home {
        fn new(name: &str) -> Self {
            let name = format!("mainstay-learn-{name}-{}", std::process::id());
            let home = std::env::temp_dir()
                .canonicalize()
                .unwrap()
                .join(name)
                .join("home");
            let _ = fs::remove_dir_all(&home);
            fs::create_dir_all(&home).unwrap();
            Self(home)
        }

        fn file(&self, name: &str) -> PathBuf {
            let path = self.0.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "").unwrap();
            path
        }

        fn learn(&self, facts: &Facts) -> Learned {
            generalise(facts, Some(&self.0), "", &mut |_| Vec::new())
        }
    }

    impl Drop for Home {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(self.0.parent().unwrap());
        }
    }

    fn facts() -> Facts {
        Facts {
            private: vec!["/absent/temporary".into()],
            ..Facts::default()
        }
    }

    #[test]
    fn single_files_are_named_and_many_are_their_directory() {
        let home = Home::new("many");
        let mut facts = facts();
        facts.reads(home.file("one/a"));
        for name in ["a", "b", "c", "d"] {
            facts.reads(home.file(&format!("many/{name}")));
        }
        facts.reads(home.file("app/node_modules/x/node_modules/y/index.js"));
        let read = home.learn(&facts).read;
        let expected = ["app/node_modules", "many", "one/a"].map(|name| home.0.join(name));
        assert_eq!(read.into_iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_directory_with_new_names_is_writable_and_covers_what_is_read_below() {
        let home = Home::new("write");
        let mut facts = facts();
        facts.reads(home.file("data/sub/in"));
        facts.writes(home.file("data/db"));
        facts.changes_names(&home.0.join("data/db-journal"));
        facts.changes_names(&home.0.join("app/__pycache__/x.pyc"));
        let learned = home.learn(&facts);
        assert_eq!(learned.write, BTreeSet::from([home.0.join("data")]));
        assert!(learned.read.is_empty());
    }

    #[test]
    fn a_home_directory_is_never_opened() {
        let home = Home::new("home");
        let mut facts = facts();
        facts.changes_names(home.file(".mine/state").parent().unwrap());
        facts.changes_names(&home.0.join(".config/gone.lock"));
        facts.lists(home.0.clone());
        for name in ["a", "b", "c", "d", "e"] {
            facts.reads(home.file(name));
        }
        let learned = home.learn(&facts);
        assert_eq!(learned.write, BTreeSet::from([home.0.join(".mine")]));
        assert_eq!(learned.read.len(), 5, "{learned:?}");
        assert_eq!(learned.left_out.len(), 2, "{learned:?}");
    }

    #[test]
    fn credentials_are_left_to_the_person() {
        let home = Home::new("secret");
        let mut facts = facts();
        facts.reads(home.file(".ssh/id_rsa"));
        facts.reads(home.file("project/.env"));
        facts.writes(home.file(".aws/config"));
        let learned = home.learn(&facts);
        assert!(
            learned.read.is_empty() && learned.write.is_empty(),
            "{learned:?}"
        );
        assert_eq!(learned.left_out.len(), 3);
    }

    #[test]
    fn hosts_have_the_names_under_which_they_were_looked_up() {
        let mut facts = facts();
        let to = |text: &str| text.parse::<SocketAddr>().unwrap();
        facts.looks_up(1, "a.example".into());
        facts.looks_up(1, "b.example".into());
        facts.connects(1, to("10.0.0.1:443"));
        facts.connects(1, to("10.0.0.9:443"));
        facts.connects(2, to("10.0.0.8:22"));
        facts.connects(2, to("[2001:db8::1]:22"));
        facts.connects(2, to("10.0.0.5:80"));
        facts.connects(2, to("127.0.0.1:5432"));
        facts.looks_up(3, "shares-a.example".into());
        facts.connects(3, to("10.0.0.1:443"));
        facts.looks_up(3, "c.example".into());
        let mut resolve = |name: &str| match name {
            "a.example" | "shares-a.example" => vec!["10.0.0.1".parse().unwrap()],
            _ => Vec::new(),
        };
        let learned = generalise(&facts, None, "10.0.0.5 db\n", &mut resolve);
        let lookups: Vec<_> = learned.left_out.iter().collect();
        assert_eq!(
            lookups,
            ["looks up \"c.example\": no connection was seen that belongs to it"]
        );
        let expected = [
            "10.0.0.8:22",
            "127.0.0.1:5432",
            "[2001:db8::1]:22",
            "a.example:443",
            "b.example:443",
            "db:80",
            "shares-a.example:443",
        ];
        assert_eq!(learned.endpoints.into_iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn services_of_its_own_need_loopback_only() {
        let mut facts = facts();
        facts.listens("127.0.0.1:8000".parse().unwrap());
        facts.connects(1, "127.0.0.1:8000".parse().unwrap());
        let learned = generalise(&facts, None, "", &mut |_| Vec::new());
        assert!(learned.loopback && learned.endpoints.is_empty() && learned.left_out.is_empty());
        facts.listens("0.0.0.0:9000".parse().unwrap());
        facts.sends_datagrams("10.0.0.1:123".parse().unwrap());
        facts.connects_locally("/run/bus".into());
        let learned = generalise(&facts, None, "", &mut |_| Vec::new());
        assert_eq!(learned.left_out.len(), 3, "{learned:?}");
    }
}
