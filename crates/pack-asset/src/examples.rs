//! The examples of a root, read once.

use mainstay_worker::{Json, Unable, warn};

use crate::exact::{Exact, Kind};
use crate::naming;
use crate::paths;
use crate::roots::{self, Root};

/// One example.
#[derive(Debug)]
pub(crate) struct Example {
    /// The file's name up to its first dot.
    pub(crate) component: String,
    /// Relative to the root, with `/`.
    pub(crate) path: String,
    /// The name of its schema, by the example's own word or its file's name.
    pub(crate) schema: String,
    /// The file as it is.
    pub(crate) text: String,
}

impl Example {
    /// The document as one line, otherwise byte for byte.
    pub(crate) fn document(&self) -> Json {
        Json::from_scanned(self.text.trim())
    }
}

/// All examples, sorted by component and path.
#[derive(Debug, Default)]
pub(crate) struct Examples {
    list: Vec<Example>,
    fingerprint: String,
}

impl Examples {
    /// Reads every example. A file that is not a JSON object is left out with a warning.
    pub(crate) fn load(root: &Root<'_>) -> Result<Self, Unable> {
        let files = root.read()?;
        let fingerprint = roots::fingerprint(&files);
        let mut list = Vec::with_capacity(files.len());
        for file in files {
            let path = file.path;
            match file.text.and_then(|text| example(&path, text)) {
                Ok(example) => list.push(example),
                Err(why) => warn("broken_example", &format!("path={path} {why}")),
            }
        }
        list.sort_by(|a, b| (&a.component, &a.path).cmp(&(&b.component, &b.path)));
        Ok(Self { list, fingerprint })
    }

    pub(crate) fn list(&self) -> &[Example] {
        &self.list
    }

    /// The fingerprint of the root: empty where there is none.
    pub(crate) fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// An example by its path.
    pub(crate) fn find(&self, path: &str) -> Option<&Example> {
        let path = paths::plain(path);
        self.list.iter().find(|example| example.path == path)
    }
}

fn example(path: &str, text: String) -> Result<Example, String> {
    // The parser for the grammar, then our own reader for what it lets pass.
    let json = Json::parse(&text).map_err(|error| error.to_string())?;
    let document = Exact::parse(json.as_str())
        .map_err(|wrong| format!("at \"{}\": {}", wrong.path, wrong.message))?;
    if !matches!(document.kind, Kind::Object(_)) {
        return Err("it is not a JSON object".to_owned());
    }
    let file = path.rsplit('/').next().unwrap_or(path);
    let component = naming::component(file);
    let schema = naming::own_name(&document).unwrap_or_else(|| naming::name_of_file(component));
    Ok(Example {
        component: component.to_owned(),
        path: path.to_owned(),
        schema,
        text,
    })
}
