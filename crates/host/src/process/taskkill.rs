//! Windows: a tree is killed by `taskkill /pid N /T /F`.
//!
//! Building the command and reading its result need no Windows, so they are tested everywhere; no
//! Windows build exists yet that runs them.

use std::ffi::OsString;
use std::io;

/// The exit code of `taskkill` when there is no such process.
const NOT_FOUND: i32 = 128;

/// The program and its arguments.
pub(crate) fn command(pid: u32) -> (&'static str, [OsString; 4]) {
    let arguments = ["/pid", &pid.to_string(), "/T", "/F"].map(OsString::from);
    ("taskkill", arguments)
}

/// How the killing of a tree went.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Killed {
    Done,
    /// It had ended already, which is what we want.
    WasGone,
}

/// Why a tree could not be killed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum KillError {
    /// Some process of the tree needs more rights than we have.
    Denied(String),
    Failed {
        code: Option<i32>,
        said: String,
    },
}

/// Reads what `taskkill` said. Its text is in the system's language, its exit code is not.
pub(crate) fn result(code: Option<i32>, said: &str) -> Result<Killed, KillError> {
    let said = said.trim();
    let lower = said.to_ascii_lowercase();
    match code {
        Some(0) => Ok(Killed::Done),
        Some(NOT_FOUND) => Ok(Killed::WasGone),
        // A tree that ends while it is killed: code 1 or 255, and only the text tells.
        Some(_) if lower.contains("not found") || lower.contains("no running instance") => {
            Ok(Killed::WasGone)
        }
        Some(_) if lower.contains("access is denied") => Err(KillError::Denied(said.to_owned())),
        code => Err(KillError::Failed {
            code,
            said: said.to_owned(),
        }),
    }
}

impl From<KillError> for io::Error {
    fn from(error: KillError) -> Self {
        match error {
            KillError::Denied(said) => Self::new(io::ErrorKind::PermissionDenied, said),
            KillError::Failed { code, said } => {
                let code = code.map_or_else(|| "no code".to_owned(), |code| code.to_string());
                Self::other(format!("taskkill ended with {code}: {said}"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_tree_is_killed_by_force() {
        let (program, arguments) = command(4711);
        assert_eq!(program, "taskkill");
        assert_eq!(arguments, ["/pid", "4711", "/T", "/F"]);
    }

    #[test]
    fn a_process_that_has_gone_is_no_failure() {
        let success =
            "SUCCESS: The process with PID 4711 (child process of PID 1) has been terminated.";
        assert_eq!(result(Some(0), success), Ok(Killed::Done));
        let absent = "ERROR: The process \"4711\" not found.\r\n";
        assert_eq!(result(Some(128), absent), Ok(Killed::WasGone));
        assert_eq!(
            result(Some(128), "FEHLER: Prozess nicht gefunden."),
            Ok(Killed::WasGone)
        );
        let raced = "ERROR: The process with PID 4711 could not be terminated.\r\n\
                     Reason: There is no running instance of the task.";
        assert_eq!(result(Some(255), raced), Ok(Killed::WasGone));
    }

    #[test]
    fn missing_rights_are_a_controlled_error() {
        let denied =
            "ERROR: The process with PID 4 could not be terminated.\r\nReason: Access is denied.";
        let error = result(Some(1), denied).unwrap_err();
        assert!(matches!(error, KillError::Denied(_)));
        assert_eq!(
            io::Error::from(error).kind(),
            io::ErrorKind::PermissionDenied
        );
    }

    #[test]
    fn anything_else_is_told_with_its_code() {
        let error =
            result(Some(1), "ERROR: The operation attempted is not supported.").unwrap_err();
        let text = io::Error::from(error).to_string();
        assert!(
            text.contains("ended with 1") && text.contains("not supported"),
            "{text}"
        );
        assert!(result(None, "").is_err());
    }
}
