//! The MCP servers of others, driven by the MCP clients of others, in legacy and in automatic mode,
//! in every way in which such servers are started; and again while the server is killed with -9.

#![expect(
    clippy::print_stdout,
    reason = "what is skipped is said, and what drivers report is shown"
)]

use anyhow::bail;
use mainstay_testkit::foreign::{Client, Drive, Driven, Mode, Server};
use mainstay_testkit::wrapped::{WAYS, Way};

macro_rules! tests {
    ($claim:ident: $($name:ident: $client:ident $server:ident;)*) => {$(
        #[test]
        fn $name() -> anyhow::Result<()> {
            $claim(Client::$client, Server::$server)
        }
    )*};
}

tests! {
    every_step_is_as_planned:
    python_uses_everything: Python Everything;
    python_uses_filesystem: Python Filesystem;
    python_uses_memory: Python Memory;
    python_uses_git: Python Git;
    python_uses_time: Python Time;
    python_uses_the_fixture: Python Fixture;
    fastmcp_uses_everything: FastMcp Everything;
    fastmcp_uses_filesystem: FastMcp Filesystem;
    fastmcp_uses_memory: FastMcp Memory;
    fastmcp_uses_git: FastMcp Git;
    fastmcp_uses_time: FastMcp Time;
    fastmcp_uses_the_fixture: FastMcp Fixture;
    typescript_uses_everything: TypeScript Everything;
    typescript_uses_filesystem: TypeScript Filesystem;
    typescript_uses_memory: TypeScript Memory;
    typescript_uses_git: TypeScript Git;
    typescript_uses_time: TypeScript Time;
    typescript_uses_the_fixture: TypeScript Fixture;
    inspector_uses_everything: Inspector Everything;
    inspector_uses_filesystem: Inspector Filesystem;
    inspector_uses_memory: Inspector Memory;
    inspector_uses_git: Inspector Git;
    inspector_uses_time: Inspector Time;
    inspector_uses_the_fixture: Inspector Fixture;
}

tests! {
    session_outlives_its_server:
    python_outlives_everything: Python Everything;
    python_outlives_filesystem: Python Filesystem;
    python_outlives_memory: Python Memory;
    python_outlives_git: Python Git;
    python_outlives_time: Python Time;
    python_outlives_the_fixture: Python Fixture;
    fastmcp_outlives_everything: FastMcp Everything;
    fastmcp_outlives_filesystem: FastMcp Filesystem;
    fastmcp_outlives_memory: FastMcp Memory;
    fastmcp_outlives_git: FastMcp Git;
    fastmcp_outlives_time: FastMcp Time;
    fastmcp_outlives_the_fixture: FastMcp Fixture;
    typescript_outlives_everything: TypeScript Everything;
    typescript_outlives_filesystem: TypeScript Filesystem;
    typescript_outlives_memory: TypeScript Memory;
    typescript_outlives_git: TypeScript Git;
    typescript_outlives_time: TypeScript Time;
    typescript_outlives_the_fixture: TypeScript Fixture;
    inspector_outlives_everything: Inspector Everything;
    inspector_outlives_filesystem: Inspector Filesystem;
    inspector_outlives_memory: Inspector Memory;
    inspector_outlives_git: Inspector Git;
    inspector_outlives_time: Inspector Time;
    inspector_outlives_the_fixture: Inspector Fixture;
}

tests! {
    one_of_several_works_and_outlives_its_server:
    python_uses_one_of_several_everything: Python Everything;
    python_uses_one_of_several_filesystem: Python Filesystem;
    python_uses_one_of_several_memory: Python Memory;
    python_uses_one_of_several_git: Python Git;
    python_uses_one_of_several_time: Python Time;
    fastmcp_uses_one_of_several_memory: FastMcp Memory;
    typescript_uses_one_of_several_everything: TypeScript Everything;
    typescript_uses_one_of_several_filesystem: TypeScript Filesystem;
    typescript_uses_one_of_several_memory: TypeScript Memory;
    typescript_uses_one_of_several_time: TypeScript Time;
    inspector_uses_one_of_several_time: Inspector Time;
}

tests! {
    a_client_of_the_other_era_works:
    modern_python_uses_everything: Python Everything;
    modern_python_uses_filesystem: Python Filesystem;
    modern_typescript_uses_memory: TypeScript Memory;
    modern_and_legacy_python_use_the_fixture: Python Fixture;
}

/// Foreign servers are legacy ones, the fixture is of the era that its client is not. Servers are killed only
/// where no question is asked while several calls run: such a question is refused.
fn a_client_of_the_other_era_works(client: Client, server: Server) -> anyhow::Result<()> {
    let modes: &[(Mode, bool)] = match server {
        Server::Fixture => &[
            (Mode::Auto, false),
            (Mode::Legacy, false),
            (Mode::Legacy, true),
        ],
        Server::Memory | Server::Filesystem => &[(Mode::Auto, false), (Mode::Auto, true)],
        _ => &[(Mode::Auto, false)],
    };
    for (mode, kills) in modes.iter().copied() {
        done_well(Drive {
            client,
            server,
            mode,
            way: Way::Bridged,
            kills,
        })?;
    }
    Ok(())
}

fn one_of_several_works_and_outlives_its_server(
    client: Client,
    server: Server,
) -> anyhow::Result<()> {
    for kills in [false, true] {
        done_well(Drive {
            client,
            server,
            mode: Mode::Legacy,
            way: Way::Served,
            kills,
        })?;
    }
    Ok(())
}

const MODES: [Mode; 2] = [Mode::Legacy, Mode::Auto];

fn every_step_is_as_planned(client: Client, server: Server) -> anyhow::Result<()> {
    for way in WAYS {
        for mode in MODES {
            done_well(Drive {
                client,
                server,
                mode,
                way: *way,
                kills: false,
            })?;
        }
    }
    Ok(())
}

fn session_outlives_its_server(client: Client, server: Server) -> anyhow::Result<()> {
    let ways: Vec<&Way> = WAYS.iter().filter(|way| way.survives_kills()).collect();
    if ways.is_empty() {
        println!("SKIPPED: in no way of starting it does a session outlive its server");
    }
    for way in ways {
        for mode in MODES {
            done_well(Drive {
                client,
                server,
                mode,
                way: *way,
                kills: true,
            })?;
        }
    }
    Ok(())
}

fn done_well(drive: Drive) -> anyhow::Result<()> {
    match drive.run()? {
        Driven::Well(report) => println!("{drive:?}: {report}"),
        Driven::Skipped(why) => println!("SKIPPED: {why}"),
        Driven::Badly(said) => bail!("{drive:?}: {said}"),
    }
    Ok(())
}

/// The tests above can fail: without anything in between, the session ends with its server.
#[test]
fn bare_session_does_not_outlive_its_server() -> anyhow::Result<()> {
    for client in [
        Client::Python,
        Client::FastMcp,
        Client::TypeScript,
        Client::Inspector,
    ] {
        let drive = Drive {
            client,
            server: Server::Fixture,
            mode: Mode::Legacy,
            way: Way::Bare,
            kills: true,
        };
        match drive.run()? {
            Driven::Badly(_) => {}
            Driven::Skipped(why) => println!("SKIPPED: {why}"),
            Driven::Well(report) => bail!("{drive:?} went on: {report}"),
        }
    }
    Ok(())
}
