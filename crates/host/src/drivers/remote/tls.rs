//! Certificates that are trusted: those of the system, and those of a file.
//!
//! rustls on ring, as everywhere in this tree: no second TLS library, and the static build stays.

use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};

use super::connect::ConnectError;
use crate::files::{self, Links};
use crate::remote::Remote;

/// Bundles of certificates, as the usual systems have them.
const BUNDLES: [&str; 5] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
];
/// Largest file with certificates.
const BUNDLE_BYTES: u64 = 16 * 1024 * 1024;

/// The settings of TLS for a server.
pub(super) fn config(remote: &Remote) -> Result<Arc<ClientConfig>, String> {
    let mut roots = RootCertStore::empty();
    match &remote.system_ca {
        Some(path) => add(&mut roots, path)?,
        None => {
            let found = BUNDLES.iter().map(Path::new).find(|path| path.is_file());
            if found.is_none_or(|path| add(&mut roots, path).is_err()) {
                roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
            }
        }
    }
    if let Some(path) = &remote.ca_file {
        add(&mut roots, path)?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

/// Adds the certificates of a PEM file.
fn add(roots: &mut RootCertStore, path: &Path) -> Result<(), String> {
    let named = |why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
    let read = files::read(path, BUNDLE_BYTES, Links::Follow);
    let (bytes, _) = read.map_err(|error| named(&error))?;
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(&bytes)
        .filter_map(Result::ok)
        .collect();
    // A bundle may hold some that rustls does not know.
    let (added, _) = roots.add_parsable_certificates(certificates);
    match added {
        0 => Err(named(&"the file holds no certificate in PEM form")),
        _ => Ok(()),
    }
}

/// Why a TLS handshake failed, and what helps.
pub(super) fn explain(host: &str, error: &io::Error) -> ConnectError {
    let inner = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match inner {
        Some(rustls::Error::InvalidCertificate(why)) => ConnectError::Setup(format!(
            "the certificate of {host} is not trusted ({why}); name the authority's certificate with --ca FILE"
        )),
        Some(other) => ConnectError::Unreachable(format!("TLS failed: {other}")),
        None => ConnectError::Unreachable(format!("TLS failed: {error}")),
    }
}
