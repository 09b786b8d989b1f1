//! The last words of a failing process, bounded: a failure never spills a backend's raw output.

/// Most bytes of a stream that travel with a failure.
pub const STREAM_BYTES: usize = 4096;

/// The last words of a stream, at most [`STREAM_BYTES`], cut at a character.
pub fn tail(raw: &str) -> String {
    let text = raw.trim_end();
    if text.len() <= STREAM_BYTES {
        return text.to_owned();
    }
    let mut from = text.len() - STREAM_BYTES + '…'.len_utf8();
    while !text.is_char_boundary(from) {
        from += 1;
    }
    format!("…{}", text.get(from..).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn raw_output_is_always_bounded(raw in any::<String>()) {
            prop_assert!(tail(&raw.repeat(20)).len() <= STREAM_BYTES);
        }
    }
}
