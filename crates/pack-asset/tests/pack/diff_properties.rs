//! Properties of patches, over many pairs of documents that are made for trouble.

use mainstay_schema::{SchemaRegistry, Validator};
use mainstay_worker::testing::perform;
use mainstay_worker::testing::rpc::{Answer, Op};
use mainstay_worker::{Json, Pack, RenderMode};

use crate::applier::{Doc, apply};
use crate::fixture::World;

/// Pairs per test; four tests make 100,000.
const PAIRS: u64 = 25_000;

const NAMES: [&str; 14] = [
    "",
    "a",
    "b",
    "ab",
    "a/b",
    "a~b",
    "~",
    "~1",
    "/",
    "-",
    "0",
    "é",
    "\u{1}\"\\",
    "\u{10ffff}",
];

const NUMBERS: [&str; 12] = [
    "0",
    "-0",
    "1",
    "1.0",
    "1e0",
    "100",
    "1E2",
    "12345678901234567890123",
    "12345678901234567890124",
    "0.1",
    "0.10",
    "-5",
];

/// Numbers without end from one seed (xorshift).
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap() % sides
    }

    fn document(&mut self, depth: usize) -> Doc {
        let sides = if depth == 0 { 6 } else { 10 };
        match self.roll(sides) {
            0 => Doc::Null,
            1 => Doc::Bool(self.roll(2) == 0),
            2 | 3 => Doc::Number(NUMBERS[self.roll(NUMBERS.len())].to_owned()),
            4 | 5 => Doc::Text(NAMES[self.roll(NAMES.len())].to_owned()),
            6 => {
                let number = self.roll(3);
                Doc::List((0..number).map(|_| self.document(depth - 1)).collect())
            }
            _ => self.object(depth),
        }
    }

    fn object(&mut self, depth: usize) -> Doc {
        let number = 1 + self.roll(6);
        let member = |dice: &mut Self| {
            let name = NAMES[dice.roll(NAMES.len())].to_owned();
            (name, dice.document(depth - 1))
        };
        Doc::Object((0..number).map(|_| member(self)).collect())
    }

    /// A document that is a little different.
    fn changed(&mut self, document: &Doc, depth: usize) -> Doc {
        match document {
            Doc::Object(members) if depth > 0 => {
                let mut changed = members.clone();
                for (name, member) in members {
                    match self.roll(4) {
                        0 => drop(changed.remove(name)),
                        1 => drop(changed.insert(name.clone(), self.document(depth - 1))),
                        2 => drop(changed.insert(name.clone(), self.changed(member, depth - 1))),
                        _ => {}
                    }
                }
                for _ in 0..self.roll(3) {
                    let name = NAMES[self.roll(NAMES.len())].to_owned();
                    changed.insert(name, self.document(depth - 1));
                }
                Doc::Object(changed)
            }
            other if self.roll(3) > 0 => other.clone(),
            _ => self.document(depth),
        }
    }

    /// The document in one of its many spellings.
    fn spell(&mut self, document: &Doc) -> String {
        let space = |dice: &mut Self| ["", "", " ", "\t"][dice.roll(4)];
        match document {
            Doc::Null => "null".to_owned(),
            Doc::Bool(value) => value.to_string(),
            Doc::Number(text) => text.clone(),
            Doc::Text(text) => self.quote(text),
            Doc::List(elements) => {
                let texts: Vec<String> =
                    elements.iter().map(|element| self.spell(element)).collect();
                format!("[{}{}]", space(self), texts.join(","))
            }
            Doc::Object(members) => {
                let mut texts: Vec<String> = members
                    .iter()
                    .map(|(name, member)| {
                        let (name, member) = (self.quote(name), self.spell(member));
                        format!("{name}{}:{}{member}", space(self), space(self))
                    })
                    .collect();
                for last in (1..texts.len()).rev() {
                    let other = self.roll(last + 1);
                    texts.swap(last, other);
                }
                format!("{{{}{}}}", space(self), texts.join(", "))
            }
        }
    }

    fn quote(&mut self, text: &str) -> String {
        if self.roll(3) > 0 {
            return serde_json::to_string(text).unwrap();
        }
        let units = text.encode_utf16().map(|unit| format!("\\u{unit:04x}"));
        format!("\"{}\"", units.collect::<String>())
    }
}

struct Differ {
    pack: Pack,
    output: Validator,
}

impl Differ {
    fn new() -> Self {
        let pack = World::empty().pack();
        let catalog = pack.catalog();
        let spec = catalog
            .tools
            .iter()
            .find(|spec| spec.name == "diff_assets")
            .unwrap();
        let schema = spec.output_schema.as_ref().unwrap();
        let output = SchemaRegistry::new().compile(schema).unwrap();
        Self { pack, output }
    }

    fn patch(&self, base: &str, new: &str) -> Json {
        let op = Op::Tool {
            name: "diff_assets".to_owned(),
            arguments: Json::parse(&format!(r#"{{"base":{base},"new":{new}}}"#)).unwrap(),
            render: RenderMode::Json,
        };
        match perform(&self.pack, &op) {
            Answer::Tool(reply) => reply.json,
            other => panic!("{base} -> {new}: {other:?}"),
        }
    }
}

fn field<'a>(operation: &'a Doc, name: &str) -> Option<&'a Doc> {
    match operation {
        Doc::Object(members) => members.get(name),
        other => panic!("{other:?}"),
    }
}

/// Checks one pair and gives the number of operations between the two.
fn check_pair(differ: &Differ, dice: &mut Dice) -> usize {
    let base = match dice.roll(4) {
        0 => dice.document(3),
        _ => dice.object(3),
    };
    let new = match dice.roll(3) {
        0 => dice.object(3),
        _ => dice.changed(&base, 3),
    };
    let texts = (dice.spell(&base), dice.spell(&new));
    let json = differ.patch(&texts.0, &texts.1);
    let about = format!("{} -> {}: {json:?}", texts.0, texts.1);
    assert!(differ.output.is_valid(&json.to_value().unwrap()), "{about}");

    // However the documents are written, the answer is the same to the byte.
    let again = (dice.spell(&base), dice.spell(&new));
    assert_eq!(
        differ.patch(&again.0, &again.1),
        json,
        "{about} and {again:?}"
    );

    let Doc::Object(answer) = Doc::parse(json.as_str()) else {
        panic!("{about}");
    };
    let operations = answer["patch"].elements();
    assert_eq!(operations.is_empty(), base == new, "{about}");

    // Forwards, backwards, and from the middle: the order does not matter.
    let middle = operations.len() / 2;
    let (first, last) = operations.split_at(middle);
    assert_eq!(apply(&base, operations).as_ref(), Ok(&new), "{about}");
    assert_eq!(
        apply(&base, operations.iter().rev()).as_ref(),
        Ok(&new),
        "reversed: {about}"
    );
    assert_eq!(
        apply(&base, last.iter().chain(first)).as_ref(),
        Ok(&new),
        "turned: {about}"
    );

    let paths: Vec<&str> = operations
        .iter()
        .map(|operation| field(operation, "path").and_then(Doc::text).unwrap())
        .collect();
    assert!(
        paths
            .windows(2)
            .all(|pair| pair[0].as_bytes() < pair[1].as_bytes()),
        "{about}"
    );
    for one in &paths {
        for two in paths.iter().filter(|two| *two != one) {
            assert!(
                !two.starts_with(&format!("{one}/")),
                "{one} is above {two}: {about}"
            );
        }
    }
    for operation in operations {
        let op = field(operation, "op").and_then(Doc::text).unwrap();
        assert!(["add", "remove", "replace"].contains(&op), "{about}");
        assert_eq!(
            field(operation, "value").is_some(),
            op != "remove",
            "{about}"
        );
    }
    operations.len()
}

fn check_pairs(seed: u64) {
    let differ = Differ::new();
    let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let lengths = (0..PAIRS).map(|_| check_pair(&differ, &mut dice));
    // Pairs that are equal, or differ in one place, would show little about order.
    let telling = lengths.filter(|length| *length >= 3).count() as u64;
    assert!(
        telling > PAIRS / 5,
        "only {telling} pairs differ in several places"
    );
}

#[test]
fn patches_lead_from_one_document_to_the_other_in_any_order_1() {
    check_pairs(1);
}

#[test]
fn patches_lead_from_one_document_to_the_other_in_any_order_2() {
    check_pairs(2);
}

#[test]
fn patches_lead_from_one_document_to_the_other_in_any_order_3() {
    check_pairs(3);
}

#[test]
fn patches_lead_from_one_document_to_the_other_in_any_order_4() {
    check_pairs(4);
}
