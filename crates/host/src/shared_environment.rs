//! The environment of shared servers.

/// Variables that a shared server gets, beside those that its entry names. Clients that differ only in others
/// share it. `docs/share.md` lists them.
const VARIABLES: [&str; 25] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "LANG",
    "LANGUAGE",
    "TZ",
    "TMPDIR",
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NODE_EXTRA_CA_CERTS",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
];
/// The beginning of the other variables of a locale.
const LOCALE: &str = "LC_";

/// True for a variable that every shared server gets.
pub fn is_shared_variable(name: &str) -> bool {
    VARIABLES.contains(&name) || name.starts_with(LOCALE)
}
