//! Ways out of `wrap --sandbox`, each tried by a real process inside, beside the same attempt without the sandbox.

#![allow(
    clippy::disallowed_methods,
    reason = "in CI nothing is skipped, which a variable says"
)]

mod learned;
mod packs;
mod presets;
mod relayed;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;

use anyhow::Context as _;
use mainstay_testkit::process::{Launch, Running, TempDir, binary, give_away, is_root};
use serde_json::json;

/// An interpreter that every user may read.
const PYTHON: &str = "/usr/bin/python3";

/// The escape script where every user can read it.
fn script(folder: &Path) -> anyhow::Result<PathBuf> {
    let path = folder.join("escape.py");
    std::fs::write(&path, include_str!("escape.py"))?;
    Ok(path)
}

/// A hostile server behind `wrap` with options, as root or as an ordinary user.
struct Hostile {
    running: Running,
    _folder: TempDir,
}

impl Hostile {
    fn start(options: &[&str], ordinary: bool) -> anyhow::Result<Self> {
        Self::start_behind(Vec::new(), options, ordinary)
    }

    /// With words before the host's own.
    fn start_behind(
        mut words: Vec<OsString>,
        options: &[&str],
        ordinary: bool,
    ) -> anyhow::Result<Self> {
        let folder = TempDir::new()?;
        if ordinary && is_root() {
            give_away(folder.path())?;
        }
        words.extend([binary("mainstay")?.into_os_string(), "wrap".into()]);
        words.extend(options.iter().map(Into::into));
        words.extend([
            "--".into(),
            PYTHON.into(),
            script(folder.path())?.into_os_string(),
        ]);
        let mut launch = Launch::new(words)?.env("HOST_SECRET", "do-not-read");
        if ordinary {
            launch = launch.as_nobody()?;
        }
        let running = launch.spawn()?;
        running.client()?.open(&json!({}))?;
        Ok(Self {
            running,
            _folder: folder,
        })
    }

    fn attempt(&self, way: &str, at: &str) -> anyhow::Result<String> {
        let answer = self
            .running
            .client()?
            .call("7", "attempt", &json!({"way": way, "at": at}))?;
        let text = answer.at("/result/content/0/text");
        Ok(text
            .as_str()
            .with_context(|| format!("{answer:?}"))?
            .to_owned())
    }

    /// A program of Python in the namespaces of the host, which has printed its first line.
    fn beside(&self, program: &str) -> anyhow::Result<Beside> {
        let host = self.running.pid().to_string();
        let mut child = Command::new("nsenter")
            .args([
                "-t",
                &host,
                "-U",
                "-n",
                "--preserve-credentials",
                PYTHON,
                "-c",
                program,
            ])
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        let said = child.stdout.take().context("its output")?;
        BufReader::new(said).read_line(&mut line)?;
        anyhow::ensure!(!line.is_empty(), "it said nothing");
        Ok(Beside(child))
    }

    fn gets_through(&self, way: &str, at: &str) -> anyhow::Result<bool> {
        let said = self.attempt(way, at)?;
        anyhow::ensure!(
            said.starts_with("through: ") || said.starts_with("blocked: "),
            "{way}: {said}"
        );
        Ok(said.starts_with("through: "))
    }
}

/// A program that ends with its test.
struct Beside(Child);

impl Drop for Beside {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Targets outside the sandbox that a hostile server reaches for.
struct Outside {
    folder: TempDir,
    sibling: Child,
    tcp: String,
    udp: String,
    socket: PathBuf,
    /// The control socket of a host.
    control: PathBuf,
    name: String,
    _log: UnixDatagram,
    _host: Hostile,
}

impl Outside {
    fn new() -> anyhow::Result<Self> {
        let folder = TempDir::new()?;
        for (name, text) in [
            (".ssh/id_rsa", "private key"),
            ("notes.txt", "notes"),
            ("empty", ""),
            ("open/mine", "mine"),
        ] {
            let path = folder.join(name);
            std::fs::create_dir_all(path.parent().context("a folder")?)?;
            std::fs::write(&path, text)?;
        }
        // Without the sandbox its user could use all of it.
        let all = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        if is_root() {
            give_away(&folder.join("open/mine"))?;
        }
        for name in ["", ".ssh", "open", "empty"] {
            std::fs::set_permissions(folder.join(name), std::fs::Permissions::clone(&all))?;
        }
        let tcp = TcpListener::bind("127.0.0.1:0")?;
        let udp = UdpSocket::bind("127.0.0.1:0")?;
        let socket = folder.join("control.sock");
        let unix = UnixListener::bind(&socket)?;
        std::fs::set_permissions(&socket, all)?;
        let log = UnixDatagram::bind(folder.join("log.sock"))?;
        let everyone = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(folder.join("log.sock"), everyone)?;
        let host = Hostile::start(&[], false)?;
        let control = control_socket(&host)?;
        let name = format!("mainstay-test-{}", std::process::id());
        let hidden = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
        let outside = Self {
            sibling: Command::new("sleep")
                .arg("600")
                .env("HOST_SECRET", "sibling")
                .spawn()?,
            tcp: tcp.local_addr()?.to_string(),
            udp: udp.local_addr()?.to_string(),
            folder,
            socket,
            control,
            name,
            _log: log,
            _host: host,
        };
        thread::spawn(move || {
            for mut stream in tcp.incoming().flatten() {
                let mut bytes = [0; 64];
                let count = stream.read(&mut bytes).unwrap_or_default();
                let _ = stream.write_all(bytes.get(..count).unwrap_or_default());
            }
        });
        thread::spawn(move || {
            let mut bytes = [0; 64];
            while let Ok((count, from)) = udp.recv_from(&mut bytes) {
                let _ = udp.send_to(bytes.get(..count).unwrap_or_default(), from);
            }
        });
        thread::spawn(move || while unix.accept().is_ok() {});
        thread::spawn(move || while hidden.accept().is_ok() {});
        Ok(outside)
    }

    fn path(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        let _ = self.sibling.kill();
        let _ = self.sibling.wait();
    }
}

/// The control socket of a host, below its runtime directory.
fn control_socket(host: &Hostile) -> anyhow::Result<PathBuf> {
    let mut folders = vec![host.running.folder().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder)?.flatten() {
            let kind = entry.file_type()?;
            if kind.is_socket() {
                return Ok(entry.path());
            }
            folders.extend(kind.is_dir().then(|| entry.path()));
        }
    }
    anyhow::bail!("the host has no control socket")
}

/// Attempts with their targets, and whether one succeeds without the sandbox: `None` where that depends on the machine.
fn battery(outside: &Outside, host: u32, root: bool) -> Vec<(&'static str, String, Option<bool>)> {
    let (sibling, host) = (outside.sibling.id().to_string(), host.to_string());
    let none = String::new();
    vec![
        ("list", outside.path(""), Some(true)),
        ("read", outside.path("notes.txt"), Some(true)),
        ("read", outside.path(".ssh/id_rsa"), Some(true)),
        ("write", outside.path("open/written"), Some(true)),
        ("write", outside.path("notes.txt"), None),
        ("truncate", outside.path("empty"), Some(true)),
        ("remove", outside.path("open/missing"), Some(false)),
        ("mode", outside.path("open/mine"), Some(true)),
        ("mode_by_descriptor", outside.path("open/mine"), Some(true)),
        ("owner", outside.path("open/mine"), Some(true)),
        ("times", outside.path("open/mine"), Some(true)),
        ("attribute", outside.path("open/mine"), None),
        ("through_proc", outside.path("notes.txt"), Some(true)),
        ("memory_file", outside.path("notes.txt"), Some(true)),
        ("swap_directories", outside.path("open/mine"), None),
        ("rename", outside.path("open/renamed"), None),
        ("hard_link", outside.path("notes.txt"), None),
        ("symlink_race", outside.path(".ssh/id_rsa"), Some(true)),
        ("read", "/etc/shadow".to_owned(), Some(root)),
        ("processes", none.clone(), Some(true)),
        ("environ_of", sibling.clone(), Some(root)),
        ("memory_of", sibling.clone(), Some(root)),
        ("descriptors_of", sibling.clone(), Some(root)),
        ("signal", sibling.clone(), Some(root)),
        ("ptrace", sibling.clone(), None),
        ("vm_read", sibling, None),
        ("root_of", "1".to_owned(), None),
        ("environ_of", "1".to_owned(), None),
        ("signal", "1".to_owned(), None),
        ("environ_of", host.clone(), None),
        ("memory_of", host.clone(), None),
        ("signal", host.clone(), Some(true)),
        ("ptrace", host, None),
        ("tcp", outside.tcp.clone(), Some(true)),
        ("udp", outside.udp.clone(), Some(true)),
        ("unix", outside.socket.display().to_string(), Some(true)),
        ("send_from_pair", outside.path("log.sock"), Some(true)),
        ("unix", outside.control.display().to_string(), Some(root)),
        ("abstract", outside.name.clone(), Some(true)),
        ("packet", none.clone(), None),
        ("device", "/dev/kmsg".to_owned(), None),
        ("device", "/dev/tty".to_owned(), None),
        ("device", "/dev/vda".to_owned(), None),
        ("make_device", outside.path("open/device"), None),
        ("mount", outside.path("open"), None),
        ("user_namespace", none.clone(), None),
        ("mount_namespace", none.clone(), None),
        ("chroot", "/".to_owned(), None),
        ("clone_namespace", none.clone(), None),
        ("later_call", "470".to_owned(), None),
        ("x32", none.clone(), None),
        ("old_calls", none.clone(), None),
        ("type_into_terminal", none.clone(), None),
        ("descriptors_of_host", none.clone(), None),
        (
            "write_proc",
            "/proc/sys/kernel/core_pattern".to_owned(),
            None,
        ),
        ("keyring", none.clone(), None),
        ("io_uring", none.clone(), None),
        ("bpf", none.clone(), None),
        ("userfaultfd", none.clone(), None),
        ("file_by_handle", none.clone(), None),
        ("socket_of_machines", none.clone(), None),
        ("pidfd_getfd", "1".to_owned(), None),
        ("advise_process", "1".to_owned(), None),
        ("setuid", none.clone(), Some(true)),
        ("environment", "HOST_SECRET".to_owned(), Some(true)),
        ("capabilities", none.clone(), None),
        ("processes_limit", "1000".to_owned(), Some(true)),
        ("descriptors_limit", none.clone(), None),
        ("core", none, None),
    ]
}

/// Runs the battery inside and outside the sandbox.
fn nothing_gets_through(ordinary: bool) -> anyhow::Result<()> {
    if !Path::new(PYTHON).exists() {
        return skip("there is no /usr/bin/python3");
    }
    let outside = Outside::new()?;
    let bare = Hostile::start(&[], ordinary)?;
    let boxed = Hostile::start(&["--sandbox"], ordinary)?;
    let root = is_root() && !ordinary;
    let mut table = BTreeMap::new();
    for (way, at, expected) in battery(&outside, boxed.running.pid(), root) {
        let said = boxed.attempt(way, &at)?;
        assert!(said.starts_with("blocked: "), "{way} {at}: {said}");
        // A traced process stops at its next signal, and this one would be the host.
        if way == "ptrace" {
            continue;
        }
        let without = bare.gets_through(way, &at)?;
        if let Some(expected) = expected {
            assert_eq!(
                without,
                expected,
                "{way} {at} without the sandbox: {}",
                bare.attempt(way, &at)?
            );
        }
        table.insert(format!("{way} {at}"), without);
    }
    // What a server needs still works.
    for way in ["temporary", "pair", "own_mode"] {
        let said = boxed.attempt(way, "")?;
        assert!(said.starts_with("through: "), "{way}: {said}");
    }
    let through = table.values().filter(|through| **through).count();
    assert!(through > 8, "{table:#?}");
    Ok(())
}

fn skip(reason: &str) -> anyhow::Result<()> {
    let in_ci = std::env::var_os("CI").is_some();
    anyhow::ensure!(!in_ci, "{reason}, and in CI nothing is skipped");
    Ok(())
}

#[test]
fn nothing_gets_out_of_the_sandbox_of_the_tests_user() -> anyhow::Result<()> {
    nothing_gets_through(false)
}

#[test]
fn nothing_gets_out_of_the_sandbox_of_an_ordinary_user() -> anyhow::Result<()> {
    nothing_gets_through(true)
}

#[test]
fn named_paths_variables_and_endpoints_are_open_and_nothing_beside_them() -> anyhow::Result<()> {
    let outside = Outside::new()?;
    let (notes, open) = (outside.path("notes.txt"), outside.path("open"));
    let options = [
        "--sandbox",
        "--read",
        &notes,
        "--write",
        &open,
        "--net",
        &outside.tcp,
        "--env",
        "HOST_SECRET",
    ];
    for ordinary in [false, true] {
        let boxed = Hostile::start(&options, ordinary)?;
        let through = |way: &str, at: &str| boxed.gets_through(way, at);
        assert!(through("read", &notes)?);
        assert!(!through("write", &notes)?);
        let file = format!("{open}/by-{ordinary}");
        assert!(through("write", &file)? && through("read", &file)?);
        assert!(!through("read", &outside.path(".ssh/id_rsa"))?);
        assert!(through("environment", "HOST_SECRET")?);
        assert_eq!(boxed.attempt("tcp", &outside.tcp)?, "through: b'hello\\n'");
        assert!(!through("udp", &outside.udp)?);
        assert!(!through("tcp", "127.0.0.1:1")?);
        assert!(!through("unix", &outside.socket.display().to_string())?);
    }
    Ok(())
}

#[test]
fn resources_of_a_file_bound_the_server() -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    let everyone: std::fs::Permissions = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(folder.path(), everyone)?;
    let file = folder.join("servers.json");
    let resources =
        json!({"processes": 40, "descriptors": 64, "memory": 256 << 20, "temporary": 1 << 20});
    let ours = json!({"sandbox": {"resources": resources}});
    let servers = json!({"mcpServers": {"hostile": {"command": "unused", "mainstay": ours}}});
    std::fs::write(&file, servers.to_string())?;
    let options = ["--config", &file.display().to_string()];
    for ordinary in [false, true] {
        let boxed = Hostile::start(&options, ordinary)?;
        for (way, at, fits) in [
            ("fill_temporary", "524288", true),
            ("fill_temporary", "4194304", false),
            ("many_files", "500", true),
            ("many_files", "5000", false),
            ("memory_limit", "1048576", true),
            ("memory_limit", "536870912", false),
            ("descriptors_limit", "", false),
            // Root has the bound of its PID namespace.
            ("processes_limit", "400", false),
        ] {
            let said = boxed.attempt(way, at)?;
            assert_eq!(said.starts_with("through: "), fits, "{way} {at}: {said}");
        }
        // It goes on, and nothing of it is left.
        assert!(boxed.gets_through("temporary", "")?);
    }
    Ok(())
}

/// Words before a command that run it on a machine that lets it make no namespaces.
fn without_namespaces() -> Vec<OsString> {
    let script = "echo 0 > /proc/sys/user/max_user_namespaces && \
        exec setpriv --bounding-set=-all --inh-caps=-all \"$@\"";
    let words = ["unshare", "-Ur", "sh", "-c", script, "sh"];
    words.map(Into::into).to_vec()
}

#[test]
fn a_lack_of_the_machine_is_refused_and_recorded_or_named() -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    let audit = folder.join("audit");
    let mut words = without_namespaces();
    words.extend([binary("mainstay")?.into_os_string(), "wrap".into()]);
    words.extend(["--sandbox", "--audit"].map(Into::into));
    words.extend([audit.clone().into(), "--".into(), PYTHON.into()]);
    words.push(script(folder.path())?.into());
    let running = Launch::new(words)?.spawn()?;
    let opened = running.client()?.open(&json!({}))?;
    assert!(
        opened
            .text()
            .contains("an ordinary user needs user namespaces")
            && opened.text().contains("--sandbox=best-effort"),
        "{opened:?}"
    );
    running.stop()?;
    let records = std::fs::read_to_string(&audit)?;
    assert!(records.contains("sandbox.refused"), "{records}");
    assert!(records.contains("needs user namespaces"), "{records}");
    let outside = Outside::new()?;
    let boxed = Hostile::start_behind(without_namespaces(), &["--sandbox=best-effort"], false)?;
    boxed
        .running
        .wait_for_line("the sandbox is incomplete: namespaces")?;
    assert!(!boxed.gets_through("read", &outside.path(".ssh/id_rsa"))?);
    assert!(!boxed.gets_through("unix", &outside.socket.display().to_string())?);
    assert!(!boxed.gets_through("environment", "HOST_SECRET")?);
    assert!(boxed.gets_through("temporary", "")?);
    Ok(())
}

#[test]
fn loopback_is_a_private_one() -> anyhow::Result<()> {
    let outside = Outside::new()?;
    let boxed = Hostile::start(&["--sandbox", "--net", "loopback"], false)?;
    let said = boxed.attempt("tcp", &outside.tcp)?;
    assert!(said.contains("refused"), "{said}");
    let all = Hostile::start(&["--sandbox", "--net", "all"], false)?;
    assert_eq!(all.attempt("tcp", &outside.tcp)?, "through: b'hello\\n'");
    assert!(!all.gets_through("unix", &outside.socket.display().to_string())?);
    assert!(!all.gets_through("abstract", &outside.name)?);
    Ok(())
}
