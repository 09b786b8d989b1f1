//! The rules, as data: every kind of change and what it demands.
//!
//! Whatever is not positively known to be harmless demands a higher version. The table of
//! `docs/contracts.md` is [`markdown`].

use std::fmt;
use std::fmt::Write as _;

use serde::{Serialize, Serializer};

/// The duty of the author of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Demand {
    /// Nothing but writing the lock anew.
    Nothing,
    /// A recorded reason: there is no version left to raise.
    Reason,
    /// A higher `schemaVersion`, or a recorded reason why it need not be.
    BumpOrReason,
    /// A higher `schemaVersion`.
    Bump,
    /// A look: a foreign tool, a prompt, a resource and instructions have no version. Writing the lock
    /// accepts the change.
    Review,
}

impl Demand {
    /// The word for machines.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Reason => "reason",
            Self::BumpOrReason => "bump_or_reason",
            Self::Bump => "bump",
            Self::Review => "review",
        }
    }

    /// The words for people.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Reason => "a reason",
            Self::BumpOrReason => "a bump or a reason",
            Self::Bump => "a bump",
            Self::Review => "a look",
        }
    }
}

impl Serialize for Demand {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

macro_rules! rules {
    ($($kind:ident $code:literal => $demand:ident, $title:literal;)*) => {
        /// A kind of change. The order is that of the table.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Kind { $(#[doc = $title] $kind,)* }

        impl Kind {
            /// Every kind.
            pub const ALL: &'static [Self] = &[$(Self::$kind,)*];

            /// The word for machines.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$kind => $code,)* }
            }

            /// The change, in a few words.
            pub const fn title(self) -> &'static str {
                match self { $(Self::$kind => $title,)* }
            }

            /// Its demand on a tool with a version.
            pub const fn demand(self) -> Demand {
                match self { $(Self::$kind => Demand::$demand,)* }
            }
        }
    };
}

rules! {
    ToolAdded "tool_added" => Nothing, "tool added";
    ToolReturned "tool_returned" => Bump, "removed tool is back; its version goes on where it ended";
    ToolRenamed "tool_renamed" => Bump, "tool renamed, the old name kept as an alias";
    ToolRemoved "tool_removed" => Reason, "tool removed";
    ToolDescriptionChanged "tool_description_changed" => Nothing, "description of the tool changed";
    SchemaVersionRaised "schema_version_raised" => Nothing, "schemaVersion raised";
    SchemaVersionDecreased "schema_version_decreased" => Bump, "schemaVersion went back";
    AliasAdded "alias_added" => Nothing, "deprecated name of the tool added";
    AliasRemoved "alias_removed" => Bump, "deprecated name of the tool removed";
    ArgumentAliasAdded "argument_alias_added" => Nothing, "other spelling of an argument added";
    ArgumentAliasRemoved "argument_alias_removed" => Bump, "other spelling of an argument removed";
    ArgumentAliasChanged "argument_alias_changed" => Bump, "other spelling of an argument means something else";
    ErrorCodeAdded "error_code_added" => Bump, "error code added";
    ErrorCodeRemoved "error_code_removed" => Bump, "error code removed";
    ReplayChanged "replay_changed" => Bump, "replay class changed";
    TimeoutChanged "timeout_changed" => Bump, "timeout changed";
    AnnotationChanged "annotation_changed" => Bump, "hint about the effect changed";
    RenderChanged "render_changed" => Bump, "text forms of the answer changed";
    RequiredArgumentAdded "required_argument_added" => Bump, "required argument added";
    OptionalArgumentAdded "optional_argument_added" => Nothing, "optional argument added";
    ArgumentRemoved "argument_removed" => Bump, "argument removed";
    ArgumentBecameRequired "argument_became_required" => Bump, "optional argument is required now";
    ArgumentBecameOptional "argument_became_optional" => Bump, "required argument is optional now";
    ArgumentTypeChanged "argument_type_changed" => Bump, "type of an argument changed";
    ArgumentValueAdded "argument_value_added" => Bump, "permitted value of an argument added";
    ArgumentValueRemoved "argument_value_removed" => Bump, "permitted value of an argument removed";
    ArgumentTightened "argument_tightened" => Bump, "argument permits less than before";
    ArgumentLoosened "argument_loosened" => Bump, "argument permits more than before";
    ArgumentConstraintChanged "argument_constraint_changed" => Bump, "constraint of an argument changed";
    ArgumentDefaultChanged "argument_default_changed" => Bump, "default of an argument changed";
    ArgumentDescriptionChanged "argument_description_changed" => BumpOrReason, "description of an argument changed";
    OutputSchemaAdded "output_schema_added" => Bump, "schema of the result added";
    OutputSchemaRemoved "output_schema_removed" => Bump, "schema of the result removed";
    RequiredResultFieldAdded "required_result_field_added" => Bump, "required field of the result added";
    RequiredResultFieldRemoved "required_result_field_removed" => Bump, "required field of the result removed";
    OptionalResultFieldAdded "optional_result_field_added" => Nothing, "optional field of the result added";
    OptionalResultFieldRemoved "optional_result_field_removed" => Bump, "optional field of the result removed";
    ResultFieldBecameRequired "result_field_became_required" => Bump, "optional field of the result is required now";
    ResultFieldBecameOptional "result_field_became_optional" => Bump, "required field of the result is optional now";
    ResultTypeChanged "result_type_changed" => Bump, "type within the result changed";
    ResultValueAdded "result_value_added" => Bump, "possible value within the result added";
    ResultValueRemoved "result_value_removed" => Bump, "possible value within the result removed";
    ResultConstraintChanged "result_constraint_changed" => Bump, "constraint within the result changed";
    ResultDefaultChanged "result_default_changed" => Bump, "default within the result changed";
    ResultDescriptionChanged "result_description_changed" => Nothing, "description within the result changed";
    DefinitionAdded "definition_added" => Nothing, "definition added to $defs";
    FormChanged "form_changed" => Nothing, "the same, written in another way";
    SchemaRearranged "schema_rearranged" => Bump, "schema rearranged; it may mean something else";
    KindOfEntryChanged "kind_of_entry_changed" => Bump, "tool has a contract in one lock and none in the other";
    OtherChange "other_change" => Bump, "another part of the definition changed";
    InstructionsChanged "instructions_changed" => Review, "instructions changed";
    PromptAdded "prompt_added" => Review, "prompt added";
    PromptRemoved "prompt_removed" => Review, "prompt removed";
    PromptChanged "prompt_changed" => Review, "definition of a prompt changed";
    ResourceAdded "resource_added" => Review, "resource added";
    ResourceRemoved "resource_removed" => Review, "resource removed";
    ResourceChanged "resource_changed" => Review, "definition of a resource changed";
    TemplateAdded "template_added" => Review, "template added";
    TemplateRemoved "template_removed" => Review, "template removed";
    TemplateChanged "template_changed" => Review, "definition of a template changed";
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.title())
    }
}

impl Serialize for Kind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// The table of rules in `docs/contracts.md`.
pub fn markdown() -> String {
    let mut table = String::from("| change | in JSON | demands |\n|---|---|---|\n");
    for kind in Kind::ALL {
        let demand = kind.demand().words();
        let _ = writeln!(table, "| {kind} | `{}` | {demand} |", kind.as_str());
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The list of `tool-stability.md` §2.2 and what follows from it. A kind that is added to it
    /// is harmless for every client there can be, or it does not belong here.
    #[test]
    fn only_these_changes_demand_nothing() {
        let harmless: Vec<_> = Kind::ALL
            .iter()
            .filter(|kind| kind.demand() == Demand::Nothing)
            .map(|kind| kind.as_str())
            .collect();
        assert_eq!(
            harmless,
            [
                "tool_added",
                "tool_description_changed",
                "schema_version_raised",
                "alias_added",
                "argument_alias_added",
                "optional_argument_added",
                "optional_result_field_added",
                "result_description_changed",
                "definition_added",
                "form_changed",
            ]
        );
    }

    #[test]
    fn a_reason_is_enough_only_for_words_and_removals() {
        let with_reason: Vec<_> = Kind::ALL
            .iter()
            .filter(|kind| matches!(kind.demand(), Demand::Reason | Demand::BumpOrReason))
            .collect();
        assert_eq!(
            with_reason,
            [&Kind::ToolRemoved, &Kind::ArgumentDescriptionChanged]
        );
    }

    #[test]
    fn no_two_kinds_share_a_word() {
        let words: std::collections::BTreeSet<_> =
            Kind::ALL.iter().map(|kind| kind.as_str()).collect();
        assert_eq!(words.len(), Kind::ALL.len());
    }
}
