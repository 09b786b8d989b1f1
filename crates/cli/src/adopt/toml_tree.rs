//! TOML as a tree of places; reading is the work of the crate `toml`.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::tree::{Kind, Member, Mistake, Node};

/// Reads a whole text.
pub(super) fn parse(text: &str) -> Result<Node, Mistake> {
    let root = DeTable::parse(text).map_err(|error| Mistake {
        at: error.span().map_or(0, |span| span.start),
        what: error.message().to_owned(),
    })?;
    let span = 0..text.len();
    Ok(Node {
        span,
        kind: table(root.get_ref()),
    })
}

fn table(table: &DeTable<'_>) -> Kind {
    let mut members: Vec<Member> = table
        .iter()
        .map(|(name, value)| Member {
            name: name.get_ref().to_string(),
            key: name.span(),
            value: node(value),
        })
        .collect();
    members.sort_by_key(|member| member.key.start);
    Kind::Table(members)
}

fn node(value: &Spanned<DeValue<'_>>) -> Node {
    let kind = match value.get_ref() {
        DeValue::String(text) => Kind::Text(text.to_string()),
        DeValue::Array(items) => Kind::List(items.iter().map(node).collect()),
        DeValue::Table(inner) => table(inner),
        _ => Kind::Other,
    };
    Node {
        span: value.span(),
        kind,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_where_they_stand() {
        let text = "\u{feff}[b.\"x y\"] # c\r\ncommand = 'npx'\r\n[a]\nd.args = [\"\"\"z\"\"\"]\n";
        let root = parse(text).unwrap();
        let names: Vec<&str> = root.members().iter().map(|m| m.name.as_str()).collect();
        assert_eq!(names, ["b", "a"], "in the order of the text");
        let command = root.get("b").unwrap().value.get("x y").unwrap();
        let command = command.value.get("command").unwrap();
        assert_eq!(text.get(command.value.span.clone()), Some("'npx'"));
        assert_eq!(command.value.as_text(), Some("npx"));
        let args = &root.get("a").unwrap().value.get("d").unwrap().value;
        assert_eq!(text.get(args.members()[0].key.clone()), Some("args"));
    }

    #[test]
    fn mistakes_have_their_place() {
        assert_eq!(parse("a = 1\nb = = 2\n").unwrap_err().at, 10);
        assert_eq!(parse("a = 1\na = 2\n").unwrap_err().at, 6);
        let deep = format!("a = {}", "[".repeat(100_000));
        assert!(parse(&deep).is_err());
    }
}
