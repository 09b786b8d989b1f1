//! stub
use serde::{Deserialize, Serialize};
macro_rules! number {
    ($name:ident) => {
        /// Id.
        #[derive(
            Clone,
            Copy,
            Debug,
            Default,
            PartialEq,
            Eq,
            PartialOrd,
            Ord,
            Hash,
            Serialize,
            Deserialize,
        )]
        #[serde(transparent)]
        pub struct $name(u64);
        impl $name {
            /// New.
            pub const fn new(value: u64) -> Self {
                Self(value)
            }
            /// Value.
            pub const fn get(self) -> u64 {
                self.0
            }
        }
        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}
number!(CallId);
number!(SessionId);
number!(Generation);
