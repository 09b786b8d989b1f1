//! Names of hosts: those that a server looks up, and those of `/etc/hosts`.

use std::net::IpAddr;

/// The port of name servers.
pub(super) const PORT: u16 = 53;
/// Bytes of the header of a DNS message.
const HEADER: usize = 12;
/// Bytes of a name.
const LONGEST: usize = 253;

/// The name that a DNS query asks for.
pub(super) fn queried(message: &[u8]) -> Option<String> {
    // A query has the highest bit of its flags clear, and one question.
    let is_query = message.get(2)? & 0x80 == 0 && message.get(4..6)? == [0, 1];
    if !is_query {
        return None;
    }
    let mut rest = message.get(HEADER..)?;
    let mut name = String::new();
    loop {
        let (length, after) = rest.split_first()?;
        let length = usize::from(*length);
        if length == 0 {
            break;
        }
        let label = std::str::from_utf8(after.get(..length)?).ok()?;
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        // The highest bits would be a pointer, which no question has.
        if length > 63 || !label.chars().all(fits) || name.len() + length > LONGEST {
            return None;
        }
        if !name.is_empty() {
            name.push('.');
        }
        name.push_str(&label.to_ascii_lowercase());
        rest = after.get(length..)?;
    }
    (!name.is_empty()).then_some(name)
}

/// The first name of an address in the text of `/etc/hosts`.
pub(super) fn in_hosts(hosts: &str, address: IpAddr) -> Option<String> {
    hosts.lines().find_map(|line| {
        let line = line.split('#').next().unwrap_or_default();
        let mut words = line.split_whitespace();
        let is_it = words.next()?.parse::<IpAddr>().ok()? == address;
        words.next().filter(|_| is_it).map(str::to_ascii_lowercase)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(labels: &[&str]) -> Vec<u8> {
        let mut message = vec![7, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in labels {
            message.push(u8::try_from(label.len()).unwrap());
            message.extend(label.as_bytes());
        }
        message.extend([0, 0, 1, 0, 1]);
        message
    }

    #[test]
    fn a_query_has_its_name() {
        let name = queried(&query(&["API", "example", "com"]));
        assert_eq!(name.as_deref(), Some("api.example.com"));
    }

    #[test]
    fn other_bytes_have_none() {
        assert_eq!(queried(b"GET / HTTP/1.1\r\n"), None);
        assert_eq!(queried(&query(&[])), None);
        assert_eq!(queried(&query(&["a\nb"])), None);
        let long = "x".repeat(63);
        assert_eq!(queried(&query(&[long.as_str(); 6])), None);
        let mut answer = query(&["a"]);
        answer[2] |= 0x80;
        assert_eq!(queried(&answer), None);
        for length in 0..20 {
            let _ = queried(&query(&["ab", "cd"])[..length]);
        }
    }

    #[test]
    fn hosts_name_addresses() {
        let hosts = "# 10.0.0.1 no\n127.0.0.1 localhost\n10.0.0.1\tDb.internal db # yes\n";
        let name = in_hosts(hosts, "10.0.0.1".parse().unwrap());
        assert_eq!(name.as_deref(), Some("db.internal"));
        assert_eq!(in_hosts(hosts, "10.0.0.2".parse().unwrap()), None);
    }
}
