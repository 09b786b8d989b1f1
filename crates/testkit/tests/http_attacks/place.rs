//! Pages of foreign sites, and names that are not ours.

use anyhow::ensure;
use mainstay_testkit::http::{Request, initialize, modern};
use serde_json::json;

use crate::victim::{KINDS, Victim, expect};

/// Every route that there is or will be, and one that is not.
pub(crate) const ROUTES: [(&str, &str); 15] = [
    ("POST", "/mcp"),
    ("GET", "/mcp"),
    ("DELETE", "/mcp"),
    ("OPTIONS", "/mcp"),
    ("GET", "/v1/tools"),
    ("POST", "/v1/tool/get"),
    ("POST", "/v1/invoke"),
    ("GET", "/v1/diagnostics"),
    ("GET", "/schemas/envelope.schema.json"),
    ("GET", "/openapi.json"),
    ("GET", "/healthz"),
    ("GET", "/readyz"),
    ("GET", "/metrics"),
    ("GET", "/"),
    ("GET", "/nowhere"),
];

const FOREIGN_HOSTS: [&str; 8] = [
    "evil.example.com",
    "evil.example.com:{port}",
    "127.0.0.1.evil.example:{port}",
    "localhost.evil.example",
    "user@127.0.0.1:{port}",
    "127.0.0.1:{port}:80",
    "10.0.0.1:{port}",
    "",
];

const FOREIGN_ORIGINS: [&str; 9] = [
    "http://evil.example.com",
    "https://evil.example.com:{port}",
    "null",
    "",
    "http://127.0.0.1.evil.example:{port}",
    "http://evil.example@127.0.0.1:{port}",
    "file://",
    "chrome-extension://127.0.0.1:{port}",
    "http://127.0.0.1:{port} http://evil.example.com",
];

#[test]
fn foreign_host_is_refused_on_every_route() -> anyhow::Result<()> {
    for kind in KINDS {
        let victim = Victim::start(kind)?;
        let port = victim.address.port().to_string();
        for (method, route) in ROUTES {
            for host in FOREIGN_HOSTS {
                let host = host.replace("{port}", &port);
                let request = Request::new(method, route).header("Host", &host);
                let what = format!("{method} {route} at {host:?}");
                expect(&victim.ask(&request)?, &[403, 400], &what)?;
            }
            let absent = victim.ask(&Request::new(method, route))?;
            expect(&absent, &[403, 400], &format!("{method} {route} nowhere"))?;
            let twice = Request::to(victim.address, method, route).header("Host", "evil.example");
            expect(&victim.ask(&twice)?, &[403, 400], "two hosts")?;
        }
        let named = Request::to(victim.address, "POST", "http://evil.example/mcp");
        expect(&victim.ask(&named)?, &[403, 400], "a foreign target")?;
        victim.survives()?;
    }
    Ok(())
}

#[test]
fn foreign_page_is_refused_on_every_route() -> anyhow::Result<()> {
    for kind in KINDS {
        let victim = Victim::start(kind)?;
        let port = victim.address.port().to_string();
        let own = format!("http://{}", victim.address);
        for (method, route) in ROUTES {
            let request = Request::to(victim.address, method, route);
            for origin in FOREIGN_ORIGINS {
                let origin = origin.replace("{port}", &port);
                let what = format!("{method} {route} from {origin:?}");
                let answer = victim.ask(&request.clone().header("Origin", &origin))?;
                expect(&answer, &[403], &what)?;
                for header in ["access-control-allow-origin", "set-cookie"] {
                    ensure!(answer.head.header(header).is_none(), "{what}: {header}");
                }
            }
            for pair in [[&*own, "http://evil.example"], [&*own, &*own]] {
                let mut twice = request.clone();
                for origin in pair {
                    twice = twice.header("Origin", origin);
                }
                expect(&victim.ask(&twice)?, &[403], "two origins")?;
            }
        }
        victim.survives()?;
    }
    Ok(())
}

#[test]
fn own_page_and_no_page_are_served() -> anyhow::Result<()> {
    for kind in KINDS {
        let victim = Victim::start(kind)?;
        let (address, port) = (victim.address, victim.address.port());
        let discover = modern(address, "1", "server/discover", &json!({}));
        for request in [initialize(address), discover] {
            expect(&victim.ask(&request)?, &[200], "no origin")?;
            for name in ["127.0.0.1", "localhost"] {
                let place = format!("{name}:{port}");
                let request = request
                    .clone()
                    .without("host")
                    .header("Host", &place)
                    .header("Origin", &format!("http://{place}"));
                expect(&victim.ask(&request)?, &[200], &place)?;
            }
        }
        victim.survives()?;
    }
    Ok(())
}
