//! Public data that is not part of the project.

use std::env;
use std::path::{Path, PathBuf};

/// A folder of the test data, or `None` with a line that says so.
#[expect(
    clippy::disallowed_methods,
    reason = "tests are told where things are by their own environment"
)]
pub(crate) fn data(folder: &str) -> Option<PathBuf> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let root = env::var_os("MAINSTAY_TEST_DATA")
        .map_or_else(|| workspace.join("../shared/data"), PathBuf::from);
    let found = root.join(folder);
    if found.is_dir() {
        return Some(found);
    }
    eprintln!("skipped: no test data at {}", found.display());
    None
}
