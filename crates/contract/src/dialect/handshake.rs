//! A server's description of itself, in both eras.

use serde_json::{Map, Value, json};

use crate::json::{Json, ObjectWriter};
use crate::meta;

/// The stateless revision.
pub const MODERN_VERSION: &str = "2026-07-28";

/// The revisions with sessions, newest first.
pub const LEGACY_VERSIONS: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

/// The legacy revision that has tasks.
pub const TASKS_VERSION: &str = "2025-11-25";

/// The legacy revision to speak with a client that offers `offered`.
pub fn negotiate_legacy(offered: &str) -> &'static str {
    let [newest, ..] = LEGACY_VERSIONS;
    LEGACY_VERSIONS
        .into_iter()
        .find(|version| *version == offered)
        .unwrap_or(newest)
}

/// Facts about the server that both handshakes tell.
#[derive(Clone, Debug)]
pub struct ServerFacts {
    pub name: String,
    pub version: String,
    pub instructions: Option<String>,
    pub resources: bool,
    pub prompts: bool,
    pub completions: bool,
    /// Facts about wrapped servers that are served, too.
    pub servers: Option<WrappedFacts>,
    /// Tools may run as tasks, and the client may list its own.
    pub tasks: Option<TaskFacts>,
}

/// Facts about the wrapped servers behind a host. Their lists may change, and it offers everything that a server
/// can.
#[derive(Clone, Debug, Default)]
pub struct WrappedFacts {
    /// Extensions of MCP that they declare.
    pub extensions: Map<String, Value>,
}

/// The task support that a server declares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskFacts {
    /// The client is known, so it can list its tasks.
    pub list: bool,
}

impl TaskFacts {
    /// The capability `tasks` of the legacy handshake.
    pub fn capability(self) -> Value {
        let requests = json!({ "tools": { "call": {} } });
        match self.list {
            true => json!({ "list": {}, "cancel": {}, "requests": requests }),
            false => json!({ "cancel": {}, "requests": requests }),
        }
    }
}

impl ServerFacts {
    /// Members of the result of `initialize`.
    pub fn initialized(&self, offered: &str) -> Json {
        let mut capabilities = self.capabilities();
        let version = negotiate_legacy(offered);
        if let Some(tasks) = self.tasks.filter(|_| version == TASKS_VERSION) {
            capabilities.insert("tasks".into(), tasks.capability());
        }
        let result = ObjectWriter::with_capacity(512)
            .string("protocolVersion", version)
            .value("capabilities", &capabilities)
            .value("serverInfo", &self.server_info())
            .optional_string("instructions", self.instructions.as_deref());
        Json::from_scanned(&result.finish())
    }

    /// Members of the result of `server/discover`.
    pub fn discovered(&self) -> Json {
        let mut versions = vec![MODERN_VERSION];
        versions.extend(LEGACY_VERSIONS);
        let mut capabilities = self.capabilities();
        if self.tasks.is_some() {
            let extensions = capabilities
                .entry("extensions")
                .or_insert_with(|| json!({}));
            if let Some(extensions) = extensions.as_object_mut() {
                extensions.insert(meta::TASKS.into(), json!({}));
            }
        }
        let result = ObjectWriter::with_capacity(512)
            .value("supportedVersions", &versions)
            .value("capabilities", &capabilities)
            .optional_string("instructions", self.instructions.as_deref())
            .value("_meta", &json!({ meta::SERVER_INFO: self.server_info() }));
        Json::from_scanned(&result.finish())
    }

    fn capabilities(&self) -> Map<String, Value> {
        let mut capabilities = Map::new();
        let wraps = self.servers.is_some();
        let optional = [
            ("tools", true, true),
            ("resources", self.resources || wraps, true),
            ("prompts", self.prompts || wraps, true),
            ("completions", self.completions || wraps, false),
        ];
        for (name, offered, changes) in optional {
            if offered {
                let declared = match changes {
                    true => json!({ "listChanged": true }),
                    false => json!({}),
                };
                capabilities.insert(name.into(), declared);
            }
        }
        if let Some(servers) = &self.servers {
            capabilities.insert("logging".into(), json!({}));
            if let Some(resources) = capabilities.get_mut("resources") {
                *resources = json!({ "listChanged": true, "subscribe": true });
            }
            if !servers.extensions.is_empty() {
                let extensions = Value::Object(servers.extensions.clone());
                capabilities.insert("extensions".into(), extensions);
            }
        }
        capabilities
    }

    fn server_info(&self) -> Value {
        json!({ "name": self.name, "version": self.version })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> ServerFacts {
        ServerFacts {
            name: "host".into(),
            version: "1".into(),
            instructions: None,
            resources: false,
            prompts: false,
            completions: false,
            servers: None,
            tasks: Some(TaskFacts { list: true }),
        }
    }

    #[test]
    fn only_the_revision_with_tasks_declares_them() {
        for version in LEGACY_VERSIONS {
            let opened = facts().initialized(version).to_value().unwrap();
            let declared = opened["capabilities"].get("tasks").is_some();
            assert_eq!(declared, version == TASKS_VERSION, "{opened}");
        }
    }

    #[test]
    fn a_discovery_declares_the_extensions_of_servers_beside_tasks() {
        let extensions = [("com.example/x".to_owned(), json!({}))];
        let servers = WrappedFacts {
            extensions: extensions.into_iter().collect(),
        };
        let facts = ServerFacts {
            servers: Some(servers),
            ..facts()
        };
        let discovered = facts.discovered().to_value().unwrap();
        let declared = &discovered["capabilities"]["extensions"];
        assert_eq!(*declared, json!({ "com.example/x": {}, meta::TASKS: {} }));
    }
}
