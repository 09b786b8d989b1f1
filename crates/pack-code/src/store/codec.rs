//! Numbers and checksums as bytes.

/// Appends a number, seven bits at a time, lowest first.
pub(crate) fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Takes a number off the front.
pub(crate) fn take(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    let mut shift = 0;
    loop {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
        shift += 7;
        if shift > 63 {
            return None;
        }
    }
}

/// Takes a number that fits 32 bits off the front.
pub(crate) fn take_u32(bytes: &mut &[u8]) -> Option<u32> {
    // Most numbers are deltas of one byte.
    if let Some((byte, rest)) = bytes.split_first()
        && *byte < 0x80
    {
        *bytes = rest;
        return Some(u32::from(*byte));
    }
    u32::try_from(take(bytes)?).ok()
}

/// Takes `length` bytes off the front.
pub(crate) fn take_bytes<'a>(bytes: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(taken)
}

/// Takes a fixed number of bytes off the front.
pub(crate) fn take_array<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    take_bytes(bytes, N)?.try_into().ok()
}

pub(crate) fn checksum(bytes: &[u8]) -> u32 {
    crc32fast::hash(bytes)
}

/// Appends the checksum of what is there.
pub(crate) fn seal(bytes: &mut Vec<u8>) {
    let sum = checksum(bytes);
    bytes.extend_from_slice(&sum.to_le_bytes());
}

/// The bytes without their checksum, if it is right.
pub(crate) fn unseal(bytes: &[u8]) -> Option<&[u8]> {
    let (body, sum) = bytes.split_last_chunk::<4>()?;
    (checksum(body) == u32::from_le_bytes(*sum)).then_some(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back() {
        let mut bytes = Vec::new();
        let numbers = [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX];
        for number in numbers {
            put(&mut bytes, number);
        }
        let mut rest = bytes.as_slice();
        for number in numbers {
            assert_eq!(take(&mut rest), Some(number));
        }
        assert_eq!(take(&mut rest), None);
        assert_eq!(take(&mut &[0xff_u8; 12][..]), None);
    }

    #[test]
    fn a_flipped_bit_breaks_the_seal() {
        let mut bytes = b"abc".to_vec();
        seal(&mut bytes);
        assert_eq!(unseal(&bytes), Some(&b"abc"[..]));
        bytes[1] ^= 1;
        assert_eq!(unseal(&bytes), None);
        assert_eq!(unseal(b"abc"), None);
    }
}
