//! A backend over https, with an authority made for the test.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::Arc;
use std::thread;

use crate::fixture::call_raw;
use crate::http::{Server, reply};
use crate::populate::{backend_error, populate, world};

/// An authority of our own, and a server that it vouches for as `localhost`.
struct Secure {
    url: String,
    authority: String,
}

impl Secure {
    fn start() -> Self {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut about = rcgen::CertificateParams::new([]).unwrap();
        about.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let own = about.self_signed(&key).unwrap();
        let issuer = rcgen::Issuer::new(about, key);
        let server_key = rcgen::KeyPair::generate().unwrap();
        let server = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap();
        let server = server.signed_by(&server_key, &issuer).unwrap();
        let secret = rustls::pki_types::PrivatePkcs8KeyDer::from(server_key.serialize_der());
        let config = rustls::ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(vec![server.der().clone()], secret.into())
            .unwrap();
        let config = Arc::new(config);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let session = rustls::ServerConnection::new(Arc::clone(&config)).unwrap();
                let mut stream = rustls::StreamOwned::new(session, stream);
                let mut head = [0; 4096];
                // A client that does not believe us hangs up here.
                if stream.read(&mut head).is_ok_and(|read| read > 0) {
                    let _ = stream.write_all(reply(201, r#"{"id":"secret"}"#).as_bytes());
                    stream.conn.send_close_notify();
                    let _ = stream.flush();
                }
            }
        });
        Self {
            url: format!("https://localhost:{port}"),
            authority: own.pem(),
        }
    }
}

#[test]
fn an_https_backend_is_believed_if_its_authority_is() {
    let server = Secure::start();
    let mut world = world(&server.url);
    world.write("authority.pem", &server.authority);
    world.settings.backend_ca_file = Some(world.path("authority.pem"));
    let given = call_raw(&world.pack(), "populate_backend", &populate()).unwrap();
    assert_eq!(given.value()["asset_id"], "secret");
    // Without it the certificate is rejected, and so is another name of the same machine.
    let unreachable = (503, "network_unreachable".to_owned());
    let mut elsewhere = server.url.clone();
    elsewhere = elsewhere.replace("localhost", "127.0.0.1");
    world.settings.backend_url = Some(elsewhere);
    assert_eq!(backend_error(&world.pack()), unreachable);
    world.settings.backend_url = Some(server.url);
    world.settings.backend_ca_file = None;
    assert_eq!(backend_error(&world.pack()), unreachable);
}

#[test]
fn authorities_that_cannot_be_read_are_a_reason_not_to_start() {
    let mut world = world("https://localhost");
    for (name, text) in [("none.pem", None), ("empty.pem", Some("no certificate"))] {
        if let Some(text) = text {
            world.write(name, text);
        }
        world.settings.backend_ca_file = Some(world.path(name));
        let unable = mainstay_pack_asset::pack(&world.settings, "1.0.0").unwrap_err();
        assert!(unable.detail.contains(name), "{unable}");
        assert!(unable.detail.contains("backend_ca_file"), "{unable}");
    }
}

#[test]
fn a_backend_that_speaks_no_tls_is_unreachable_over_https() {
    let server = Server::new(|mut stream| {
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    });
    let url = server.url().replace("http:", "https:");
    let (status, detail) = backend_error(&world(&url).pack());
    assert_eq!((status, detail.as_str()), (503, "network_unreachable"));
}
