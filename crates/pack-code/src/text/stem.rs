//! Light stemming of English words as they stand in code: `routes`, `routing`, `routed` and
//! `router` all become `rout`.
//!
//! It only has to be the same for index and query, not pretty.

/// Shortest stem that a suffix may leave.
const SHORTEST: usize = 3;

/// Cuts the endings of a lower-case word.
pub(crate) fn stem(word: &mut Vec<u8>) {
    if word.len() <= SHORTEST || !word.iter().all(u8::is_ascii_lowercase) {
        return;
    }
    plural(word);
    participle(word);
    noun(word);
    if word.len() > SHORTEST && word.ends_with(b"e") {
        word.pop();
    }
}

fn plural(word: &mut Vec<u8>) {
    if word.ends_with(b"ies") && word.len() > 4 {
        cut(word, 3);
        word.push(b'y');
    } else if word.ends_with(b"sses")
        || word.ends_with(b"shes")
        || word.ends_with(b"ches")
        || word.ends_with(b"xes")
    {
        cut(word, 2);
    } else if word.ends_with(b"s")
        && !word.ends_with(b"ss")
        && !word.ends_with(b"us")
        && !word.ends_with(b"is")
    {
        cut(word, 1);
    }
}

fn participle(word: &mut Vec<u8>) {
    let ending = if word.ends_with(b"ing") {
        3
    } else if word.ends_with(b"ed") && !word.ends_with(b"eed") {
        2
    } else {
        return;
    };
    let left = word.len() - ending;
    if left < SHORTEST || !has_vowel(word.get(..left).unwrap_or_default()) {
        return;
    }
    cut(word, ending);
    // `mapping` is `map`, but `calling` is `call`.
    if let [.., a, b] = word.as_slice()
        && a == b
        && !matches!(b, b'l' | b's' | b'z' | b'a' | b'e' | b'i' | b'o' | b'u')
    {
        word.pop();
    }
}

fn noun(word: &mut Vec<u8>) {
    for (ending, keep) in [
        (&b"ization"[..], 2),
        (b"ation", 2),
        (b"ator", 2),
        (b"ction", 2),
        (b"ctor", 2),
        (b"ssion", 2),
        (b"ment", 0),
    ] {
        if word.ends_with(ending) && word.len() - ending.len() + keep >= SHORTEST {
            cut(word, ending.len() - keep);
            return;
        }
    }
    if word.len() > 5 && word.ends_with(b"er") {
        cut(word, 2);
        if let [.., a, b] = word.as_slice()
            && a == b
            && matches!(b, b'p' | b't' | b'g' | b'n' | b'm' | b'b' | b'd')
        {
            word.pop();
        }
    }
}

fn has_vowel(word: &[u8]) -> bool {
    word.iter()
        .any(|byte| matches!(byte, b'a' | b'e' | b'i' | b'o' | b'u' | b'y'))
}

fn cut(word: &mut Vec<u8>, bytes: usize) {
    word.truncate(word.len().saturating_sub(bytes));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stemmed(word: &str) -> String {
        let mut bytes = word.as_bytes().to_vec();
        stem(&mut bytes);
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn forms_of_one_word_meet() {
        for family in [
            &["route", "routes", "router", "routers", "routing", "routed"][..],
            &[
                "validate",
                "validates",
                "validation",
                "validator",
                "validated",
            ],
            &[
                "connect",
                "connection",
                "connections",
                "connector",
                "connected",
            ],
            &["cache", "caches", "cached", "caching"],
            &["serialize", "serializer", "serialization", "serializing"],
            &["query", "queries"],
            &["map", "maps", "mapping", "mapped"],
        ] {
            let stems: Vec<String> = family.iter().map(|word| stemmed(word)).collect();
            assert!(
                stems.windows(2).all(|pair| pair[0] == pair[1]),
                "{family:?} -> {stems:?}"
            );
        }
    }

    #[test]
    fn short_and_odd_words_stay() {
        for word in ["is", "class", "status", "id", "string", "utf8", "the"] {
            assert!(!stemmed(word).is_empty());
        }
        assert_eq!(stemmed("class"), "class");
        assert_eq!(stemmed("status"), "status");
        assert_eq!(stemmed("string"), "string");
    }
}
