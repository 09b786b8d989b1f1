//! A document as a tree at once, for schema checks of what is sound.
//!
//! [`Exact`](crate::exact::Exact) keeps the text of everything and says what is wrong and where; a
//! check needs neither while nothing is wrong. So [`read`] goes straight to the tree and gives up
//! on whatever `Exact` would refuse, for it to be read again and explained.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use crate::exact::MAX_DEPTH;

/// The tree, if the document has no member twice, no number out of range and is not too deep.
pub(crate) fn read(text: &str) -> Option<Value> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let value = Node { levels: MAX_DEPTH }.deserialize(&mut reader).ok()?;
    reader.end().ok()?;
    Some(value)
}

/// A value in which so many containers may stand within each other.
#[derive(Clone, Copy)]
struct Node {
    levels: usize,
}

impl Node {
    fn inner<E: Error>(self) -> Result<Self, E> {
        let levels = self.levels.checked_sub(1);
        let levels = levels.ok_or_else(|| E::custom("nested too deep"))?;
        Ok(Self { levels })
    }
}

impl<'de> DeserializeSeed<'de> for Node {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a document")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let inner = self.inner()?;
        let mut read = Map::new();
        while let Some(name) = members.next_key::<String>()? {
            if read.insert(name, members.next_value_seed(inner)?).is_some() {
                return Err(A::Error::custom("a member is given twice"));
            }
        }
        Ok(Value::Object(read))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let inner = self.inner()?;
        let mut read = Vec::new();
        while let Some(item) = items.next_element_seed(inner)? {
            read.push(item);
        }
        Ok(Value::Array(read))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exact::Exact;

    #[test]
    fn it_reads_what_the_exact_reader_reads_and_gives_up_on_the_rest() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        let texts = [
            r#"{"b":[1,-2.5,true,null,"\u0041",18446744073709551615,-0],"a":{}}"#,
            " [ 1e2 , 12345678901234567890123 ] ",
            "7",
            "\"x\"",
            r#"{"a":1,"\u0061":2}"#,
            r#"[{"a":{"b":1,"b":1}}]"#,
            r#"{"a":[1e400]}"#,
            "{} x",
            "",
            "[1,]",
        ];
        let mut texts: Vec<String> = texts.map(str::to_owned).into();
        texts.extend([nested(MAX_DEPTH), nested(MAX_DEPTH + 1), nested(100_000)]);
        for text in texts {
            let exact = Exact::parse(&text).and_then(|document| document.to_value());
            let shown: String = text.chars().take(60).collect();
            assert_eq!(read(&text), exact.ok(), "{shown}");
        }
    }
}
