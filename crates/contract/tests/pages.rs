//! The reference pages are generated; they must equal what generates them.

use mainstay_contract::{error, limits};

#[test]
fn the_error_page_is_the_error_table() {
    let page = include_str!("../../../docs/errors.md");
    assert_eq!(
        page,
        error::markdown(),
        "regenerate: mainstay errors --markdown > docs/errors.md"
    );
}

#[test]
fn the_configuration_page_has_every_limit() {
    let page = include_str!("../../../docs/configuration.md");
    let table = limits::markdown();
    assert!(
        page.contains(&table),
        "the table of limits must be:\n{table}"
    );
}
