//! The era of a server that is not declared: a stateless one may be shared.
//!
//! The first client asks the server, in a process that ends at once. The answer is kept in a private file for a week, so
//! later clients start without delay.

use std::path::{Path, PathBuf};
use std::time::Duration;

use mainstay_contract::control::SharedServer;
use mainstay_host::files::{self, Links};
use mainstay_schema::Fingerprint;
use serde_json::json;

use super::probe::Launch;

/// Time for the server to start and to answer.
const PATIENCE: Duration = Duration::from_secs(60);
/// After so long the server is asked anew.
const MAX_AGE: Duration = Duration::from_secs(7 * 86_400);
const STATELESS: &[u8] = b"stateless\n";
const SESSIONS: &[u8] = b"sessions\n";

/// True if the server speaks the stateless revision. A server that cannot be asked does not.
pub(super) fn is_stateless(server: &SharedServer, cache_dir: Option<&Path>) -> bool {
    let file = cache_dir.map(|folder| file_of(server, folder));
    if let Some(known) = file.as_deref().and_then(read) {
        return known;
    }
    let launch = Launch {
        program: server.program.clone().into(),
        arguments: server.arguments.iter().map(Into::into).collect(),
        environment: server.environment.clone(),
        patience: PATIENCE,
    };
    let started = launch.start(Path::new(&server.directory));
    let Ok(started) = started else { return false };
    let is_stateless = started.discovers();
    if let Some(file) = file {
        let text = if is_stateless { STATELESS } else { SESSIONS };
        let folder = file.parent().unwrap_or(Path::new("."));
        // Without the file the next client asks again.
        let _ =
            files::create_own(folder).and_then(|()| files::replace(&file, text, files::PRIVATE));
    }
    is_stateless
}

/// The values of variables may be secrets, and do not decide about the era.
fn file_of(server: &SharedServer, folder: &Path) -> PathBuf {
    let names: Vec<&String> = server.environment.keys().collect();
    let key = json!([server.program, server.arguments, server.directory, names]);
    let name = Fingerprint::of(&key);
    folder.join("shared").join(name.to_string())
}

fn read(file: &Path) -> Option<bool> {
    files::verify_private(file.parent()?).ok()?;
    let (text, facts) = files::read(file, 64, Links::Reject).ok()?;
    if facts.modified().ok()?.elapsed().unwrap_or_default() > MAX_AGE {
        return None;
    }
    match text.as_slice() {
        STATELESS => Some(true),
        SESSIONS => Some(false),
        _ => None,
    }
}
