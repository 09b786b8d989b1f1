//! Endpoints of the relay: names that are resolved outside, and what a name does not open.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::Context as _;
use mainstay_testkit::process::TempDir;

use super::{Beside, Hostile, Outside, PYTHON, skip};

/// A service on another machine: a namespace behind one end of the host's link.
const FAR: &str = "import socket, subprocess, sys
print('waits', flush=True)
sys.stdin.readline()
for words in ('link set lo up', 'address add 10.77.7.7/24 dev far', 'link set far up'):
    subprocess.run(['ip', *words.split()], check=True)
one = socket.create_server(('10.77.7.7', 7001))
print('listens', flush=True)
while True:
    c, _ = one.accept()
    c.sendall(c.recv(100))
    c.close()
";

/// Starts the service that the host of `boxed` reaches at 10.77.7.7.
fn far_service(boxed: &Hostile) -> anyhow::Result<Beside> {
    let host = boxed.running.pid().to_string();
    let inside = ["-t", &host, "-U", "-n", "--preserve-credentials"];
    let child = Command::new("nsenter")
        .args(inside)
        .args(["unshare", "-n", PYTHON, "-c", FAR])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut far = Beside(child);
    let mut said = BufReader::new(far.0.stdout.take().context("its output")?);
    let mut line = String::new();
    said.read_line(&mut line)?;
    let moved = Command::new("nsenter")
        .args(inside)
        .args(["ip", "link", "set", "far", "netns", &far.0.id().to_string()])
        .status()?;
    anyhow::ensure!(moved.success(), "the link was not moved");
    far.0.stdin.take().context("its input")?.write_all(b"\n")?;
    said.read_line(&mut line)?;
    anyhow::ensure!(line.ends_with("listens\n"), "{line:?}");
    Ok(far)
}

/// Runs the host in namespaces whose `/etc/hosts` has these lines, with a link to another machine.
fn with_hosts(hosts: &str, options: &[&str]) -> anyhow::Result<Option<(Hostile, TempDir)>> {
    if !Path::new("/usr/bin/unshare").exists() {
        skip("there is no unshare")?;
        return Ok(None);
    }
    let folder = TempDir::new()?;
    let file = folder.join("hosts");
    std::fs::write(&file, hosts).context("writing names")?;
    let script = "ip link set lo up && ip link add near type veth peer name far && \
        ip address add 10.77.7.1/24 dev near && ip link set near up && mount --bind \"$0\" /etc/hosts && exec \"$@\"";
    let before = ["unshare", "-rmn", "sh", "-c", script].map(Into::into);
    let words = before.into_iter().chain([file.into_os_string()]);
    // The file must stay: with it the mounts over it would go.
    let started = Hostile::start_behind(words.collect(), options, false)?;
    Ok(Some((started, folder)))
}

#[test]
fn a_name_is_resolved_outside_and_leads_to_its_host_only() -> anyhow::Result<()> {
    let hosts =
        "127.0.0.1 localhost\n10.77.7.7 service.test\n127.0.0.1 rebound.test\n10.77.7.1 own.test\n";
    let options = [
        "--sandbox",
        "--net",
        "service.test:7001",
        "--net",
        "rebound.test:7001",
        "--net",
        "own.test:7001",
        "--net",
        "localhost:7001",
        "--net",
        "service.test:7001",
    ];
    let Some((boxed, _names)) = with_hosts(hosts, &options)? else {
        return Ok(());
    };
    // A service of the machine, on every address of the namespace of the host.
    let service = boxed.beside(
        "import socket\n\
         one = socket.create_server(('0.0.0.0', 7001))\n\
         print('listens', flush=True)\n\
         while True:\n    c, _ = one.accept()\n    c.sendall(c.recv(100))\n    c.close()\n",
    )?;
    let far = far_service(&boxed)?;
    let said = boxed.attempt("resolve", "service.test")?;
    assert!(said.contains("127.77.0.1"), "{said}");
    assert_eq!(
        boxed.attempt("tcp", "service.test:7001")?,
        "through: b'hello\\n'"
    );
    assert_eq!(
        boxed.attempt("tcp", "localhost:7001")?,
        "through: b'hello\\n'"
    );
    // The relay closes: the owner of the name would else choose a service of the machine, at its loopback or at its
    // address in the network.
    for name in ["rebound.test", "own.test"] {
        let said = boxed.attempt("tcp", &format!("{name}:7001"))?;
        assert!(
            said == "through: b''" || said.starts_with("blocked: "),
            "{name}: {said}"
        );
    }
    for elsewhere in [
        "service.test:7002",
        "127.77.0.1:22",
        "10.77.7.7:7001",
        "127.77.0.9:7001",
    ] {
        let said = boxed.attempt("tcp", elsewhere)?;
        assert!(said.starts_with("blocked: "), "{elsewhere}: {said}");
    }
    for name in ["other.test", "10.77.7.7.nip.test"] {
        assert!(!boxed.gets_through("resolve", name)?, "{name}");
    }
    drop((service, far));
    Ok(())
}

#[test]
fn a_permission_does_not_follow_a_link_that_was_put_there_later() -> anyhow::Result<()> {
    let outside = Outside::new()?;
    let (open, inner) = (outside.path("open"), outside.path("open/inner"));
    std::fs::create_dir(&inner)?;
    std::fs::set_permissions(&inner, std::os::unix::fs::PermissionsExt::from_mode(0o777))?;
    let options = ["--sandbox", "--write", &open, "--write", &inner];
    let boxed = Hostile::start(&options, false)?;
    assert!(boxed.gets_through("write", &format!("{inner}/file"))?);
    assert!(boxed.gets_through("own_mode", "")?);
    // The server is started again with the same permissions after it has replaced one of their directories.
    std::fs::remove_dir_all(&inner)?;
    std::os::unix::fs::symlink(outside.path(".ssh"), &inner)?;
    boxed.attempt("leave", "")?;
    let said = boxed.running.wait_for_line("there is a link on the way")?;
    assert!(said.contains("open/inner"), "{said}");
    Ok(())
}
