//! A pack in a sandbox: `packs.NAME.sandbox` restricts its processes as it does a server.

use std::path::Path;

use anyhow::{Context as _, ensure};
use mainstay_testkit::process::{Launch, TempDir, binary};
use serde_json::json;

/// The status of the process of a program that was started with this argument.
fn status_of(program: &Path, argument: &Path) -> anyhow::Result<String> {
    let argument = argument.as_os_str().as_encoded_bytes();
    for process in std::fs::read_dir("/proc")?.flatten() {
        let runs = std::fs::read_link(process.path().join("exe")).is_ok_and(|exe| exe == program);
        let line = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        if runs && line.split(|byte| *byte == 0).any(|one| one == argument) {
            return Ok(std::fs::read_to_string(process.path().join("status"))?);
        }
    }
    anyhow::bail!("{} does not run", program.display())
}

#[test]
fn a_pack_works_in_its_sandbox_and_changes_only_what_is_named() -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    for name in ["open", "closed"] {
        std::fs::create_dir(folder.join(name))?;
    }
    let ledger = binary("ledger")?;
    let read = ledger.parent().context("a folder")?;
    for (name, works) in [("open", true), ("closed", false)] {
        let file = folder.join(name).join("ledger.jsonl");
        std::fs::write(&file, "")?;
        let config = format!(
            "[packs.ledger]\ncommand = [{ledger:?}, \"--file\", {file:?}]\n\
             [packs.ledger.sandbox]\nread = [{read:?}]\nwrite = [{:?}]\n\
             [packs.asset]\nenabled = false\n[packs.code]\nenabled = false\n",
            folder.join("open")
        );
        let path = folder.join("serve.toml");
        std::fs::write(&path, config)?;
        let words = [binary("mainstay")?.into_os_string(), "serve".into()];
        let launch = Launch::new(words)?.words(["--config".into(), path]);
        if !works {
            // A pack that cannot open its file ends the host.
            let mut running = launch.spawn()?;
            ensure!(!running.wait()?.success());
            ensure!(std::fs::read_to_string(&file)?.is_empty());
            continue;
        }
        let running = launch.spawn()?;
        let client = running.client()?;
        client.open(&json!({}))?;
        let answer = client.call("1", "append", &json!({"text": "a line"}))?;
        ensure!(answer.at("/result/isError") != true, "{answer:?}");
        ensure!(std::fs::read_to_string(&file)?.contains("a line"));
        let status = status_of(&ledger, &file)?;
        ensure!(
            status.contains("NoNewPrivs:\t1") && status.contains("Seccomp:\t2"),
            "{status}"
        );
        running.stop()?;
    }
    Ok(())
}
