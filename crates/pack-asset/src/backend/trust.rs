//! Whose certificates an https backend may have.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use mainstay_worker::Unable;
use ureq::tls::{Certificate, PemItem, RootCerts, parse_pem};

/// Where systems keep the authorities they trust, in one file.
const SYSTEM: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Largest file that is read; the usual ones have a few hundred kilobytes.
const MAX_BYTES: u64 = 4 * 1024 * 1024;

/// The authorities in a file that was named.
pub(super) fn of_file(path: &Path) -> Result<RootCerts, Unable> {
    let unable = |why: &dyn std::fmt::Display| {
        let shown = path.display();
        Unable::new(format_args!(
            "the backend's authorities in {shown} cannot be used ({why}); set backend_ca_file to \
             a PEM file with certificates"
        ))
    };
    let found = read(path).map_err(|error| unable(&error))?;
    if found.is_empty() {
        return Err(unable(&"it holds no certificate"));
    }
    Ok(RootCerts::new_with_certs(&found))
}

/// Those that the system trusts, if it says so in a usual place.
pub(super) fn of_system() -> Option<RootCerts> {
    let found = SYSTEM.iter().find_map(|path| {
        let found = read(Path::new(path)).ok()?;
        (!found.is_empty()).then_some(found)
    });
    found.map(|found| RootCerts::new_with_certs(&found))
}

fn read(path: &Path) -> io::Result<Vec<Certificate<'static>>> {
    let mut pem = Vec::new();
    File::open(path)?.take(MAX_BYTES).read_to_end(&mut pem)?;
    let certificates = parse_pem(&pem).filter_map(|item| match item {
        Ok(PemItem::Certificate(certificate)) => Some(certificate),
        _ => None,
    });
    Ok(certificates.collect())
}
