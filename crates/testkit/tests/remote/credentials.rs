//! Tokens, certificates, proxies, and what a server without them is told.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use mainstay_testkit::process::TempDir;
use serde_json::json;

use crate::upstream::{Upstream, World};
use crate::wrapping::stop;
use crate::{open, read, sessions, wrap};

#[test]
fn an_expired_token_is_read_again_from_its_file_or_command() -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    let file = folder.join("token");
    let path = file.to_string_lossy().into_owned();
    let command = format!("cat '{path}'");
    for options in [["--token-file", &path], ["--token-command", &command]] {
        std::fs::write(&file, "first-token\n")?;
        let upstream = Upstream::start(World {
            token: Some("first-token".to_owned()),
            ..sessions()
        })?;
        let running = open(&upstream, &options)?;
        let client = running.client()?;
        read(client, "1", "a")?;
        upstream.world().token = Some("second-token".to_owned());
        std::fs::write(&file, "second-token\n")?;
        read(client, "2", "b")?;
        let answer = client.call("3", "effect", &json!({"key": "once"}))?;
        assert_ne!(answer.at("/result/isError"), true, "{answer:?}");
        assert_eq!(upstream.world().effects["once"], 1);
        stop(running)?;
    }
    Ok(())
}

#[test]
fn a_token_of_the_environment_and_headers_of_a_file_are_sent() -> anyhow::Result<()> {
    let upstream = Upstream::start(World {
        token: Some("token-of-env".to_owned()),
        ..sessions()
    })?;
    let launch = wrap(&["--url", &upstream.url(), "--token-env", "MY_TOKEN"])?;
    let launch = launch
        .words(["--header-file", "headers"])
        .env("MY_TOKEN", "token-of-env");
    std::fs::write(launch.folder().join("headers"), "# team\nX-Team: blue\n")?;
    let running = launch.spawn()?;
    let client = running.client()?;
    client.open(&json!({}))?;
    read(client, "1", "a")?;
    assert_eq!(upstream.asked("tools/call")[0].headers["x-team"], "blue");
    stop(running)
}

#[test]
fn a_server_behind_oauth_gets_an_answer_that_names_what_is_missing() -> anyhow::Result<()> {
    let upstream = Upstream::start(World {
        token: Some("nobody-has-it".to_owned()),
        metadata: Some(json!({
            "resource": "x", "authorization_servers": ["https://login.example.com"],
            "scopes_supported": ["tools.read"],
        })),
        ..sessions()
    })?;
    let origin = upstream.url().trim_end_matches("/mcp").to_owned();
    let place = format!("{origin}/.well-known/oauth-protected-resource");
    upstream.world().challenge = Some(format!("Bearer resource_metadata=\"{place}\""));
    let running = wrap(&["--url", &upstream.url()])?.spawn()?;
    let answer = running.client()?.open(&json!({}));
    let said = match answer {
        Ok(answer) => format!("{answer:?}"),
        Err(error) => format!("{error:#}"),
    };
    for part in [
        &*place,
        "https://login.example.com",
        "tools.read",
        "--token-file",
        "no token is configured",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    Ok(())
}

#[test]
fn credentials_never_follow_a_redirect_to_another_origin() -> anyhow::Result<()> {
    let elsewhere = Upstream::start(sessions())?;
    let upstream = Upstream::start(World {
        token: Some("first-token".to_owned()),
        redirect: Some("/moved".to_owned()),
        ..sessions()
    })?;
    let launch = wrap(&["--url", &upstream.url(), "--token-file", "token"])?;
    std::fs::write(launch.folder().join("token"), "first-token")?;
    let running = launch.spawn()?;
    let client = running.client()?;
    client.open(&json!({}))?;
    read(client, "1", "a")?;
    assert_eq!(upstream.asked("tools/call")[0].path, "/moved");
    stop(running)?;
    upstream.world().redirect = Some(elsewhere.url());
    let launch = wrap(&["--url", &upstream.url(), "--token-file", "token"])?;
    std::fs::write(launch.folder().join("token"), "first-token")?;
    let running = launch.spawn()?;
    let said = match running.client()?.open(&json!({})) {
        Ok(answer) => format!("{answer:?}"),
        Err(error) => format!("{error:#}"),
    };
    assert!(said.contains("redirects to"), "{said}");
    assert!(elsewhere.world().seen.is_empty());
    Ok(())
}

/// A certificate for localhost, and the authority that signed it, in PEM form.
fn certificates() -> anyhow::Result<(Arc<rustls::ServerConfig>, String)> {
    let authority_key = rcgen::KeyPair::generate()?;
    let mut authority = rcgen::CertificateParams::new(Vec::new())?;
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let pem = authority.self_signed(&authority_key)?.pem();
    let issuer = rcgen::Issuer::new(authority, authority_key);
    let key = rcgen::KeyPair::generate()?;
    let names = vec!["localhost".to_owned()];
    let certificate = rcgen::CertificateParams::new(names)?.signed_by(&key, &issuer)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let private = rustls::pki_types::PrivatePkcs8KeyDer::from(key.serialize_der());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], private.into())?;
    Ok((Arc::new(config), pem))
}

#[test]
fn a_certificate_is_trusted_through_its_authority_only_and_through_a_proxy() -> anyhow::Result<()> {
    let (config, pem) = certificates()?;
    let upstream = Upstream::start_with(sessions(), Some(config))?;
    let running = wrap(&["--url", &upstream.url()])?.spawn()?;
    let said = match running.client()?.open(&json!({})) {
        Ok(answer) => format!("{answer:?}"),
        Err(error) => format!("{error:#}"),
    };
    assert!(
        said.contains("is not trusted") && said.contains("--ca"),
        "{said}"
    );
    assert!(upstream.world().seen.is_empty());
    let proxy = Proxy::start()?;
    let through = format!("http://{}", proxy.address);
    for options in [
        &["--ca", "ca.pem"][..],
        &["--ca", "ca.pem", "--proxy", &through],
    ] {
        let launch = wrap(&["--url", &upstream.url()])?.words(options);
        std::fs::write(launch.folder().join("ca.pem"), &pem)?;
        let running = launch.spawn()?;
        let client = running.client()?;
        client.open(&json!({}))?;
        read(client, "1", "a")?;
        stop(running)?;
    }
    assert!(proxy.tunnels.load(Ordering::SeqCst) > 0);
    Ok(())
}

/// A proxy that tunnels.
struct Proxy {
    address: std::net::SocketAddr,
    tunnels: Arc<AtomicUsize>,
}

impl Proxy {
    fn start() -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let tunnels = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&tunnels);
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let count = Arc::clone(&count);
                std::thread::spawn(move || tunnel(client, &count));
            }
        });
        Ok(Self { address, tunnels })
    }
}

fn tunnel(mut client: TcpStream, count: &AtomicUsize) -> anyhow::Result<()> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        client.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    let head = String::from_utf8(head)?;
    let place = head.split(' ').nth(1).unwrap_or_default();
    anyhow::ensure!(head.starts_with("CONNECT "), "{head}");
    let mut server = TcpStream::connect(place)?;
    count.fetch_add(1, Ordering::SeqCst);
    client.write_all(b"HTTP/1.1 200 OK\r\n\r\n")?;
    let (mut from, mut to) = (client.try_clone()?, server.try_clone()?);
    std::thread::spawn(move || std::io::copy(&mut from, &mut to));
    std::io::copy(&mut server, &mut client)?;
    Ok(())
}
