//! `mainstay errors`.

use std::process::ExitCode;

use mainstay_contract::error::{ErrorKind, markdown};
use mainstay_contract::render::{Bounds, Porcelain, count};
use serde_json::json;

use crate::args::Errors;
use crate::exit::{Failure, print};

/// Prints the error table.
pub(crate) fn print_page(form: Errors) -> Result<ExitCode, Failure> {
    let text = if form.markdown {
        markdown()
    } else if form.json {
        let rows: Vec<_> = ErrorKind::ALL.iter().map(|kind| row_json(*kind)).collect();
        format!("{:#}\n", serde_json::Value::Array(rows))
    } else {
        table()
    };
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn row_json(kind: ErrorKind) -> serde_json::Value {
    let row = kind.row();
    json!({
        "kind": row.name, "code": row.code, "canonical": row.canonical, "http": row.http,
        "jsonrpc": row.jsonrpc, "reason": row.reason, "fault": row.class,
        "status": row.invocation_status(), "retryable": row.retryable,
        "message": row.message, "hint": row.hint,
    })
}

fn table() -> String {
    let rows = ErrorKind::ALL.iter().map(|kind| {
        let row = kind.row();
        vec![
            row.name.to_owned(),
            row.code.to_string(),
            row.http.to_string(),
            row.jsonrpc.to_string(),
            row.class.to_string(),
            if row.retryable { "yes" } else { "no" }.to_owned(),
        ]
    });
    let headers = ["kind", "code", "http", "json-rpc", "fault", "retry"];
    let mut text = Porcelain::summary(count(
        ErrorKind::ALL.len(),
        "kind of error",
        "kinds of error",
    ))
    .table(&headers, rows)
    .finish(Bounds {
        lines: 1000,
        bytes: 1 << 20,
    });
    text.push('\n');
    text
}
