//! Settings of a network namespace over netlink.

use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

/// The loopback interface is the first of every namespace.
const LOOPBACK: u32 = 1;
const UP: u32 = 1;

/// Message types and flags of `linux/rtnetlink.h` and `linux/netlink.h`.
const NEW_LINK: u16 = 16;
const NEW_ADDRESS: u16 = 20;
const ERROR: u16 = 2;
const REQUEST_ACKNOWLEDGED: u16 = 1 | 4;
const CREATE: u16 = 0x400;
const LOCAL: u16 = 2;
const HEADER: usize = 16;

/// Brings the loopback interface up.
pub(crate) fn enable_loopback() -> io::Result<()> {
    let mut body = vec![0_u8; 4];
    body.extend(LOOPBACK.to_ne_bytes());
    body.extend(UP.to_ne_bytes());
    body.extend(UP.to_ne_bytes());
    ask(NEW_LINK, 0, &body)
}

/// Gives the loopback interface an address, so that connections to it stay in the namespace.
pub(crate) fn add_address(address: IpAddr) -> io::Result<()> {
    let (family, bytes): (i32, Vec<u8>) = match address {
        IpAddr::V4(address) => (libc::AF_INET, address.octets().to_vec()),
        IpAddr::V6(address) => (libc::AF_INET6, address.octets().to_vec()),
    };
    let bits = u8::try_from(bytes.len() * 8).unwrap_or(u8::MAX);
    let mut body = vec![u8::try_from(family).unwrap_or_default(), bits, 0, 0];
    body.extend(LOOPBACK.to_ne_bytes());
    let length = u16::try_from(4 + bytes.len()).unwrap_or(u16::MAX);
    body.extend(length.to_ne_bytes());
    body.extend(LOCAL.to_ne_bytes());
    body.extend(bytes);
    ask(NEW_ADDRESS, CREATE, &body)
}

/// Sends one request and waits for its acknowledgement.
fn ask(kind: u16, flags: u16, body: &[u8]) -> io::Result<()> {
    let socket: OwnedFd = rustix::net::socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        // Zero is NETLINK_ROUTE.
        None,
    )?;
    let length = u32::try_from(HEADER + body.len()).unwrap_or(u32::MAX);
    let mut message = length.to_ne_bytes().to_vec();
    message.extend(kind.to_ne_bytes());
    message.extend((REQUEST_ACKNOWLEDGED | flags).to_ne_bytes());
    message.extend([0; 8]);
    message.extend(body);
    rustix::net::send(&socket, &message, SendFlags::empty())?;
    let mut answer = [0_u8; 1024];
    let (count, _) = rustix::net::recv(&socket, &mut answer, RecvFlags::empty())?;
    let answer = answer.get(..count).unwrap_or_default();
    let word = |at: usize| {
        answer
            .get(at..at + 4)
            .and_then(|bytes| bytes.try_into().ok())
    };
    let is_error = answer.get(4..6) == Some(&ERROR.to_ne_bytes()[..]);
    match word(HEADER).map(i32::from_ne_bytes) {
        Some(0) if is_error => Ok(()),
        Some(error) if is_error => Err(io::Error::from_raw_os_error(-error)),
        _ => Err(io::Error::other(
            "the kernel did not acknowledge a setting of the network",
        )),
    }
}
