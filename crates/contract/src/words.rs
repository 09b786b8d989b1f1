//! Enums of which each variant has one word, the same in payloads, configuration and logs.

/// Defines such an enum, with the words for serde, `ALL`, `as_str`, `parse` and `Display`.
#[macro_export]
macro_rules! words {
    ($(#[$meta:meta])* $vis:vis enum $name:ident {
        $($(#[$note:meta])* $variant:ident = $word:literal,)*
    }) => {
        $(#[$meta])*
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash,
            serde::Serialize, serde::Deserialize,
        )]
        $vis enum $name { $($(#[$note])* #[serde(rename = $word)] $variant,)* }

        #[allow(dead_code, reason = "every enum gets the same functions")]
        impl $name {
            /// All of them, in order.
            $vis const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Its word.
            $vis const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }

            /// The one with this word.
            $vis fn parse(word: &str) -> Option<Self> {
                match word {
                    $($word => Some(Self::$variant),)*
                    _ => None,
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}
