//! Languages, by the name of a file.

/// A language; the number is part of the index format, so new ones go to the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Lang(u8);

const NAMES: &[(&str, &[&str])] = &[
    ("text", &[]),
    ("rust", &["rs"]),
    ("python", &["py", "pyi", "pyx"]),
    ("javascript", &["js", "jsx", "mjs", "cjs"]),
    ("typescript", &["ts", "tsx", "mts", "cts"]),
    ("go", &["go"]),
    ("java", &["java"]),
    ("c", &["c", "h"]),
    (
        "cpp",
        &["cc", "cpp", "cxx", "hpp", "hh", "hxx", "ipp", "inl"],
    ),
    ("csharp", &["cs"]),
    ("ruby", &["rb", "rake", "gemspec"]),
    ("php", &["php"]),
    ("bash", &["sh", "bash", "bats", "zsh", "ksh"]),
    ("swift", &["swift"]),
    ("kotlin", &["kt", "kts"]),
    ("scala", &["scala", "sc"]),
    ("elixir", &["ex", "exs"]),
    ("haskell", &["hs", "lhs"]),
    ("lua", &["lua"]),
    ("perl", &["pl", "pm"]),
    ("zig", &["zig"]),
    ("markdown", &["md", "markdown"]),
    ("json", &["json"]),
    ("yaml", &["yaml", "yml"]),
    ("toml", &["toml"]),
    ("html", &["html", "htm"]),
    ("css", &["css", "scss", "less"]),
    ("xml", &["xml", "xsd"]),
    ("sql", &["sql"]),
    ("make", &["mk", "make"]),
    ("cmake", &["cmake"]),
    ("assembly", &["s", "asm"]),
    ("dart", &["dart"]),
    ("ocaml", &["ml", "mli"]),
    ("erlang", &["erl", "hrl"]),
    ("clojure", &["clj", "cljs", "cljc"]),
    ("r", &["r"]),
    ("julia", &["jl"]),
    ("proto", &["proto"]),
    ("devicetree", &["dts", "dtsi"]),
    ("rst", &["rst"]),
    ("objc", &["m", "mm"]),
    ("fsharp", &["fs", "fsi", "fsx"]),
    ("vim", &["vim"]),
    ("docker", &["dockerfile"]),
];

/// Other words by which people call a language.
const ALIASES: &[(&str, &str)] = &[
    ("rs", "rust"),
    ("py", "python"),
    ("js", "javascript"),
    ("ts", "typescript"),
    ("golang", "go"),
    ("c++", "cpp"),
    ("cxx", "cpp"),
    ("c#", "csharp"),
    ("cs", "csharp"),
    ("c_sharp", "csharp"),
    ("rb", "ruby"),
    ("shell", "bash"),
    ("sh", "bash"),
    ("md", "markdown"),
    ("yml", "yaml"),
    ("makefile", "make"),
    ("dockerfile", "docker"),
    ("jsx", "javascript"),
    ("tsx", "typescript"),
];

impl Lang {
    pub(crate) const TEXT: Self = Self(0);
    pub(crate) const RUST: Self = Self(1);
    pub(crate) const PYTHON: Self = Self(2);
    pub(crate) const JAVASCRIPT: Self = Self(3);
    pub(crate) const TYPESCRIPT: Self = Self(4);
    pub(crate) const GO: Self = Self(5);
    pub(crate) const C: Self = Self(7);
    pub(crate) const CPP: Self = Self(8);
    pub(crate) const RUBY: Self = Self(10);
    pub(crate) const PHP: Self = Self(11);
    pub(crate) const BASH: Self = Self(12);

    pub(crate) fn of_path(path: &str) -> Self {
        let name = path.rsplit('/').next().unwrap_or(path);
        if matches!(name, "Makefile" | "Kbuild" | "GNUmakefile") {
            return Self::named("make").unwrap_or(Self::TEXT);
        }
        if matches!(name, "Dockerfile") {
            return Self::named("docker").unwrap_or(Self::TEXT);
        }
        let Some((_, ending)) = name.rsplit_once('.') else {
            return Self::TEXT;
        };
        let ending = ending.to_ascii_lowercase();
        let found = NAMES
            .iter()
            .position(|(_, endings)| endings.contains(&ending.as_str()));
        found
            .and_then(|at| u8::try_from(at).ok())
            .map_or(Self::TEXT, Self)
    }

    /// A language by a name or an alias, whatever its case.
    pub(crate) fn named(name: &str) -> Option<Self> {
        let name = name.to_ascii_lowercase();
        let name = ALIASES
            .iter()
            .find(|(alias, _)| *alias == name)
            .map_or(name.as_str(), |(_, n)| n);
        let at = NAMES.iter().position(|(known, _)| *known == name)?;
        u8::try_from(at).ok().map(Self)
    }

    pub(crate) const fn from_number(number: u8) -> Self {
        Self(number)
    }

    pub(crate) const fn number(self) -> u8 {
        self.0
    }

    pub(crate) fn name(self) -> &'static str {
        NAMES
            .get(usize::from(self.0))
            .map_or("text", |(name, _)| name)
    }

    /// Whether it is a programming language, not prose or data.
    pub(crate) fn is_code(self) -> bool {
        !matches!(
            self.name(),
            "text" | "markdown" | "json" | "yaml" | "toml" | "html" | "css" | "xml" | "rst"
        )
    }

    /// All names, for the message about an unknown one.
    pub(crate) fn names() -> impl Iterator<Item = &'static str> {
        NAMES.iter().map(|(name, _)| *name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endings_names_and_aliases_agree() {
        assert_eq!(Lang::of_path("a/b.RS"), Lang::RUST);
        assert_eq!(Lang::of_path("Makefile").name(), "make");
        assert_eq!(Lang::of_path("none"), Lang::TEXT);
        assert_eq!(Lang::named("C++"), Some(Lang::CPP));
        assert_eq!(Lang::named("klingon"), None);
        for (constant, name) in [(Lang::BASH, "bash"), (Lang::PHP, "php")] {
            assert_eq!(constant.name(), name);
        }
    }
}
