//! Which build is running: the version and the identity of the executable file.

use std::fs::Metadata;
use std::io;

use crate::digest::Digest;

/// Digits of the fingerprint that are shown.
const DIGITS: usize = 16;

/// `VERSION+FINGERPRINT`, where the fingerprint is that of the running executable's device,
/// inode, size and time of modification.
///
/// Host and worker that were started from one file agree; a file that was replaced on disk in
/// between differs, even if it has the same version.
pub fn build_id(version: &str) -> String {
    match executable().map(|file| fingerprint(&file)) {
        Ok(hex) => format!("{version}+{}", hex.get(..DIGITS).unwrap_or(&hex)),
        Err(_) => format!("{version}+unknown"),
    }
}

/// The file that is running, even if its name has gone or names another one by now.
#[cfg(target_os = "linux")]
fn executable() -> io::Result<Metadata> {
    std::fs::metadata("/proc/self/exe")
}

#[cfg(not(target_os = "linux"))]
fn executable() -> io::Result<Metadata> {
    std::fs::metadata(std::env::current_exe()?)
}

#[cfg(unix)]
fn fingerprint(file: &Metadata) -> String {
    use std::os::unix::fs::MetadataExt as _;
    Digest::default()
        .part(&file.dev().to_le_bytes())
        .part(&file.ino().to_le_bytes())
        .part(&file.size().to_le_bytes())
        .part(&file.mtime().to_le_bytes())
        .part(&file.mtime_nsec().to_le_bytes())
        .hex()
}

#[cfg(not(unix))]
fn fingerprint(file: &Metadata) -> String {
    Digest::default().part(&file.len().to_le_bytes()).hex()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_build_id_is_the_version_and_sixteen_digits() {
        let id = build_id("1.2.3");
        let (version, digits) = id.split_once('+').unwrap();
        assert_eq!(version, "1.2.3");
        assert_eq!(digits.len(), DIGITS);
        assert!(digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
        assert_eq!(id, build_id("1.2.3"));
    }

    #[test]
    fn a_file_written_anew_is_another_build() {
        let dir = crate::testing::TempDir::new().unwrap();
        let path = dir.path().join("exe");
        std::fs::write(&path, "one").unwrap();
        let first = fingerprint(&std::fs::metadata(&path).unwrap());
        let fresh = dir.path().join("new");
        std::fs::write(&fresh, "one").unwrap();
        std::fs::rename(&fresh, &path).unwrap();
        assert_ne!(first, fingerprint(&std::fs::metadata(&path).unwrap()));
    }
}
