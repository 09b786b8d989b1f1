//! A sample of our own in the manner of the official suite, which is not always there:
//! each case is a schema, values it accepts, and values it refuses with the place and
//! the sentence.

use mainstay_schema::{Limits, SchemaDocument, SchemaRegistry};
use serde_json::Value;

use crate::data;

#[test]
fn every_case_is_decided_and_explained_as_written() {
    let mut cases = 0;
    let mut differences = Vec::new();
    for (file, content) in data::files(&data::own("cases")) {
        for case in content["cases"].as_array().unwrap() {
            let claim = format!("{file}: {}", case["claim"]);
            let found = differing(case, &content["dialect"]);
            differences.extend(found.into_iter().map(|found| format!("{claim}: {found}")));
            cases += 1;
        }
    }
    assert_eq!(differences, Vec::<String>::new());
    assert!(cases >= 60, "{cases} cases");
}

/// A claim of a case that is false.
fn differing(case: &Value, dialect: &Value) -> Vec<String> {
    let documents = case.get("documents").and_then(Value::as_object);
    let documents = documents
        .into_iter()
        .flatten()
        .map(|(uri, schema)| SchemaDocument {
            uri: uri.clone(),
            schema: schema.clone(),
        })
        .collect();
    let registry = SchemaRegistry::with_documents(Limits::default(), documents).unwrap();
    let mut schema = case["schema"].clone();
    if let Value::Object(schema) = &mut schema {
        schema.insert("$schema".to_owned(), dialect.clone());
    }
    let validator = match registry.compile(&schema) {
        Ok(validator) => validator,
        Err(error) => return vec![error.to_string()],
    };
    let mut differences = Vec::new();
    let mut compare = |value: &Value, expected: &[(&str, &str)]| {
        let violations = validator.check(value);
        let found: Vec<_> = violations
            .iter()
            .map(|violation| (violation.path.as_str(), violation.message.as_str()))
            .collect();
        if found != expected || validator.is_valid(value) != expected.is_empty() {
            differences.push(format!("{value} gives {found:?}, not {expected:?}"));
        }
    };
    for value in case["accepts"].as_array().unwrap() {
        compare(value, &[]);
    }
    for refused in case["refuses"].as_array().unwrap() {
        let (path, message) = (refused[1].as_str().unwrap(), refused[2].as_str().unwrap());
        compare(&refused[0], &[(path, message)]);
    }
    differences
}
