//! The table of protocol facts: every MCP method that the host reads, answers or forwards by name.
//!
//! [`Method`] is closed. A name outside the table is `None` after [`Method::parse`]; [`replay_of`]
//! and [`telemetry_name_of`] cover such names. [`ListKind`] holds the facts of the four lists.
//!
//! Deliberately absent: parameters and results, which belong to the codecs in
//! [`crate::dialect`], and the methods of the direct and envelope dialects.

use serde::{Deserialize, Serialize};

use crate::dialect::{Dialect, Shape};
use crate::replay::Replay;

/// Prefix of every notification of MCP.
pub const NOTIFICATION_PREFIX: &str = "notifications/";

/// The control notification of plain JSON-RPC clients that cancels a request and expects an
/// answer to it.
pub const CANCEL_REQUEST: &str = "$/cancelRequest";

/// Telemetry name of every method outside the closed set.
pub const OTHER: &str = "other";

/// The peer that sends a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    ClientToServer,
    ServerToClient,
    Both,
}

/// Request or notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MethodKind {
    Request,
    Notification,
}

/// The revisions of MCP that define a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Era {
    /// 2024-11-05 to 2025-11-25.
    Legacy,
    /// 2026-07-28.
    Modern,
    Both,
}

impl Era {
    /// One of MCP's dialects belongs to these revisions.
    pub const fn includes(self, dialect: Dialect) -> bool {
        match self {
            Self::Legacy => matches!(dialect, Dialect::Legacy),
            Self::Modern => matches!(dialect, Dialect::Modern),
            Self::Both => dialect.is_mcp(),
        }
    }
}

macro_rules! methods {
    ($($variant:ident $name:literal $kind:ident $direction:ident $era:ident $replay:ident,)*) => {
        /// A method of MCP.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Method {
            $($variant,)*
        }

        impl Method {
            /// All methods, in the order of the table.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The name on the wire.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// The method with this name on the wire.
            pub fn parse(name: &str) -> Option<Self> {
                match name {
                    $($name => Some(Self::$variant),)*
                    _ => None,
                }
            }

            /// Request or notification.
            pub const fn kind(self) -> MethodKind {
                match self {
                    $(Self::$variant => MethodKind::$kind,)*
                }
            }

            /// The peer that sends it.
            pub const fn direction(self) -> Direction {
                match self {
                    $(Self::$variant => Direction::$direction,)*
                }
            }

            /// The revisions that define it as a message of its own.
            pub const fn era(self) -> Era {
                match self {
                    $(Self::$variant => Era::$era,)*
                }
            }

            /// The replay contract of a request to a wrapped server. A tool call has the contract
            /// of its tool; without one it is never sent twice.
            pub const fn replay(self) -> Replay {
                match self {
                    $(Self::$variant => Replay::$replay,)*
                }
            }
        }
    };
}

methods! {
    Initialize "initialize" Request ClientToServer Legacy Convergent,
    Discover "server/discover" Request ClientToServer Modern Convergent,
    Ping "ping" Request Both Legacy Convergent,
    ListTools "tools/list" Request ClientToServer Both Convergent,
    CallTool "tools/call" Request ClientToServer Both NeverReplay,
    ListResources "resources/list" Request ClientToServer Both Convergent,
    ListResourceTemplates "resources/templates/list" Request ClientToServer Both Convergent,
    ReadResource "resources/read" Request ClientToServer Both Convergent,
    SubscribeResource "resources/subscribe" Request ClientToServer Legacy Convergent,
    UnsubscribeResource "resources/unsubscribe" Request ClientToServer Legacy Convergent,
    ListPrompts "prompts/list" Request ClientToServer Both Convergent,
    GetPrompt "prompts/get" Request ClientToServer Both Convergent,
    Complete "completion/complete" Request ClientToServer Both Convergent,
    SetLogLevel "logging/setLevel" Request ClientToServer Legacy Convergent,
    Listen "subscriptions/listen" Request ClientToServer Modern Convergent,
    GetTask "tasks/get" Request Both Both Convergent,
    GetTaskResult "tasks/result" Request Both Legacy Convergent,
    ListTasks "tasks/list" Request Both Legacy Convergent,
    CancelTask "tasks/cancel" Request Both Both NeverReplay,
    UpdateTask "tasks/update" Request ClientToServer Modern NeverReplay,
    ListRoots "roots/list" Request ServerToClient Legacy Convergent,
    CreateMessage "sampling/createMessage" Request ServerToClient Legacy NeverReplay,
    Elicit "elicitation/create" Request ServerToClient Legacy NeverReplay,
    Initialized "notifications/initialized" Notification ClientToServer Legacy NeverReplay,
    Cancelled "notifications/cancelled" Notification Both Both NeverReplay,
    Progress "notifications/progress" Notification Both Both NeverReplay,
    LogMessage "notifications/message" Notification ServerToClient Both NeverReplay,
    RootsChanged "notifications/roots/list_changed" Notification ClientToServer Legacy NeverReplay,
    ToolsChanged "notifications/tools/list_changed" Notification ServerToClient Both NeverReplay,
    PromptsChanged "notifications/prompts/list_changed" Notification ServerToClient Both NeverReplay,
    ResourcesChanged "notifications/resources/list_changed" Notification ServerToClient Both NeverReplay,
    ResourceUpdated "notifications/resources/updated" Notification ServerToClient Both NeverReplay,
    TaskStatus "notifications/tasks/status" Notification Both Legacy NeverReplay,
    Acknowledged "notifications/subscriptions/acknowledged" Notification ServerToClient Modern NeverReplay,
}

impl Method {
    /// The name in telemetry: a closed set, because clients can invent any number of methods.
    pub const fn telemetry_name(self) -> &'static str {
        match (self.kind(), self.direction(), self) {
            (
                _,
                _,
                Self::GetTask
                | Self::GetTaskResult
                | Self::ListTasks
                | Self::CancelTask
                | Self::UpdateTask,
            )
            | (MethodKind::Notification, _, _)
            | (_, Direction::ServerToClient, _) => OTHER,
            (MethodKind::Request, Direction::ClientToServer | Direction::Both, _) => self.name(),
        }
    }

    /// A person may have to answer this request of a server, so the deadlines of the server's
    /// calls pause while it is open.
    pub const fn pauses_deadlines(self) -> bool {
        matches!(self, Self::CreateMessage | Self::Elicit)
    }

    /// The kind of result that the request has.
    pub const fn shape(self) -> Shape {
        match self {
            Self::CallTool | Self::GetTaskResult => Shape::Tool,
            Self::Discover | Self::ReadResource => Shape::Cacheable,
            _ if self.list().is_some() => Shape::Cacheable,
            _ => Shape::Plain,
        }
    }
}

/// The replay contract of any method name: an extension's `*/list` only reads, and every other
/// unknown request may have an effect.
pub fn replay_of(name: &str) -> Replay {
    match Method::parse(name) {
        Some(method) => method.replay(),
        None if name.ends_with("/list") => Replay::Convergent,
        None => Replay::NeverReplay,
    }
}

/// True for a name that only its case or blanks tell from a known method's. A server may read both alike, so
/// such a request must not pass by the rules of that method.
pub fn is_respelled(name: &str) -> bool {
    let (plain, mut known) = (name.trim(), Method::ALL.iter());
    Method::parse(name).is_none() && known.any(|method| method.name().eq_ignore_ascii_case(plain))
}

/// The telemetry name of any method name.
pub fn telemetry_name_of(name: &str) -> &'static str {
    Method::parse(name).map_or(OTHER, Method::telemetry_name)
}

macro_rules! lists {
    ($($kind:ident $method:ident $changed:ident $member:literal $key:literal $noun:literal
       $capability:literal $wanted:literal,)*) => {
        /// A list of a server.
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        #[serde(rename_all = "lowercase")]
        pub enum ListKind {
            $($kind,)*
        }

        impl ListKind {
            pub const ALL: [Self; 4] = [$(Self::$kind,)*];

            /// The request that fetches the list.
            pub const fn method(self) -> Method {
                match self { $(Self::$kind => Method::$method,)* }
            }

            /// The notification that reports a change of the list.
            pub const fn changed(self) -> Method {
                match self { $(Self::$kind => Method::$changed,)* }
            }

            /// The member of the result that holds the items.
            pub const fn member(self) -> &'static str {
                match self { $(Self::$kind => $member,)* }
            }

            /// The member of an item that names it.
            pub const fn key(self) -> &'static str {
                match self { $(Self::$kind => $key,)* }
            }

            /// The word for an item.
            pub const fn noun(self) -> &'static str {
                match self { $(Self::$kind => $noun,)* }
            }

            /// The capability under which a server declares `listChanged`.
            pub const fn capability(self) -> &'static str {
                match self { $(Self::$kind => $capability,)* }
            }

            /// The member with which `subscriptions/listen` asks for changes of the list.
            pub const fn wanted(self) -> &'static str {
                match self { $(Self::$kind => $wanted,)* }
            }
        }

        impl Method {
            /// The list that this request fetches.
            pub const fn list(self) -> Option<ListKind> {
                match self {
                    $(Self::$method => Some(ListKind::$kind),)*
                    _ => None,
                }
            }
        }
    };
}

lists! {
    Tools ListTools ToolsChanged "tools" "name" "tool" "tools" "toolsListChanged",
    Prompts ListPrompts PromptsChanged "prompts" "name" "prompt" "prompts" "promptsListChanged",
    Resources ListResources ResourcesChanged "resources" "uri" "resource" "resources" "resourcesListChanged",
    Templates ListResourceTemplates ResourcesChanged "resourceTemplates" "uriTemplate" "template" "resources" "resourcesListChanged",
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn name_and_parse_are_inverse() {
        let names: BTreeSet<&str> = Method::ALL.iter().map(|method| method.name()).collect();
        assert_eq!(names.len(), Method::ALL.len(), "a name occurs twice");
        for method in Method::ALL {
            assert_eq!(Method::parse(method.name()), Some(*method));
        }
        for unknown in ["", "tools", "Tools/List", "tools/list ", CANCEL_REQUEST] {
            assert_eq!(Method::parse(unknown), None, "{unknown:?}");
        }
        for (name, is_one) in [
            ("TOOLS/CALL", true),
            (" tools/call", true),
            ("tools/call", false),
            ("vendor/call", false),
        ] {
            assert_eq!(is_respelled(name), is_one, "{name:?}");
        }
    }

    #[test]
    fn notifications_are_exactly_the_methods_with_the_prefix() {
        for method in Method::ALL {
            assert_eq!(
                method.kind() == MethodKind::Notification,
                method.name().starts_with(NOTIFICATION_PREFIX),
                "{method:?}"
            );
        }
    }

    #[test]
    fn only_requests_without_an_effect_are_replayed() {
        let never: Vec<&str> = Method::ALL
            .iter()
            .filter(|method| method.kind() == MethodKind::Request)
            .filter(|method| method.replay() == Replay::NeverReplay)
            .map(|method| method.name())
            .collect();
        let effects = [
            "tools/call",
            "tasks/cancel",
            "tasks/update",
            "sampling/createMessage",
            "elicitation/create",
        ];
        assert_eq!(never, effects);
        assert_eq!(replay_of("acme/list"), Replay::Convergent);
        assert_eq!(replay_of("acme/delete"), Replay::NeverReplay);
        assert_eq!(replay_of("notifications/initialized"), Replay::NeverReplay);
    }

    #[test]
    fn telemetry_knows_what_clients_ask_and_nothing_else() {
        let counted: Vec<&str> = Method::ALL
            .iter()
            .map(|method| method.telemetry_name())
            .filter(|name| *name != OTHER)
            .collect();
        assert_eq!(
            counted,
            [
                "initialize",
                "server/discover",
                "ping",
                "tools/list",
                "tools/call",
                "resources/list",
                "resources/templates/list",
                "resources/read",
                "resources/subscribe",
                "resources/unsubscribe",
                "prompts/list",
                "prompts/get",
                "completion/complete",
                "logging/setLevel",
                "subscriptions/listen",
            ]
        );
        assert_eq!(telemetry_name_of("acme/list"), OTHER);
    }

    #[test]
    fn every_list_has_its_request_and_its_notification() {
        for kind in ListKind::ALL {
            assert_eq!(kind.method().list(), Some(kind));
            assert_eq!(kind.method().shape(), Shape::Cacheable);
            assert_eq!(kind.changed().kind(), MethodKind::Notification);
            assert_eq!(kind.changed().direction(), Direction::ServerToClient);
        }
        let lists = Method::ALL.iter().filter(|method| method.list().is_some());
        assert_eq!(lists.count(), ListKind::ALL.len());
    }
}
