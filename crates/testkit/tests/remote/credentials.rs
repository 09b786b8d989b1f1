//! Tokens, certificates, proxies, and what a server without them is told.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use mainstay_testkit::process::TempDir;
use serde_json::json;

use crate::upstream::{Upstream, World};
use crate::wrapping::{eventually, stop};
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
fn metadata_is_found_where_a_server_has_it_by_convention() -> anyhow::Result<()> {
    for place in [
        "/.well-known/oauth-protected-resource/mcp",
        "/.well-known/oauth-protected-resource",
    ] {
        let upstream = Upstream::start(World {
            token: Some("nobody-has-it".to_owned()),
            metadata: Some(json!({"authorization_servers": ["https://login.example.com"]})),
            metadata_at: Some(place.to_owned()),
            ..sessions()
        })?;
        let running = wrap(&["--url", &upstream.url()])?.spawn()?;
        let said = match running.client()?.open(&json!({})) {
            Ok(answer) => format!("{answer:?}"),
            Err(error) => format!("{error:#}"),
        };
        let named = said.contains(&format!("{place}; ")) && said.contains("login.example.com");
        assert!(named, "{place}: {said}");
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

/// A certificate for a host, and the authority that signed it, in PEM form.
fn certificates(host: &str) -> anyhow::Result<(Arc<rustls::ServerConfig>, String)> {
    let authority_key = rcgen::KeyPair::generate()?;
    let mut authority = rcgen::CertificateParams::new(Vec::new())?;
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let pem = authority.self_signed(&authority_key)?.pem();
    let issuer = rcgen::Issuer::new(authority, authority_key);
    let key = rcgen::KeyPair::generate()?;
    let names = vec![host.to_owned()];
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
    let (config, pem) = certificates("localhost")?;
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
    let proxy = Proxy::start(None)?;
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

#[test]
fn proxies_and_certificates_of_the_environment_are_used() -> anyhow::Result<()> {
    // The server plays the proxy: it gets the whole URL, and the credentials for the proxy.
    let upstream = Upstream::start(sessions())?;
    let through = format!("http://me:p%40ss@127.0.0.1:{}", upstream.address().port());
    let launch = wrap(&["--url", "http://tools.example.com/mcp"])?;
    let running = launch.env("HTTP_PROXY", through).spawn()?;
    let client = running.client()?;
    client.open(&json!({}))?;
    read(client, "1", "a")?;
    let calls = upstream.asked("tools/call");
    assert_eq!(calls[0].origin, "http://tools.example.com");
    assert_eq!(calls[0].headers["host"], "tools.example.com");
    assert_eq!(
        calls[0].headers["proxy-authorization"],
        "Basic bWU6cEBzcw=="
    );
    let (_, log) = running.finish()?;
    assert!(!log.iter().any(|line| line.contains("p%40ss")), "{log:?}");
    let (config, pem) = certificates("tools.example.com")?;
    let upstream = Upstream::start_with(sessions(), Some(config))?;
    let proxy = Proxy::start(Some(upstream.address()))?;
    let launch = wrap(&["--url", "https://tools.example.com/mcp"])?;
    let bundle = launch.folder().join("bundle.pem");
    std::fs::write(&bundle, &pem)?;
    let launch = launch.env("HTTPS_PROXY", format!("http://{}", proxy.address));
    let running = launch.env("SSL_CERT_FILE", bundle).spawn()?;
    let client = running.client()?;
    client.open(&json!({}))?;
    read(client, "1", "a")?;
    assert!(proxy.tunnels.load(Ordering::SeqCst) > 0);
    stop(running)
}

#[test]
fn a_token_that_expires_while_nobody_calls_does_not_end_the_stream() -> anyhow::Result<()> {
    let upstream = Upstream::start(World {
        token: Some("first-token".to_owned()),
        ..sessions()
    })?;
    let launch = wrap(&["--url", &upstream.url(), "--token-file", "token"])?;
    let file = launch.folder().join("token");
    std::fs::write(&file, "first-token")?;
    let running = launch.spawn()?;
    let client = running.client()?;
    client.open(&json!({}))?;
    let streams = || {
        let world = upstream.world();
        let streams = world.seen.iter().filter(|seen| seen.http == "GET");
        streams.count()
    };
    eventually("the host listens", || streams() == 1)?;
    upstream.world().token = Some("second-token".to_owned());
    upstream.go_down();
    upstream.come_up(false)?;
    eventually("the host has been rejected often", || streams() > 6)?;
    std::fs::write(&file, "second-token")?;
    let changed = "notifications/tools/list_changed";
    let notice = json!({"jsonrpc": "2.0", "method": changed});
    upstream.world().notices.push_back(notice);
    client.notification(changed)?;
    assert_eq!(upstream.asked("initialize").len(), 1, "the same session");
    stop(running)
}

/// A proxy that tunnels.
struct Proxy {
    address: SocketAddr,
    tunnels: Arc<AtomicUsize>,
}

impl Proxy {
    /// With `to` every tunnel leads there.
    fn start(to: Option<SocketAddr>) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let tunnels = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&tunnels);
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let count = Arc::clone(&count);
                std::thread::spawn(move || tunnel(client, to, &count));
            }
        });
        Ok(Self { address, tunnels })
    }
}

fn tunnel(
    mut client: TcpStream,
    to: Option<SocketAddr>,
    count: &AtomicUsize,
) -> anyhow::Result<()> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        client.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    let head = String::from_utf8(head)?;
    let place = head.split(' ').nth(1).unwrap_or_default();
    anyhow::ensure!(head.starts_with("CONNECT "), "{head}");
    let mut server = match to {
        Some(to) => TcpStream::connect(to)?,
        None => TcpStream::connect(place)?,
    };
    count.fetch_add(1, Ordering::SeqCst);
    client.write_all(b"HTTP/1.1 200 OK\r\n\r\n")?;
    let (mut from, mut to) = (client.try_clone()?, server.try_clone()?);
    std::thread::spawn(move || std::io::copy(&mut from, &mut to));
    std::io::copy(&mut server, &mut client)?;
    Ok(())
}
