//! Promises of a ring of keys: only its own messages open, unchanged, for their purpose and context.

#![allow(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "helpers of tests, which clippy does not know as such"
)]

use mainstay_seal::{
    KEY_ID_BYTES, KEYS, KeyRing, KeyRingError, OVERHEAD, OpenError, Purpose, key_id,
};
use proptest::prelude::*;

const LETTERS: Purpose = Purpose::new("letters");
const PARCELS: Purpose = Purpose::new("parcels");

fn key(digit: char) -> String {
    digit.to_string().repeat(64)
}

fn ring(keys: &[(&str, char)]) -> KeyRing {
    let lines = keys
        .iter()
        .map(|(id, digit)| format!("{id} {}\n", key(*digit)));
    KeyRing::parse(&lines.collect::<String>()).unwrap()
}

proptest! {
    #[test]
    fn a_message_opens_to_what_was_sealed(message: Vec<u8>, context: Vec<u8>) {
        let ring = ring(&[("a", '1')]);
        let sealed = ring.seal(LETTERS, &context, &message).unwrap();
        prop_assert!(sealed.len() <= message.len() + OVERHEAD);
        prop_assert_eq!(ring.open(LETTERS, &context, &sealed), Ok(message));
    }

    #[test]
    fn no_bytes_make_opening_fail_in_another_way(bytes: Vec<u8>) {
        prop_assert!(ring(&[("a", '1')]).open(LETTERS, b"", &bytes).is_err());
    }
}

#[test]
fn a_change_of_any_bit_a_cut_and_an_addition_are_refused() {
    let ring = ring(&[("a", '1'), ("b", '2')]);
    let sealed = ring.seal(LETTERS, b"to you", b"hello").unwrap();
    for at in 0..sealed.len() {
        for bit in 0..8 {
            let mut changed = sealed.clone();
            changed[at] ^= 1 << bit;
            assert!(
                ring.open(LETTERS, b"to you", &changed).is_err(),
                "{at} {bit}"
            );
        }
        assert!(ring.open(LETTERS, b"to you", &sealed[..at]).is_err());
    }
    let longer = [&sealed[..], b"x"].concat();
    assert_eq!(
        ring.open(LETTERS, b"to you", &longer),
        Err(OpenError::Refused)
    );
}

#[test]
fn another_purpose_context_key_or_id_does_not_open_it() {
    let ours = ring(&[("a", '1')]);
    let sealed = ours.seal(LETTERS, b"to you", b"hello").unwrap();
    assert_eq!(
        ours.open(PARCELS, b"to you", &sealed),
        Err(OpenError::Refused)
    );
    assert_eq!(
        ours.open(LETTERS, b"to me", &sealed),
        Err(OpenError::Refused)
    );
    let theirs = ring(&[("a", '2')]);
    assert_eq!(
        theirs.open(LETTERS, b"to you", &sealed),
        Err(OpenError::Refused)
    );
    let renamed = ring(&[("b", '1')]);
    assert_eq!(
        renamed.open(LETTERS, b"to you", &sealed),
        Err(OpenError::UnknownKey)
    );
    assert_eq!(key_id(&sealed), Some("a"));
    assert_eq!(key_id(b"hello"), None);
}

#[test]
fn bytes_of_the_context_and_of_the_message_are_kept_apart() {
    let ring = ring(&[("a", '1')]);
    let sealed = ring.seal(LETTERS, b"ab", b"").unwrap();
    assert_eq!(ring.open(LETTERS, b"a", &sealed), Err(OpenError::Refused));
    assert_eq!(ring.open(LETTERS, b"abc", &sealed), Err(OpenError::Refused));
}

#[test]
fn messages_of_the_key_before_open_until_it_is_removed() {
    let old = ring(&[("2025", '1')]);
    let both = ring(&[("2026", '2'), ("2025", '1')]);
    let new = ring(&[("2026", '2')]);
    let before = old.seal(LETTERS, b"", b"before").unwrap();
    let after = both.seal(LETTERS, b"", b"after").unwrap();
    assert_eq!(
        (key_id(&before), key_id(&after)),
        (Some("2025"), Some("2026"))
    );
    assert_eq!(both.sealing_id(), "2026");
    assert_eq!(both.open(LETTERS, b"", &before).unwrap(), b"before");
    assert_eq!(new.open(LETTERS, b"", &before), Err(OpenError::UnknownKey));
    assert_eq!(new.open(LETTERS, b"", &after).unwrap(), b"after");
    // A host that knows the new key, but does not seal with it yet.
    let prepared = ring(&[("2025", '1'), ("2026", '2')]);
    assert_eq!(prepared.open(LETTERS, b"", &after).unwrap(), b"after");
}

#[test]
fn no_two_messages_are_alike() {
    let ring = ring(&[("a", '1')]);
    let seal = || ring.seal(LETTERS, b"", b"hello").unwrap();
    let (one, two) = (seal(), seal());
    let same = one.iter().zip(&two).skip(3).filter(|(one, two)| one == two);
    assert!(same.count() < one.len() / 4, "{one:?} {two:?}");
}

#[test]
fn a_ring_is_one_key_on_each_line() {
    let parse = |text: &str| KeyRing::parse(text).map(|ring| ring.sealing_id().to_owned());
    let (one, two) = (key('1'), key('f'));
    let text = format!(
        "# the fleet\n\n  2026-10   {one} \r\nold.1 {}\n",
        two.to_uppercase()
    );
    assert_eq!(parse(&text), Ok("2026-10".to_owned()));
    let longest = "a".repeat(KEY_ID_BYTES);
    assert!(parse(&format!("{longest} {one}")).is_ok());
    assert_eq!(parse("# nothing\n"), Err(KeyRingError::Empty));
    for (text, mistake) in [
        (format!("a {one} b"), KeyRingError::Words { line: 1 }),
        (format!("\n{one}"), KeyRingError::Words { line: 2 }),
        (format!("a{longest} {one}"), KeyRingError::Id { line: 1 }),
        (format!("A {one}"), KeyRingError::Id { line: 1 }),
        (format!("a {one}0"), KeyRingError::Key { line: 1 }),
        (
            format!("a {}", "g".repeat(64)),
            KeyRingError::Key { line: 1 },
        ),
        (
            format!("a {one}\na {two}"),
            KeyRingError::SameId { line: 2 },
        ),
        (
            format!("a {one}\nb {one}"),
            KeyRingError::SameKey { line: 2 },
        ),
    ] {
        assert_eq!(parse(&text), Err(mistake), "{text}");
    }
    let many =
        |count: u8| (0..count).map(|id| format!("k{id} {}\n", format!("{id:02x}").repeat(32)));
    let most = u8::try_from(KEYS).unwrap();
    assert!(parse(&many(most).collect::<String>()).is_ok());
    let over = many(most + 1).collect::<String>();
    assert_eq!(parse(&over), Err(KeyRingError::TooMany));
}

#[test]
fn a_ring_does_not_show_its_keys() {
    let shown = format!("{:?}", ring(&[("a", '7')]));
    assert!(shown.contains("\"a\"") && !shown.contains('7'), "{shown}");
}

#[test]
fn a_digest_depends_on_the_ring_the_purpose_and_every_part_and_on_no_order_of_keys() {
    let purpose = Purpose::new("digest");
    let old = ring(&[("2026-01", 'a')]);
    let digest = old.digest(purpose, &[b"caller", b"key"]);
    assert_eq!(digest, old.digest(purpose, &[b"caller", b"key"]));
    assert_ne!(digest, old.digest(purpose, &[b"calle", b"rkey"]));
    assert_ne!(
        digest,
        old.digest(Purpose::new("other"), &[b"caller", b"key"])
    );
    assert_ne!(
        digest,
        ring(&[("2026-01", 'b')]).digest(purpose, &[b"caller", b"key"])
    );
    // A rotation: the new key opens, then seals; the digest stays until the old one is removed.
    for keys in [
        [("2026-01", 'a'), ("2026-02", 'b')],
        [("2026-02", 'b'), ("2026-01", 'a')],
    ] {
        assert_eq!(digest, ring(&keys).digest(purpose, &[b"caller", b"key"]));
    }
    assert_ne!(
        digest,
        ring(&[("2026-02", 'b')]).digest(purpose, &[b"caller", b"key"])
    );
}
