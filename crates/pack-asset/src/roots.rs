//! Reading a root once, at start, within bounds.
//!
//! [`Root::read`] gives every `*.json` file below a directory with its text. One file that cannot be
//! read is left to the caller; a root that is not a directory or holds too much is a reason not to
//! start.

use std::fmt;
use std::path::Path;

use mainstay_worker::{Digest, RootedDir, Unable, warn};

/// Largest file; a larger one could not be answered within a worker's frame.
const MAX_FILE_BYTES: u64 = 4 * 1024 * 1024;

/// Most files that are read from one root.
const MAX_FILES: usize = 10_000;

/// Most bytes that are read from one root and kept.
const MAX_BYTES: usize = 64 * 1024 * 1024;

/// Ending of the files that are read.
const SUFFIX: &str = ".json";

/// The purpose of a root.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Root<'a> {
    /// `schemas` or `examples`.
    pub(crate) what: &'a str,
    pub(crate) variable: &'a str,
    pub(crate) dir: &'a Path,
}

/// One file.
#[derive(Debug)]
pub(crate) struct File {
    /// Relative to the root, with `/`.
    pub(crate) path: String,
    /// The text, or why there is none.
    pub(crate) text: Result<String, String>,
}

impl Root<'_> {
    /// Reads every JSON file, sorted by path.
    pub(crate) fn read(&self) -> Result<Vec<File>, Unable> {
        let root = RootedDir::open(self.dir)
            .map_err(|error| {
                self.unable(format_args!("cannot be opened as a directory ({error})"))
            })?
            .with_max_file_bytes(MAX_FILE_BYTES);
        let survey = root
            .survey("", true)
            .map_err(|error| self.unable(format_args!("cannot be listed ({error})")))?;
        if survey.too_deep > 0 {
            let (what, number) = (self.what, survey.too_deep);
            warn(
                "too_deep",
                &format!("root={what} {number} directories lie too deep and are not read"),
            );
        }
        let links = survey.unusable_links.iter();
        for link in links.filter(|link| link.ends_with(SUFFIX)) {
            let said = format!("path={link} is a link that leads to no file inside the root");
            warn("unusable_link", &said);
        }
        for dir in &survey.unreadable_dirs {
            let said = format!("path={dir}/ cannot be read; the files in it are not served");
            warn("unreadable", &said);
        }
        let mut paths: Vec<String> = survey.files.into_iter().map(|entry| entry.path).collect();
        // Reading such a file says why it cannot be served.
        paths.extend(survey.unreadable_files);
        paths.retain(|path| path.ends_with(SUFFIX));
        paths.sort_unstable();
        if paths.len() > MAX_FILES {
            let number = paths.len();
            let said = format_args!("holds {number} JSON files; at most {MAX_FILES} are read");
            return Err(self.unable(said));
        }
        let mut files = Vec::with_capacity(paths.len());
        let mut bytes = 0usize;
        for path in paths {
            let text = text_of(&root, &path);
            bytes = bytes.saturating_add(text.as_ref().map_or(0, String::len));
            if bytes > MAX_BYTES {
                let said = format_args!("holds more than {MAX_BYTES} bytes of JSON");
                return Err(self.unable(said));
            }
            files.push(File { path, text });
        }
        Ok(files)
    }

    fn unable(&self, what: impl fmt::Display) -> Unable {
        Unable::new(format_args!(
            "the {} directory {} {what}; set {} to a directory of JSON files, or unset it",
            self.what,
            self.dir.display(),
            self.variable
        ))
    }
}

fn text_of(root: &RootedDir, path: &str) -> Result<String, String> {
    let bytes = root.read(path).map_err(|error| error.to_string())?;
    String::from_utf8(bytes).map_err(|_| "it is not UTF-8".to_owned())
}

/// Names and bytes of all files in one fingerprint; of a file that cannot be read, its name.
pub(crate) fn fingerprint(files: &[File]) -> String {
    let digest = files.iter().fold(Digest::default(), |digest, file| {
        let text = file.text.as_ref().map_or("", String::as_str);
        digest.part(file.path.as_bytes()).part(text.as_bytes())
    });
    digest.hex()
}
