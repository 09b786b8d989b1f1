//! The fixture of the official conformance suite: every tool, prompt and resource that it asks for by name.
//!
//! Built on the SDK of others, so that what stands behind `mainstay wrap` is not our own work.
//! Without arguments it speaks MCP on stdin and stdout. With `--http ADDRESS:PORT` it serves the
//! SDK's own HTTP and prints `listening http://ADDRESS:PORT/mcp`; so the fixture itself is proved
//! before anything of ours is judged by it.

mod ask;
mod catalog;
mod listeners;
mod prompts;
mod resources;
mod rounds;
mod server;
mod tools;

use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use rmcp::ServiceExt as _;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use tokio::net::TcpListener;

use crate::server::Fixture;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments
        .iter()
        .map(String::as_str)
        .collect::<Vec<_>>()
        .as_slice()
    {
        [] => stdio().await,
        ["--http", address] => http(address.parse().context("reading the address")?).await,
        _ => bail!("usage: conformance-server [--http ADDRESS:PORT]"),
    }
}

async fn stdio() -> anyhow::Result<()> {
    let running = Fixture::new()
        .serve(rmcp::transport::stdio_pipes())
        .await
        .context("opening the conversation")?;
    running.waiting().await.context("serving")?;
    Ok(())
}

async fn http(address: SocketAddr) -> anyhow::Result<()> {
    let listener = TcpListener::bind(address).await.context("listening")?;
    let address = listener.local_addr().context("reading the address")?;
    let mut out = std::io::stdout();
    writeln!(out, "listening http://{address}/mcp").context("saying where")?;
    out.flush().context("saying where")?;
    let fixture = Fixture::new();
    let service = StreamableHttpService::new(
        move || Ok(fixture.clone()),
        Arc::new(LocalSessionManager::default()),
        StreamableHttpServerConfig::default(),
    );
    loop {
        let (stream, _) = listener.accept().await.context("accepting")?;
        let service = TowerToHyperService::new(service.clone());
        tokio::spawn(async move {
            // A client that leaves in the middle is its own affair.
            let _ = http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}
