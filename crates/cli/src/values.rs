//! Values as people write them on the command line, in variables and in files: addresses, times,
//! sizes. An unambiguous form is accepted; the error of any other one shows the right form.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

/// Longest time that an option may set.
const LONGEST: Duration = Duration::from_secs(86_400);

/// An address to listen on: `127.0.0.1:8080`, `[::1]:8080` or `localhost:8080`.
pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let (host, port) = text.rsplit_once(':').unwrap_or(("", text));
    match (host, port.parse::<u16>()) {
        ("localhost", Ok(port)) => Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, port))),
        // Other programs mean every address by this; that must be said.
        ("" | "*", Ok(port)) => Err(format!(
            "the address is missing; write 127.0.0.1:{port} for this machine alone, or \
             0.0.0.0:{port} for other machines as well"
        )),
        (scheme, _) if scheme.contains("//") => Err(format!(
            "this is a URL; write only its address and port, as in {}",
            text.rsplit('/')
                .find(|part| part.contains(':'))
                .unwrap_or("127.0.0.1:8080")
        )),
        (_, Ok(port)) => Err(format!(
            "a host name cannot be listened on; write an address of this machine, as in \
             127.0.0.1:{port}"
        )),
        _ if text.parse::<IpAddr>().is_ok() || text == "localhost" => {
            Err("the port is missing; write it as 127.0.0.1:8080".to_owned())
        }
        _ => Err("write an address and a port, as in 127.0.0.1:8080".to_owned()),
    }
}

/// A time: `5` and `5s` are seconds; also `250ms`, `2m` and `1h`.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let seconds = match text.get(digits.len()..) {
        Some("" | "s") => 1.0,
        Some("ms") => 0.001,
        Some("m" | "min") => 60.0,
        Some("h") => 3600.0,
        _ => return Err("write it as 5, 5s, 250ms, 2m or 1h".to_owned()),
    };
    let Ok(number) = digits.parse::<f64>() else {
        return Err("write it as 5, 5s, 250ms, 2m or 1h".to_owned());
    };
    match Duration::try_from_secs_f64(number * seconds) {
        Ok(time) if time >= Duration::from_millis(1) && time <= LONGEST => Ok(time),
        _ => Err("it must be between 1ms and 24h".to_owned()),
    }
}

/// Whole milliseconds of a time, rounded up.
pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// Permissions of a socket, octal; its owner must be able to read and write.
pub(crate) fn socket_mode(text: &str) -> Result<u32, String> {
    let digits = text.strip_prefix("0o").unwrap_or(text);
    match u32::from_str_radix(digits, 8) {
        Ok(mode) if mode <= 0o777 && mode & 0o600 == 0o600 => Ok(mode),
        Ok(_) => Err("set it to at most 0777, with reading and writing for the owner".to_owned()),
        Err(_) => Err("set it to an octal mode such as 0600".to_owned()),
    }
}

/// A number of restarts and the period in which they are counted: `10/60`, or `10/1m`.
pub(crate) fn restarts(text: &str) -> Result<(u32, Duration), String> {
    let parsed = text
        .split_once('/')
        .and_then(|(count, period)| Some((count.parse().ok()?, time(period).ok()?)));
    parsed.ok_or_else(|| "write it as 10/60: ten restarts in sixty seconds".to_owned())
}

/// The number of a process.
pub(crate) fn pid(text: &str) -> Result<u32, String> {
    text.parse()
        .map_err(|_| "write the number that mainstay status shows under pid".to_owned())
}

/// A whole number of things.
pub(crate) fn count(text: &str) -> Result<u32, String> {
    text.parse()
        .map_err(|_| "write a whole number, such as 40".to_owned())
}

/// A number of bytes, with K, M or G for powers of 1024.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    let written = text.trim_end_matches(['B', 'b']);
    let digits = written.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match written.get(digits.len()..) {
        Some("") => Some(1),
        Some("K" | "k" | "Ki") => Some(1 << 10),
        Some("M" | "m" | "Mi") => Some(1 << 20),
        Some("G" | "g" | "Gi") => Some(1 << 30),
        _ => None,
    };
    let number: Option<u64> = digits.trim().parse().ok();
    number
        .zip(factor)
        .and_then(|(number, factor)| number.checked_mul(factor))
        .ok_or_else(|| "write it as 65536, 64K or 512M".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_is_clear_is_accepted() {
        for (text, address_of) in [
            ("127.0.0.1:0", "127.0.0.1:0"),
            ("[::1]:8080", "[::1]:8080"),
            ("localhost:8080", "127.0.0.1:8080"),
        ] {
            assert_eq!(address(text), Ok(address_of.parse().unwrap()), "{text}");
        }
    }

    #[test]
    fn any_other_address_is_refused_with_the_right_form() {
        for (text, form) in [
            (
                ":8080",
                "write 127.0.0.1:8080 for this machine alone, or 0.0.0.0:8080",
            ),
            (
                "8080",
                "write 127.0.0.1:8080 for this machine alone, or 0.0.0.0:8080",
            ),
            ("*:8080", "0.0.0.0:8080 for other machines"),
            (
                "example.com:8080",
                "an address of this machine, as in 127.0.0.1:8080",
            ),
            (
                "127.0.0.1",
                "the port is missing; write it as 127.0.0.1:8080",
            ),
            ("localhost", "the port is missing"),
            ("http://127.0.0.1:9000/mcp", "as in 127.0.0.1:9000"),
            ("127.0.0.1:99999", "write an address and a port"),
            ("", "write an address and a port"),
        ] {
            let said = address(text).unwrap_err();
            assert!(said.contains(form), "{text}: {said}");
        }
    }

    #[test]
    fn times_have_a_unit_or_are_seconds() {
        for (text, milliseconds) in [
            ("5", 5000),
            ("5s", 5000),
            ("0.25", 250),
            ("250ms", 250),
            ("2m", 120_000),
            ("1h", 3_600_000),
        ] {
            assert_eq!(time(text).map(millis), Ok(milliseconds), "{text}");
        }
        for text in ["", "s", "5 s", "5x", "-1", "0", "25h", "1e99", "NaN", "inf"] {
            assert!(time(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_and_restarts_are_read() {
        assert_eq!(bytes("512"), Ok(512));
        assert_eq!(bytes("64K"), Ok(65_536));
        assert_eq!(bytes("2GB"), Ok(2 << 30));
        assert_eq!(bytes("512MiB"), Ok(512 << 20));
        for text in ["many", "", "K", "1T"] {
            assert!(bytes(text).is_err(), "{text}");
        }
        assert_eq!(restarts("3/5"), Ok((3, Duration::from_secs(5))));
        assert!(restarts("3").is_err());
    }
}
