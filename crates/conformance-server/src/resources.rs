//! The resources: two fixed ones, one to watch, and a template.

use rmcp::ErrorData;
use rmcp::model::{ReadResourceResponse, ReadResourceResult};
use serde_json::{Value, json};

use crate::catalog::IMAGE;
use crate::tools;

pub(crate) fn read(uri: &str) -> Result<ReadResourceResponse, ErrorData> {
    let text = |kind: &str, text: &str| json!({"uri": uri, "mimeType": kind, "text": text});
    let content: Value = match uri {
        "test://static-text" => text(
            "text/plain",
            "This is the content of the static text resource.",
        ),
        "test://static-binary" => json!({"uri": uri, "mimeType": "image/png", "blob": IMAGE}),
        "test://watched-resource" => text("text/plain", "Watched."),
        _ => {
            let id = uri
                .strip_prefix("test://template/")
                .and_then(|rest| rest.strip_suffix("/data"))
                .filter(|id| !id.is_empty() && !id.contains('/'))
                .ok_or_else(|| {
                    ErrorData::resource_not_found("Resource not found", Some(json!({"uri": uri})))
                })?;
            let data =
                json!({"id": id, "templateTest": true, "data": format!("Data for ID: {id}")});
            text("application/json", &data.to_string())
        }
    };
    let result: ReadResourceResult = tools::complete(json!({"contents": [content]}))?;
    Ok(result.into())
}
