//! Compares `kind: references` with a language server: precision and recall by lines, for names
//! that were drawn by a seed.
//!
//! ```text
//! references CACHE SEED NAMES ROOT ENDING SERVER...
//! references /tmp/cache 7 100 click/src py pyright-langserver --stdio
//! ```
//!
//! clangd needs a compile_commands.json in ROOT and an index of it (`--background-index`, run before): without them it
//! knows the open files alone.
//!
//! Ours are the lines with a role other than `mention`, definitions included; the server's include
//! the declaration. A name is left out that the server knows nothing of, or that stands for several
//! definitions: names are not resolved to types here.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a program for developers that fails by panicking"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use mainstay_pack_code::{CodeSettings, RootSetting, pack};
use mainstay_worker::Pack;
use mainstay_worker::testing::run_tool;
use serde_json::{Value, json};

type Lines = BTreeSet<(String, u64)>;

/// A language server over standard input and output.
struct Server {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    next: u64,
}

impl Server {
    fn start(command: &[String], root: &Path) -> Self {
        let mut child = Command::new(&command[0])
            .args(&command[1..])
            .current_dir(root)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut server = Self {
            input: child.stdin.take().unwrap(),
            output: BufReader::new(child.stdout.take().unwrap()),
            child,
            next: 0,
        };
        let uri = format!("file://{}", root.display());
        server.ask(
            "initialize",
            &json!({"processId": null, "rootUri": uri, "capabilities": {},
                "workspaceFolders": [{"uri": uri, "name": "root"}]}),
        );
        server.send(&json!({"method": "initialized", "params": {}}));
        server
    }

    fn send(&mut self, message: &Value) {
        let mut message = message.clone();
        message["jsonrpc"] = json!("2.0");
        let text = message.to_string();
        write!(self.input, "Content-Length: {}\r\n\r\n{text}", text.len()).unwrap();
        self.input.flush().unwrap();
    }

    fn receive(&mut self) -> Value {
        let mut length = 0;
        loop {
            let mut line = String::new();
            assert!(
                self.output.read_line(&mut line).unwrap() > 0,
                "the server ended"
            );
            if line.trim().is_empty() {
                break;
            }
            if let Some(number) = line.to_lowercase().strip_prefix("content-length:") {
                length = number.trim().parse().unwrap();
            }
        }
        let mut bytes = vec![0; length];
        self.output.read_exact(&mut bytes).unwrap();
        serde_json::from_slice(&bytes).unwrap()
    }

    fn ask(&mut self, method: &str, params: &Value) -> Value {
        self.next += 1;
        let id = self.next;
        self.send(&json!({"id": id, "method": method, "params": params}));
        loop {
            let message = self.receive();
            if message.get("method").is_none() && message["id"] == id {
                return message["result"].clone();
            }
            if let (Some(asked), true) = (message.get("id"), message.get("method").is_some()) {
                // It asks for settings and the like: there are none.
                let items = message["params"]["items"].as_array().map_or(0, Vec::len);
                let result = if items > 0 {
                    json!(vec![Value::Null; items])
                } else {
                    Value::Null
                };
                self.send(&json!({"id": asked, "result": result}));
            }
        }
    }

    fn open(&mut self, root: &Path, path: &str, ending: &str) {
        let text = std::fs::read_to_string(root.join(path)).unwrap();
        let language = match ending {
            "py" => "python",
            "ts" => "typescript",
            other => other,
        };
        let uri = format!("file://{}", root.join(path).display());
        self.send(
            &json!({"method": "textDocument/didOpen", "params": {"textDocument":
            {"uri": uri, "languageId": language, "version": 1, "text": text}}}),
        );
    }

    fn close(&mut self, root: &Path, path: &str) {
        let uri = format!("file://{}", root.join(path).display());
        self.send(
            &json!({"method": "textDocument/didClose", "params": {"textDocument": {"uri": uri}}}),
        );
    }

    fn references(&mut self, root: &Path, path: &str, line: u64, column: usize) -> Lines {
        let uri = format!("file://{}", root.join(path).display());
        let found = self.ask(
            "textDocument/references",
            &json!({"textDocument": {"uri": uri}, "position": {"line": line - 1, "character": column},
                "context": {"includeDeclaration": true}}),
        );
        let prefix = format!("file://{}/", root.display());
        let one = |place: &Value| {
            let uri = place["uri"].as_str()?.replace("%40", "@");
            let path = uri.strip_prefix(&prefix)?.to_owned();
            Some((path, place["range"]["start"]["line"].as_u64()? + 1))
        };
        found
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(one)
            .collect()
    }
}

/// All files with an ending.
fn files(pack: &Pack, ending: &str) -> Vec<String> {
    let mut arguments = json!({"query": format!("*.{ending}"), "kind": "path", "limit": 200});
    let mut found = Vec::new();
    loop {
        let answer = run_tool(pack, "search", &arguments)
            .unwrap()
            .json
            .to_value()
            .unwrap();
        let hits = answer["hits"].as_array().unwrap().iter();
        found.extend(hits.map(|hit| hit["path"].as_str().unwrap().to_owned()));
        match answer["cursor"].as_str() {
            Some(cursor) => arguments["cursor"] = json!(cursor),
            None => return found,
        }
    }
}

fn ours(pack: &Pack, name: &str) -> Lines {
    let mut arguments =
        json!({"query": name, "kind": "references", "limit": 200, "max_bytes": 1_000_000});
    let mut found = Lines::new();
    loop {
        let answer = run_tool(pack, "search", &arguments)
            .unwrap()
            .json
            .to_value()
            .unwrap();
        for key in ["definitions", "hits"] {
            for hit in answer[key].as_array().into_iter().flatten() {
                if hit["kind"] != "mention" {
                    let line = hit["match_lines"][0].as_u64().unwrap();
                    found.insert((hit["path"].as_str().unwrap().to_owned(), line));
                }
            }
        }
        match answer["cursor"].as_str() {
            Some(cursor) => arguments["cursor"] = json!(cursor),
            None => return found,
        }
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [cache, seed, names, root, ending, server @ ..] = arguments.as_slice() else {
        println!("see the head of examples/references.rs");
        return;
    };
    let root = PathBuf::from(root).canonicalize().unwrap();
    let settings = CodeSettings {
        roots: vec![RootSetting::at(&root)],
        cache_dir: Some(PathBuf::from(cache)),
        ..CodeSettings::default()
    };
    let pack = pack(&settings, "0.0.0").unwrap();
    let _ = run_tool(&pack, "index_build", &json!({})).unwrap();
    let mut defined: BTreeMap<String, Vec<(String, u64)>> = BTreeMap::new();
    let mut server = Server::start(server, &root);
    // A server with a list of compile commands has an index of all files and needs one to be open.
    let is_indexed = root.join("compile_commands.json").exists();
    let paths = files(&pack, ending);
    for path in &paths {
        if !is_indexed {
            server.open(&root, path, ending);
        }
        let outline = run_tool(
            &pack,
            "show_file",
            &json!({"path": path, "outline": true, "max_bytes": 2_000_000}),
        );
        for entry in outline.unwrap().json.to_value().unwrap()["outline"]
            .as_array()
            .unwrap()
        {
            let place = (path.clone(), entry["start_line"].as_u64().unwrap());
            defined
                .entry(entry["name"].as_str().unwrap().to_owned())
                .or_default()
                .push(place);
        }
    }
    let mut once: Vec<(String, (String, u64))> = defined
        .into_iter()
        .filter(|(name, places)| name.len() > 2 && places.len() == 1)
        .map(|(name, mut places)| (name, places.remove(0)))
        .collect();
    let mut state = seed.parse::<u64>().unwrap() * 2 + 1;
    let (mut both, mut mine, mut theirs, mut asked) = (0, 0, 0, 0);
    while asked < names.parse::<usize>().unwrap() && !once.is_empty() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let at = usize::try_from(state % once.len() as u64).unwrap();
        let (name, (path, line)) = once.swap_remove(at);
        let text = std::fs::read_to_string(root.join(&path)).unwrap();
        let own = text
            .lines()
            .nth(usize::try_from(line).unwrap() - 1)
            .unwrap_or_default();
        let Some(column) = own.find(&name) else {
            continue;
        };
        if is_indexed {
            server.open(&root, &path, ending);
        }
        let expected = server.references(&root, &path, line, column);
        if is_indexed {
            server.close(&root, &path);
        }
        if expected.len() < 2 {
            continue;
        }
        asked += 1;
        let found = ours(&pack, &name);
        let shared = found.intersection(&expected).count();
        if shared < expected.len() || shared < found.len() {
            let missed: Vec<_> = expected.difference(&found).take(2).collect();
            let more: Vec<_> = found.difference(&expected).take(2).collect();
            println!(
                "    {name}: {shared} of {} found, {} in all; missed {missed:?}, more {more:?}",
                expected.len(),
                found.len()
            );
        }
        both += shared;
        mine += found.len();
        theirs += expected.len();
    }
    println!(
        "{asked} names: precision {:.3} ({both} of {mine} lines), recall {:.3} ({both} of {theirs})",
        f64::from(u32::try_from(both).unwrap()) / mine.max(1) as f64,
        f64::from(u32::try_from(both).unwrap()) / theirs.max(1) as f64
    );
    let _ = server.child.kill();
}
