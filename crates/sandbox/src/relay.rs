//! The relay for named hosts: connections inside the sandbox's network continue outside it.
//!
//! Programs need not know of it. Inside, a host's name leads to a loopback address of its own (through `/etc/hosts`),
//! and an address is one of the loopback interface; listeners there accept the connections. A thread that stays in
//! the machine's network resolves the name for each connection and copies bytes.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use crate::network;
use crate::policy::Endpoint;

/// Endpoints of one server.
pub(crate) const ENDPOINTS: usize = 64;
/// Connections at a time; more wait in the listeners' queues.
const CONNECTIONS: usize = 256;
/// Time to reach a host.
const CONNECT: Duration = Duration::from_secs(30);
/// Between two tries while all connections are taken.
const PAUSE: Duration = Duration::from_millis(20);
const STACK: usize = 64 * 1024;
const BUFFER: usize = 16 * 1024;

/// The half of the relay that stays in the machine's network. Start it before the namespace is entered.
pub(crate) struct Relay {
    listeners: SyncSender<(TcpListener, Endpoint)>,
}

impl Relay {
    pub(crate) fn start() -> io::Result<Self> {
        let (listeners, accepted) = sync_channel(ENDPOINTS);
        spawn("relay", move || serve(&accepted))?;
        Ok(Self { listeners })
    }

    /// Listens inside the namespace for each endpoint, and gives the lines of its `/etc/hosts`.
    pub(crate) fn listen(self, endpoints: &[Endpoint]) -> io::Result<String> {
        let mut hosts = String::from("127.0.0.1 localhost\n::1 localhost\n");
        let mut names: Vec<&str> = Vec::new();
        let mut addresses: Vec<IpAddr> = Vec::new();
        for endpoint in endpoints {
            let inside = match endpoint.address() {
                Some(address) => {
                    if !address.is_loopback() && !addresses.contains(&address) {
                        network::add_address(address)?;
                        addresses.push(address);
                    }
                    address
                }
                None => {
                    let known = names.iter().position(|name| *name == endpoint.host);
                    let index = known.unwrap_or(names.len());
                    let address =
                        Ipv4Addr::new(127, 77, 0, u8::try_from(index + 1).unwrap_or(u8::MAX));
                    if known.is_none() {
                        names.push(&endpoint.host);
                        hosts.push_str(&format!("{address} {}\n", endpoint.host));
                    }
                    IpAddr::V4(address)
                }
            };
            let listener = TcpListener::bind(SocketAddr::new(inside, endpoint.port))?;
            let lost = || io::Error::other("the relay has ended");
            self.listeners
                .send((listener, endpoint.clone()))
                .map_err(|_| lost())?;
        }
        Ok(hosts)
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new()
        .name(name.to_owned())
        .stack_size(STACK)
        .spawn(work)
        .map(drop)
}

/// Accepts for every listener until the sandbox has sent its last one, then for ever.
fn serve(accepted: &Receiver<(TcpListener, Endpoint)>) {
    let open = Arc::new(AtomicUsize::new(0));
    while let Ok((listener, endpoint)) = accepted.recv() {
        let open = Arc::clone(&open);
        // Without a thread the listener closes, and connections to it are refused.
        let _ = spawn("relay-accept", move || accept(&listener, &endpoint, &open));
    }
}

fn accept(listener: &TcpListener, endpoint: &Endpoint, open: &Arc<AtomicUsize>) {
    loop {
        if open.load(Ordering::Relaxed) >= CONNECTIONS {
            thread::sleep(PAUSE);
            continue;
        }
        let Ok((inside, _)) = listener.accept() else {
            thread::sleep(PAUSE);
            continue;
        };
        open.fetch_add(1, Ordering::Relaxed);
        let (endpoint, counted) = (endpoint.clone(), Arc::clone(open));
        let started = spawn("relay-copy", move || {
            // A connection that fails is closed; the program inside sees that.
            let _ = connect(&endpoint).and_then(|outside| copy_both(inside, outside));
            counted.fetch_sub(1, Ordering::Relaxed);
        });
        if started.is_err() {
            open.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

fn connect(endpoint: &Endpoint) -> io::Result<TcpStream> {
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for address in (endpoint.host.as_str(), endpoint.port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, CONNECT) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Copies both directions, each to its own end.
fn copy_both(inside: TcpStream, outside: TcpStream) -> io::Result<()> {
    let (inside_too, outside_too) = (inside.try_clone()?, outside.try_clone()?);
    spawn("relay-back", move || copy(outside_too, inside_too))?;
    copy(inside, outside);
    Ok(())
}

fn copy(mut from: TcpStream, mut to: TcpStream) {
    let mut buffer = vec![0; BUFFER];
    while let Ok(count) = from.read(&mut buffer)
        && count > 0
        && buffer
            .get(..count)
            .is_some_and(|bytes| to.write_all(bytes).is_ok())
    {}
    let _ = to.shutdown(Shutdown::Write);
    let _ = from.shutdown(Shutdown::Read);
}
