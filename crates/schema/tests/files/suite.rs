//! The official JSON Schema suite, mandatory tests, through our registry.

use std::path::Path;

use mainstay_schema::{Limits, SchemaDocument, SchemaRegistry};
use serde_json::Value;

use crate::data;

/// Where the suite says that its remote documents are.
const SERVER: &str = "http://localhost:1234/";

/// A draft of the suite.
struct Draft {
    folder: &'static str,
    /// The suite leaves it out where it is the draft's own.
    dialect: &'static str,
}

impl Draft {
    fn named(&self, schema: &Value) -> Value {
        let mut schema = schema.clone();
        if let Value::Object(members) = &mut schema {
            let dialect = self.dialect.into();
            members.entry("$schema").or_insert(dialect);
        }
        schema
    }

    /// The documents that this draft's tests refer to: those for all drafts and its own.
    fn remotes(&self, suite: &Path) -> Vec<SchemaDocument> {
        let mut documents = data::documents(&suite.join("remotes"), SERVER);
        documents.retain(|document| {
            let path = document.uri.strip_prefix(SERVER).unwrap();
            let folder = path.split_once('/').map_or("", |(folder, _)| folder);
            folder == self.folder || !(folder.starts_with("draft") || folder == "v1")
        });
        for document in &mut documents {
            document.schema = self.named(&document.schema);
        }
        documents
    }

    /// Runs every test; gives the number of those that passed and names the others.
    fn run(&self, suite: &Path) -> (usize, Vec<String>) {
        let registry =
            SchemaRegistry::with_documents(Limits::default(), self.remotes(suite)).unwrap();
        let mut passed = 0;
        let mut failed = Vec::new();
        for (file, groups) in data::files(&suite.join("tests").join(self.folder)) {
            if file.contains('/') {
                continue;
            }
            for group in groups.as_array().unwrap() {
                let compiled = registry.compile(&self.named(&group["schema"]));
                for test in group["tests"].as_array().unwrap() {
                    let expected = test["valid"].as_bool().unwrap();
                    let agrees = compiled.as_ref().is_ok_and(|validator| {
                        validator.is_valid(&test["data"]) == expected
                            && validator.check(&test["data"]).is_empty() == expected
                    });
                    if agrees {
                        passed += 1;
                    } else {
                        let (group, test) = (&group["description"], &test["description"]);
                        failed.push(format!("{file}: {group}: {test}: {compiled:?}"));
                    }
                }
            }
        }
        (passed, failed)
    }
}

#[test]
fn every_mandatory_test_of_draft_2020_12_passes() {
    let Some(suite) = data::public("json-schema-test-suite") else {
        return;
    };
    let draft = Draft {
        folder: "draft2020-12",
        dialect: "https://json-schema.org/draft/2020-12/schema",
    };
    assert_eq!(draft.run(&suite), (1299, Vec::new()));
}

#[test]
fn every_mandatory_test_of_draft_7_passes() {
    let Some(suite) = data::public("json-schema-test-suite") else {
        return;
    };
    let draft = Draft {
        folder: "draft7",
        dialect: "http://json-schema.org/draft-07/schema#",
    };
    assert_eq!(draft.run(&suite), (927, Vec::new()));
}
