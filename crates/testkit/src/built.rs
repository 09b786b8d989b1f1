//! A pack whose catalog is part of its executable, so that a test can make several builds of it.
//!
//! [`install`] puts a copy of `misbehaving-worker` with a catalog at its end in the place of another build,
//! in one step, as a linker or an installer does. `misbehaving-worker built` announces that catalog. Each of
//! its tools answers `{"build": ..., "arguments": ...}`, where `build` is the tool's `toolingVersion`. Two
//! names mean more: `hold` first waits until the file named by its argument `until` is there, and `die`
//! ends the worker.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use mainstay_contract::json::Json;
use mainstay_contract::replay::Replay;
use mainstay_contract::tool::{Annotations, Catalog, Pace, Rejections, ToolSpec};
use serde_json::{Value, json};

use crate::process::binary;

/// Bytes at the end that hold the length of the catalog.
const LENGTH: i64 = 8;

/// A tool of such a pack, in the first version, with any object as its arguments.
pub fn tool(name: &str, build: &str) -> ToolSpec {
    ToolSpec {
        name: name.to_owned(),
        description: "Answers with its build.".to_owned(),
        input_schema: json!({ "type": "object" }),
        output_schema: None,
        annotations: Annotations::default(),
        schema_version: 1,
        tooling_version: build.to_owned(),
        replay: Replay::NeverReplay,
        timeout_ms: None,
        errors: Vec::new(),
        aliases: Vec::new(),
        argument_aliases: Vec::new(),
        rejections: Rejections::Plain,
        pace: Pace::Short,
        tasks: false,
    }
}

/// A build with these tools. The tool `die` is always there.
pub fn catalog(tools: impl IntoIterator<Item = ToolSpec>) -> Catalog {
    Catalog {
        pack: "built".to_owned(),
        tools: tools.into_iter().chain([tool("die", "any")]).collect(),
        ..Catalog::default()
    }
}

/// The bytes of a build.
pub fn bytes(catalog: &Catalog) -> anyhow::Result<Vec<u8>> {
    let mut bytes = std::fs::read(binary("misbehaving-worker")?)?;
    let catalog = serde_json::to_vec(catalog)?;
    bytes.extend(&catalog);
    bytes.extend(u64::try_from(catalog.len())?.to_le_bytes());
    Ok(bytes)
}

/// Puts a build in its place in one step.
pub fn install(path: &Path, catalog: &Catalog) -> anyhow::Result<()> {
    let next = path.with_extension("next");
    let mut file = File::create(&next)?;
    file.write_all(&bytes(catalog)?)?;
    file.set_permissions(PermissionsExt::from_mode(0o755))?;
    drop(file);
    std::fs::rename(next, path).context("replacing the build")
}

/// The catalog of the running build.
pub(crate) fn own_catalog() -> io::Result<Catalog> {
    let mut file = File::open("/proc/self/exe")?;
    let mut length = [0; 8];
    file.seek(SeekFrom::End(-LENGTH))?;
    file.read_exact(&mut length)?;
    let length = i64::try_from(u64::from_le_bytes(length)).map_err(io::Error::other)?;
    file.seek(SeekFrom::End(-LENGTH - length))?;
    let mut text = Vec::new();
    let length = u64::try_from(length).map_err(io::Error::other)?;
    file.take(length).read_to_end(&mut text)?;
    serde_json::from_slice(&text).map_err(io::Error::other)
}

/// The answer of a tool; `None` if it ends the worker.
pub(crate) fn answer(name: &str, arguments: &Json) -> io::Result<Option<Json>> {
    let catalog = own_catalog()?;
    let arguments = arguments.to_value().map_err(io::Error::other)?;
    if name == "die" {
        return Ok(None);
    }
    if let ("hold", Some(until)) = (name, arguments.get("until").and_then(Value::as_str)) {
        while !Path::new(until).exists() {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    let tool = catalog.tools.iter().find(|tool| tool.name == name);
    let build = tool.map(|tool| tool.tooling_version.as_str());
    Ok(Some(
        json!({ "build": build, "arguments": arguments }).into(),
    ))
}
