//! `--sandbox=learn`: the profile has what a server used, and the server works under it.

use std::ffi::OsString;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use mainstay_testkit::foreign::{Client, Drive, Driven, Mode, Server};
use mainstay_testkit::process::TempDir;
use mainstay_testkit::wrapped::Way;

use super::{Hostile, Outside, skip};

/// A learning run writes when the server rests and when it has ended.
const PATIENCE: Duration = Duration::from_secs(120);

/// Waits for a profile with this text after its head.
fn wait_for_profile(path: &Path, expected: &str) -> anyhow::Result<()> {
    let until = Instant::now() + PATIENCE;
    loop {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let body = text.split_once("\n\n").map_or("", |(_, body)| body);
        if body == expected {
            return Ok(());
        }
        anyhow::ensure!(Instant::now() < until, "{body}\ninstead of\n{expected}");
        thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_profile_has_what_the_server_used_and_opens_nothing_else() -> anyhow::Result<()> {
    let outside = Outside::new()?;
    let home = outside.path("");
    let home = home.trim_end_matches('/');
    for name in [
        "app/by-thread",
        "app/by-grandchild",
        "race/race-a",
        "race/race-b",
        "data/state",
        "other",
        "own/file",
    ] {
        let path = outside.folder.join(name);
        std::fs::create_dir_all(path.parent().unwrap_or(&path))?;
        std::fs::write(path, name)?;
    }
    std::os::unix::fs::symlink(outside.path("notes.txt"), outside.path("link"))?;
    let tcp = outside.tcp.clone();
    let profile = outside.folder.join("profile.toml");
    let steps = [
        ("read", outside.path("link")),
        ("read_by_others", outside.path("app")),
        ("racing_path", outside.path("race")),
        ("replace_file", outside.path("data/state")),
        ("write", outside.path("own/file")),
        ("list", outside.path("app")),
        ("tcp", tcp.clone()),
    ];
    let start = |sandbox: String| -> anyhow::Result<Hostile> {
        let before = [
            "env".into(),
            format!("HOME={home}").into(),
            "API_TOKEN=s3cret-value".into(),
            // Python would list the directory of its script, which is another one in each run.
            "PYTHONSAFEPATH=1".into(),
        ];
        let before: [OsString; 4] = before;
        let named = profile.display().to_string();
        let options = [
            sandbox.as_str(),
            "--profile",
            &named,
            "--env",
            "API_TOKEN",
            "--env",
            "PYTHONSAFEPATH",
        ];
        Hostile::start_behind(before.to_vec(), &options, false)
    };
    let expected = format!(
        "read = [\n    \"~/app\",\n    \"~/notes.txt\",\n    \"~/race/race-a\",\n    \"~/race/race-b\",\n]\n\
         write = [\n    \"~/data\",\n    \"~/own/file\",\n]\n\
         net = [\n    \"{tcp}\",\n]\n\
         env = [\n    \"API_TOKEN\",\n    \"PYTHONSAFEPATH\",\n]\n"
    );
    // Twice: the second run adds nothing.
    for _ in 0..2 {
        let learning = start("--sandbox=learn".to_owned())?;
        for (way, at) in &steps {
            let said = learning.attempt(way, at)?;
            assert!(said.starts_with("through: "), "{way} {at}: {said}");
        }
        wait_for_profile(&profile, &expected)?;
        // What a person decides about is left out and named.
        assert!(learning.gets_through("read", &outside.path(".ssh/id_rsa"))?);
        assert!(learning.gets_through("list", home)?);
        assert!(!learning.gets_through("unix", &outside.socket.display().to_string())?);
        let socket = outside.socket.display();
        let left_out = format!(
            "\n# Not in it. The server\n\
             # * lists \"{home}\", which is left out, since it would open everything below\n\
             # * reads \"{home}/.ssh/id_rsa\", which may hold a credential: name it yourself if the server must have it\n\
             # * uses the Unix socket \"{socket}\": it was refused, as in the sandbox\n"
        );
        wait_for_profile(&profile, &format!("{expected}{left_out}"))?;
        learning.running.stop()?;
    }
    let text = std::fs::read_to_string(&profile)?;
    assert!(!text.contains("s3cret"), "{text}");
    let boxed = start("--sandbox".to_owned())?;
    for (way, at) in &steps {
        let said = boxed.attempt(way, at)?;
        assert!(said.starts_with("through: "), "{way} {at}: {said}");
    }
    for (way, at) in [
        ("read", outside.path(".ssh/id_rsa")),
        ("read", outside.path("other")),
        ("list", home.to_owned()),
        ("write", outside.path("notes.txt")),
        ("mode", outside.path("notes.txt")),
        ("tcp", "127.0.0.1:1".to_owned()),
        ("environment", "HOST_SECRET".to_owned()),
    ] {
        assert!(!boxed.gets_through(way, &at)?, "{way} {at}");
    }
    Ok(())
}

macro_rules! servers {
    ($($name:ident: $server:ident;)*) => {$(
        #[test]
        fn $name() -> anyhow::Result<()> {
            works_under_a_learned_profile(Server::$server)
        }
    )*};
}

servers! {
    everything_works_under_a_learned_profile: Everything;
    filesystem_works_under_a_learned_profile: Filesystem;
    memory_works_under_a_learned_profile: Memory;
    git_works_under_a_learned_profile: Git;
    time_works_under_a_learned_profile: Time;
}

/// Every step of the server's plan, first while it is watched, then with nothing but the profile.
fn works_under_a_learned_profile(server: Server) -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    let drive = Drive {
        client: Client::Python,
        server,
        mode: Mode::Legacy,
        way: Way::Wrapped,
        kills: false,
    };
    let profile = folder.join("profile.toml");
    let files = folder.join("files");
    let named = profile.display();
    for sandbox in [
        format!("--sandbox=learn --profile {named}"),
        format!("--sandbox={named}"),
    ] {
        if files.exists() {
            std::fs::remove_dir_all(&files)?;
        }
        let options: Vec<&str> = sandbox.split(' ').collect();
        match drive.run_with(&files, &options)? {
            Driven::Well(_) => {}
            Driven::Skipped(why) => return skip(&why),
            Driven::Badly(said) => {
                let profile = std::fs::read_to_string(&profile).unwrap_or_default();
                anyhow::bail!("{sandbox}: {said}\n{profile}")
            }
        }
        let text = std::fs::read_to_string(&profile)?;
        assert!(text.contains("net = \"none\""), "{text}");
    }
    Ok(())
}
