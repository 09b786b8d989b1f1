//! `mainstay environment`.

use std::process::ExitCode;

use mainstay_contract::render::{Bounds, Porcelain, count};

use crate::args::EnvironmentPage;
use crate::environment::{VARIABLES, is_set, markdown};
use crate::exit::{Failure, print};

/// Prints the variables: as a page, or with which of them are set here. Values are not shown.
pub(crate) fn print_page(form: EnvironmentPage) -> Result<ExitCode, Failure> {
    print(&if form.markdown { markdown() } else { table() })?;
    Ok(ExitCode::SUCCESS)
}

fn table() -> String {
    let rows = VARIABLES.iter().map(|variable| {
        let set = if is_set(variable.name) { "set" } else { "-" };
        let default = variable.default.replace('`', "");
        vec![variable.name.to_owned(), set.to_owned(), default]
    });
    let mut text = Porcelain::summary(count(VARIABLES.len(), "variable", "variables"))
        .table(&["variable", "here", "default"], rows)
        .hint("mainstay environment --markdown describes each")
        .finish(Bounds {
            lines: 1000,
            bytes: 1 << 20,
        });
    text.push('\n');
    text
}
