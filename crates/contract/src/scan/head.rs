//! A tolerant look at the beginning of a line that was too long to be read.

use std::borrow::Cow;

use super::SeenId;
use super::lexer::{Lexer, Malformed};
use crate::meta::PROTOCOL_VERSION;

/// The members that are complete within the head of an oversize line.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct HeadFacts<'a> {
    /// The JSON text of the top-level `id`, if it may be a [`crate::id::RequestId`] and there are
    /// not two different ones.
    pub id: Option<&'a str>,
    /// The content of the top-level `method`.
    pub method: Option<Cow<'a, str>>,
    /// True if `params._meta` has the key [`PROTOCOL_VERSION`].
    pub has_modern_meta: bool,
}

/// Finds what the refusal of an oversize line needs in its first bytes.
///
/// The line may be cut anywhere, also within a character. Reading ends at the cut or at the first
/// mistake; what stands before that counts, as the line is refused for its length either way. A
/// number that touches the cut is not complete.
pub fn head_id(head: &[u8]) -> HeadFacts<'_> {
    let text = match std::str::from_utf8(head) {
        Ok(text) => text,
        Err(error) => head
            .get(..error.valid_up_to())
            .and_then(|valid| std::str::from_utf8(valid).ok())
            .unwrap_or_default(),
    };
    let mut facts = HeadFacts::default();
    let mut lexer = Lexer::new(text, usize::MAX);
    lexer.space();
    // An error here is the cut.
    let _ = read_message(&mut lexer, &mut facts);
    facts
}

fn read_message<'a>(lexer: &mut Lexer<'a>, facts: &mut HeadFacts<'a>) -> Result<(), Malformed> {
    let mut seen = SeenId::Never;
    let mut key = lexer.first_key()?;
    while let Some(name) = key {
        match name.name()?.as_ref() {
            "id" => {
                seen.see(whole_scalar(lexer)?);
                facts.id = seen.usable();
            }
            "method" => facts.method = super::unquote(whole_scalar(lexer)?),
            "params" if lexer.peek() == Some(b'{') => read_params(lexer, facts)?,
            _ => lexer.value()?,
        }
        key = lexer.next_key()?;
    }
    Ok(())
}

fn read_params(lexer: &mut Lexer<'_>, facts: &mut HeadFacts<'_>) -> Result<(), Malformed> {
    let mut key = lexer.first_key()?;
    while let Some(name) = key {
        if name.name()? == "_meta" && lexer.peek() == Some(b'{') {
            read_meta(lexer, facts)?;
        } else {
            lexer.value()?;
        }
        key = lexer.next_key()?;
    }
    Ok(())
}

fn read_meta(lexer: &mut Lexer<'_>, facts: &mut HeadFacts<'_>) -> Result<(), Malformed> {
    let mut key = lexer.first_key()?;
    while let Some(name) = key {
        facts.has_modern_meta |= name.name()? == PROTOCOL_VERSION;
        lexer.value()?;
        key = lexer.next_key()?;
    }
    Ok(())
}

/// Passes a value that certainly ends within the head.
fn whole_scalar<'a>(lexer: &mut Lexer<'a>) -> Result<&'a str, Malformed> {
    let start = lexer.position();
    lexer.value()?;
    let raw = lexer.since(start);
    let complete = match lexer.peek() {
        Some(b',' | b'}' | b' ' | b'\t' | b'\r') => true,
        Some(_) => false,
        None => raw.ends_with('"'),
    };
    if complete { Ok(raw) } else { Err(Malformed) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_read_from_the_beginning_of_a_request() {
        let head = r#"{"jsonrpc":"2.0","id":"\u0061","method":"tools\/call","params":{"_meta":
            {"x":1,"io.modelcontextprotocol/protocolVersion":"2026-07-28"},"arguments":{"blob":"aaaa"#
            .replace('\n', " ");
        let facts = head_id(head.as_bytes());
        assert_eq!(facts.id, Some(r#""\u0061""#));
        assert_eq!(facts.method.as_deref(), Some("tools/call"));
        assert!(facts.has_modern_meta);
    }

    #[test]
    fn modern_key_elsewhere_does_not_count() {
        let key = PROTOCOL_VERSION;
        for head in [
            format!(r#"{{"_meta":{{"{key}":1}}}}"#),
            format!(r#"{{"params":{{"{key}":1,"arguments":{{"_meta":{{"{key}":1}}}}}}}}"#),
            format!(r#"{{"params":[{{"_meta":{{"{key}":1}}}}]}}"#),
            format!(r#"{{"params":{{"_meta":"{key}"}}}}"#),
            format!(r#"{{"params":{{"_meta":{{"{key}"#),
        ] {
            assert!(!head_id(head.as_bytes()).has_modern_meta, "{head}");
        }
    }

    #[test]
    fn id_cut_off_is_no_id() {
        for head in [
            r#"{"id":12"#,
            r#"{"id":"12"#,
            r#"{"id":"\u00"#,
            r#"{"id""#,
            r#"{"id":12x,"#,
        ] {
            assert_eq!(head_id(head.as_bytes()).id, None, "{head}");
        }
        for (head, id) in [
            (r#"{"id":12,"#, "12"),
            (r#"{"id":12 "#, "12"),
            (r#"{"id":12}"#, "12"),
            (r#"{"id":"12""#, "\"12\""),
        ] {
            assert_eq!(head_id(head.as_bytes()).id, Some(id), "{head}");
        }
    }

    #[test]
    fn nested_null_and_contradictory_ids_do_not_count() {
        for head in [
            r#"{"params":{"id":1},"#,
            r#"[{"id":1},"#,
            r#"{"id":null,"#,
            r#"{"id":{"id":1},"#,
            r#"{"id":1,"id":2,"id":1,"#,
            r#"{"id":null,"id":1,"#,
        ] {
            assert_eq!(head_id(head.as_bytes()).id, None, "{head}");
        }
        assert_eq!(head_id(br#"{"id":1,"id":1,"#).id, Some("1"));
    }

    #[test]
    fn head_cut_within_a_character_still_has_its_facts() {
        let line = r#"{"id":7,"method":"é","x":"é"#;
        let facts = head_id(&line.as_bytes()[..line.len() - 1]);
        assert_eq!(facts.id, Some("7"));
        assert_eq!(facts.method.as_deref(), Some("é"));
    }
}
