//! Resources: what a pack offers for reading by URI.
//!
//! Deliberately absent: binary contents and subscriptions; no pack has either.

use mainstay_contract::outcome::Problem;
use mainstay_contract::tool::{ResourceSpec, ResourceTemplate};
use serde::Serialize;

use crate::context::Context;

/// The resources of a pack.
pub trait Resources: Send + Sync {
    /// URI schemes (before `:`) that this pack serves.
    fn schemes(&self) -> Vec<String>;

    /// Families of resources.
    fn templates(&self) -> Vec<ResourceTemplate> {
        Vec::new()
    }

    /// The current resources, in a stable order.
    fn list(&self, context: &Context) -> Result<Vec<ResourceSpec>, Problem>;

    /// The contents of one, or a `ResourceNotFound` problem.
    fn read(&self, uri: &str, context: &Context) -> Result<ResourceText, Problem>;
}

/// The text of a resource.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceText {
    pub uri: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    pub text: String,
}
