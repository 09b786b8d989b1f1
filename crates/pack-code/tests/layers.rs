//! The layers of an index: every word of the ranked one is found, and the symbols are those of the
//! text.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests fail by panicking"
)]

mod support;

use serde_json::json;

use support::{Place, paths, search};

#[test]
fn short_words_are_found_in_the_files_that_have_them_and_in_no_others() {
    let place = Place::with(&[
        ("a.py", "go = 1  # see the manual\n"),
        (
            "b.py",
            "import re\n\ndef foo():\n    return re.compile(\"x\")\n",
        ),
    ]);
    let pack = place.built();
    for (word, expected) in [
        ("foo", "b.py"),
        ("re", "b.py"),
        ("go", "a.py"),
        ("see", "a.py"),
    ] {
        let answer = search(&pack, &json!({"query": word, "kind": "ranked"}));
        assert_eq!(paths(&answer), [expected], "{word}: {answer}");
    }
}
