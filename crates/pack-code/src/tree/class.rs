//! What a path says about a file: production code, a test or a mock, generated, vendored, documentation.
//!
//! The class is the first key of the order of hits, so it depends on the path alone: it is the
//! same for every process and every generation.

/// Classes in the order in which their files are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Class {
    Code = 0,
    Example = 1,
    Docs = 2,
    Test = 3,
    Vendored = 4,
    Generated = 5,
}

impl Class {
    pub(crate) const fn number(self) -> u8 {
        self as u8
    }

    pub(crate) const fn from_number(number: u8) -> Self {
        match number {
            0 => Self::Code,
            1 => Self::Example,
            2 => Self::Docs,
            3 => Self::Test,
            4 => Self::Vendored,
            _ => Self::Generated,
        }
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Code => "code",
            Self::Example => "example",
            Self::Docs => "docs",
            Self::Test => "test",
            Self::Vendored => "vendored",
            Self::Generated => "generated",
        }
    }
}

/// The class of a path relative to its root.
pub(crate) fn classify(path: &str) -> Class {
    let (folders, name) = path.rsplit_once('/').unwrap_or(("", path));
    let lower = name.to_ascii_lowercase();
    if is_generated(&lower) {
        return Class::Generated;
    }
    let mut found = Class::Code;
    for folder in folders.split('/').filter(|folder| !folder.is_empty()) {
        let class = match folder.to_ascii_lowercase().as_str() {
            "vendor" | "vendored" | "third_party" | "third-party" | "thirdparty"
            | "node_modules" | "external" | "bower_components" => Class::Vendored,
            "test" | "tests" | "testing" | "__tests__" | "spec" | "specs" | "testdata"
            | "fixtures" | "fixture" | "e2e" | "mock" | "mocks" | "__mocks__" | "fakes"
            | "selftests" | "kunit" => Class::Test,
            "generated" | "__generated__" | "gen" => Class::Generated,
            "docs" | "doc" | "documentation" | "website" | "changelog" | "changelogs"
            | "locale" | "locales" | "i18n" => Class::Docs,
            "examples" | "example" | "samples" | "sample" | "demo" | "demos" | "benches"
            | "bench" | "benchmark" | "benchmarks" | "fuzz" => Class::Example,
            other
                if [".tests", "_tests", "_mocks"]
                    .iter()
                    .any(|end| other.ends_with(end)) =>
            {
                Class::Test
            }
            _ => continue,
        };
        found = found.max(class);
    }
    if found < Class::Test && is_test(&lower, name) {
        return Class::Test;
    }
    if found == Class::Code && is_docs(&lower) {
        return Class::Docs;
    }
    found
}

fn is_generated(lower: &str) -> bool {
    matches!(
        lower,
        "cargo.lock"
            | "package-lock.json"
            | "yarn.lock"
            | "pnpm-lock.yaml"
            | "poetry.lock"
            | "uv.lock"
            | "go.sum"
            | "composer.lock"
            | "gemfile.lock"
    ) || [
        ".min.js",
        ".min.css",
        ".pb.go",
        ".pb.cc",
        ".pb.h",
        "_pb2.py",
        ".g.cs",
        ".designer.cs",
        ".generated.ts",
        ".generated.cs",
        ".map",
        ".svg",
        ".snap",
    ]
    .iter()
    .any(|end| lower.ends_with(end))
}

fn is_test(lower: &str, name: &str) -> bool {
    let stem = lower.split('.').next().unwrap_or(lower);
    let parts: Vec<&str> = lower.split('.').collect();
    let begins = ["test_", "mock_", "fake_"];
    let ends = ["_test", "_tests", "_spec", "_mock", "_mocks", "_fake"];
    begins.iter().any(|begin| stem.starts_with(begin))
        || ends.iter().any(|end| stem.ends_with(end))
        || matches!(stem, "test" | "tests" | "conftest" | "mock" | "mocks")
        || lower.ends_with(".bats")
        || parts
            .iter()
            .skip(1)
            .any(|part| matches!(*part, "test" | "spec" | "tests" | "mock"))
        || ends_in_capital_test(name)
}

/// `FooTest.java`, `FooTests.cs`, `TestFoo.java`, `FooSpec.scala`, `MockFoo.java`.
fn ends_in_capital_test(name: &str) -> bool {
    let stem = name.split('.').next().unwrap_or(name);
    let ends = ["Test", "Tests", "Spec", "TestCase", "Mock", "Mocks"]
        .iter()
        .any(|end| stem.len() > end.len() && stem.ends_with(end));
    let begins = ["Test", "Mock", "Fake"].iter().any(|begin| {
        let rest = stem.strip_prefix(begin);
        rest.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_uppercase()))
    });
    ends || begins
}

fn is_docs(lower: &str) -> bool {
    [".md", ".rst", ".txt", ".adoc", ".po"]
        .iter()
        .any(|end| lower.ends_with(end))
        || matches!(
            lower,
            "license" | "changelog" | "readme" | "authors" | "copying" | "maintainers"
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_decides_the_class() {
        for (path, class) in [
            ("src/main.rs", Class::Code),
            ("lib/plug/test.ex", Class::Test),
            ("tests/a.rs", Class::Test),
            ("src/foo.spec.ts", Class::Test),
            ("src/FooTest.java", Class::Test),
            ("src/Latest.java", Class::Code),
            ("src/mock_store.go", Class::Test),
            ("src/store_mock.go", Class::Test),
            ("src/MockStore.java", Class::Test),
            ("src/StoreMock.java", Class::Test),
            ("src/store.mock.ts", Class::Test),
            ("src/store_mocks/a.go", Class::Test),
            ("src/mock/store.go", Class::Test),
            ("src/Mockito.java", Class::Code),
            ("src/smock.rs", Class::Code),
            ("README.md", Class::Docs),
            ("vendor/x/y.go", Class::Vendored),
            ("api/x.pb.go", Class::Generated),
            ("examples/hello.rs", Class::Example),
        ] {
            assert_eq!(classify(path), class, "{path}");
        }
    }
}
