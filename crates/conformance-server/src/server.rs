//! The fixture as the SDK wants to see it: one handler for both eras.

#![expect(
    deprecated,
    reason = "the suite still asks for what the SDK deprecates"
)]

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CompleteRequestParams, CompleteResult,
    GetPromptRequestParams, GetPromptResponse, Implementation, ListPromptsResult,
    ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, LoggingLevel,
    PaginatedRequestParams, Prompt, ProtocolVersion, ReadResourceRequestParams,
    ReadResourceResponse, ServerCapabilities, ServerConfig, SetLevelRequestParams,
    SubscribeRequestParams, SubscriptionFilter, Tool, UnsubscribeRequestParams,
};
use rmcp::service::{NotificationContext, RequestContext, SubscriptionContext};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::json;

use crate::catalog::{CHANGING_PROMPT, CHANGING_TOOL, Catalog};
use crate::listeners::{Changed, Listeners};
use crate::{prompts, resources, tools};

#[derive(Clone)]
pub(crate) struct Fixture {
    catalog: Arc<Catalog>,
    listeners: Listeners,
    changes: Arc<Changes>,
    level: Arc<Mutex<LoggingLevel>>,
    watched: Arc<Mutex<BTreeSet<String>>>,
}

/// Tools that come and go.
#[derive(Debug, Default)]
struct Changes {
    tool: AtomicBool,
    prompt: AtomicBool,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        Self {
            catalog: Arc::new(Catalog::read()),
            listeners: Listeners::default(),
            changes: Arc::default(),
            level: Arc::new(Mutex::new(LoggingLevel::Debug)),
            watched: Arc::default(),
        }
    }

    pub(crate) async fn toggle(&self, changed: Changed) {
        let flag = match changed {
            Changed::Tools => &self.changes.tool,
            Changed::Prompts => &self.changes.prompt,
        };
        flag.fetch_not(Ordering::Relaxed);
        self.listeners.tell(changed).await;
    }

    pub(crate) fn level(&self) -> LoggingLevel {
        *self.level.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_modern(&self, context: &RequestContext<RoleServer>) -> bool {
        context
            .protocol_version()
            .is_some_and(|version| version.as_str() >= ProtocolVersion::V_2026_07_28.as_str())
    }

    fn tools(&self) -> Vec<Tool> {
        let mut tools = self.catalog.tools.clone();
        if self.changes.tool.load(Ordering::Relaxed) {
            let schema = Arc::new(serde_json::Map::from_iter([(
                "type".into(),
                json!("object"),
            )]));
            tools.push(Tool::new(CHANGING_TOOL, "Comes and goes", schema));
        }
        tools
    }

    fn prompts(&self) -> Vec<Prompt> {
        let mut prompts = self.catalog.prompts.clone();
        if self.changes.prompt.load(Ordering::Relaxed) {
            prompts.push(Prompt::new(CHANGING_PROMPT, Some("Comes and goes"), None));
        }
        prompts
    }
}

impl ServerHandler for Fixture {
    fn get_info(&self) -> ServerConfig {
        let capabilities: ServerCapabilities = tools::typed(json!({
            "tools": {"listChanged": true},
            "prompts": {"listChanged": true},
            "resources": {"subscribe": true},
            "completions": {},
            "logging": {},
        }))
        .unwrap_or_default();
        let mut config = ServerConfig::new(capabilities);
        config.server_info = Implementation::new("conformance-server", env!("CARGO_PKG_VERSION"));
        config
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        self.listeners.initialized(context.peer);
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.tools()))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.tools().into_iter().find(|tool| tool.name == name)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        tools::call(self, &request, &context).await
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        Ok(ListPromptsResult::with_all_items(self.prompts()))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        prompts::get(&request)
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let resources = self.catalog.resources.clone();
        Ok(ListResourcesResult::with_all_items(resources))
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let templates = self.catalog.resource_templates.clone();
        Ok(ListResourceTemplatesResult::with_all_items(templates))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        resources::read(&request.uri)
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        let typed = request.argument.value;
        let values: Vec<&str> = ["paris", "park", "party"]
            .into_iter()
            .filter(|value| value.starts_with(&typed))
            .collect();
        let total = values.len();
        tools::complete(json!({"completion": {"values": values, "total": total, "hasMore": false}}))
    }

    async fn set_level(
        &self,
        request: SetLevelRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        if self.is_modern(&context) {
            return Err(ErrorData::method_not_found::<
                rmcp::model::SetLevelRequestMethod,
            >());
        }
        *self.level.lock().unwrap_or_else(PoisonError::into_inner) = request.level;
        Ok(())
    }

    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        watched.insert(request.uri);
        Ok(())
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        watched.remove(&request.uri);
        Ok(())
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        Some(requested.clone())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        self.listeners.subscribed(context.sink().clone());
        context.cancelled().await;
        self.listeners.forget(context.sink());
        Ok(())
    }
}
