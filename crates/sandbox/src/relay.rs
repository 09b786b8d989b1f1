//! The relay for named hosts: connections inside the sandbox's network continue outside it.
//!
//! Programs need not know of it. Inside, a host's name leads to a loopback address of its own (through `/etc/hosts`),
//! and an address is one of the loopback interface; listeners there accept the connections. A thread that stays in
//! the machine's network resolves the name for each connection and copies bytes.

use std::io::{self, Read, Write};
use std::net::{
    IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs,
    UdpSocket,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
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
/// Resolvers of C libraries keep their answers on the stack.
const STACK: usize = 256 * 1024;
const BUFFER: usize = 16 * 1024;
const LOCALHOST: &str = "localhost";

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
        let mut inside = Inside::default();
        let mut listened = Vec::new();
        for endpoint in endpoints {
            for address in inside.addresses(endpoint)? {
                let place = SocketAddr::new(address, endpoint.port);
                if listened.contains(&place) {
                    continue;
                }
                listened.push(place);
                let listener = TcpListener::bind(place)?;
                let lost = |_| io::Error::other("the relay has ended");
                let sent = self.listeners.send((listener, endpoint.clone()));
                sent.map_err(lost)?;
            }
        }
        Ok(inside.hosts())
    }
}

/// The addresses of hosts inside the namespace.
#[derive(Default)]
struct Inside {
    names: Vec<String>,
    addresses: Vec<IpAddr>,
}

impl Inside {
    /// Where the sandbox reaches an endpoint.
    fn addresses(&mut self, endpoint: &Endpoint) -> io::Result<Vec<IpAddr>> {
        if let Some(address) = endpoint.address() {
            if !address.is_loopback() && !self.addresses.contains(&address) {
                network::add_address(address)?;
                self.addresses.push(address);
            }
            return Ok(vec![address]);
        }
        if endpoint.host == LOCALHOST {
            // Programs know these addresses without looking them up. Some machines have no version 6.
            let six = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok();
            let six = six.then_some(IpAddr::V6(Ipv6Addr::LOCALHOST));
            return Ok([IpAddr::V4(Ipv4Addr::LOCALHOST)]
                .into_iter()
                .chain(six)
                .collect());
        }
        let known = self.names.iter().position(|name| *name == endpoint.host);
        let index = known.unwrap_or_else(|| {
            self.names.push(endpoint.host.clone());
            self.names.len() - 1
        });
        Ok(vec![address_of(index)])
    }

    fn hosts(&self) -> String {
        let mut hosts = format!("127.0.0.1 {LOCALHOST}\n::1 {LOCALHOST}\n");
        for (index, name) in self.names.iter().enumerate() {
            hosts.push_str(&format!("{} {name}\n", address_of(index)));
        }
        hosts
    }
}

/// The loopback address of a name; there are at most [`ENDPOINTS`].
fn address_of(index: usize) -> IpAddr {
    let last = u8::try_from(index + 1).unwrap_or(u8::MAX);
    IpAddr::V4(Ipv4Addr::new(127, 77, 0, last))
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    thread::Builder::new()
        .name(name.to_owned())
        .stack_size(STACK)
        .spawn(work)
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
        if !may_lead_to(endpoint, address.ip()) {
            continue;
        }
        match TcpStream::connect_timeout(&address, CONNECT) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Addresses at which clouds serve the credentials of a machine, beside the link-local ones.
const METADATA: [IpAddr; 4] = [
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V6(Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254)),
];

/// True if a host may be at an address. A server of names could otherwise lead it to a service of this machine
/// or to the metadata service of a cloud; those are named by their addresses.
fn may_lead_to(endpoint: &Endpoint, address: IpAddr) -> bool {
    if endpoint.address().is_some() || endpoint.host == LOCALHOST {
        return true;
    }
    let address = address.to_canonical();
    let is_reserved = match address {
        IpAddr::V4(four) => four.is_loopback() || four.is_unspecified() || four.is_link_local(),
        IpAddr::V6(six) => six.is_loopback() || six.is_unspecified() || six.is_unicast_link_local(),
    };
    !is_reserved && !METADATA.contains(&address) && !is_of_this_machine(address)
}

/// True for an address of a network interface: services that listen at all addresses are reached there, too.
fn is_of_this_machine(address: IpAddr) -> bool {
    UdpSocket::bind((address, 0)).is_ok()
}

/// Copies both directions, each to its own end, until both have ended.
fn copy_both(inside: TcpStream, outside: TcpStream) -> io::Result<()> {
    let (inside_too, outside_too) = (inside.try_clone()?, outside.try_clone()?);
    let back = spawn("relay-back", move || copy(outside_too, inside_too))?;
    copy(inside, outside);
    // The connection counts until then, so that half-closed ones do not pile up.
    let _ = back.join();
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

#[cfg(test)]
mod tests {
    use super::*;

    fn leads(endpoint: &str, address: &str) -> bool {
        may_lead_to(&endpoint.parse().unwrap(), address.parse().unwrap())
    }

    #[test]
    fn a_name_does_not_lead_to_this_machine() {
        for address in [
            "127.0.0.1",
            "127.9.9.9",
            "::1",
            "0.0.0.0",
            "169.254.169.254",
            "::ffff:127.0.0.1",
            "fe80::1",
            "::ffff:169.254.169.254",
            "fd00:ec2::254",
            "100.100.100.200",
        ] {
            assert!(!leads("api.example.com:443", address), "{address}");
        }
        assert!(leads("api.example.com:443", "10.0.0.7"));
        assert!(leads("localhost:80", "127.0.0.1"));
        assert!(leads("127.0.0.1:80", "127.0.0.1"));
    }

    #[test]
    fn a_name_does_not_lead_to_an_address_of_this_machine_in_its_network() {
        let socket = UdpSocket::bind(("0.0.0.0", 0)).unwrap();
        // A datagram socket that is connected sends nothing; it only knows the way.
        if socket.connect(("192.0.2.1", 9)).is_err() {
            return;
        }
        let own = socket.local_addr().unwrap().ip().to_string();
        assert!(!leads("api.example.com:443", &own), "{own}");
        assert!(!leads("api.example.com:443", &format!("::ffff:{own}")));
        assert!(leads(&format!("{own}:443"), &own), "named by its address");
    }

    #[test]
    fn each_name_has_an_address_of_its_own() {
        let mut inside = Inside::default();
        let mut at = |endpoint: &str| inside.addresses(&endpoint.parse().unwrap()).unwrap();
        assert_eq!(at("a.example:1"), ["127.77.0.1".parse::<IpAddr>().unwrap()]);
        assert_eq!(at("b.example:1"), ["127.77.0.2".parse::<IpAddr>().unwrap()]);
        assert_eq!(at("a.example:2"), ["127.77.0.1".parse::<IpAddr>().unwrap()]);
        let local = "127.0.0.1".parse::<IpAddr>().unwrap();
        assert_eq!(at("localhost:5").first(), Some(&local));
        assert!(
            inside
                .hosts()
                .ends_with("127.77.0.1 a.example\n127.77.0.2 b.example\n")
        );
    }
}
