//! What the tests of this pack share: a tree with its pack, and calls.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test file uses a part, and all of it is public to them"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use mainstay_pack_code::{CodeSettings, RootSetting, pack};
use mainstay_worker::testing::{TempDir, run_tool, run_tool_as_json};
use mainstay_worker::{ErrorKind, Pack, Problem};
use serde_json::{Value, json};

/// Every wait of a test ends after this time.
pub const DEADLINE: Duration = Duration::from_secs(240);

/// A directory with a tree and a cache.
pub struct Place {
    pub dir: TempDir,
}

impl Place {
    pub fn new() -> Self {
        let place = Self {
            dir: TempDir::new().unwrap(),
        };
        fs::create_dir(place.root()).unwrap();
        place
    }

    pub fn with(files: &[(&str, &str)]) -> Self {
        let place = Self::new();
        for (path, text) in files {
            place.write(path, text);
        }
        place
    }

    pub fn root(&self) -> PathBuf {
        self.dir.path().join("tree")
    }

    pub fn cache(&self) -> PathBuf {
        self.dir.path().join("cache")
    }

    pub fn write(&self, path: &str, text: impl AsRef<[u8]>) {
        let path = self.root().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Takes the writer's place, as another process would, until it is dropped. There has to have
    /// been an index.
    pub fn hold_writing(&self) -> fs::File {
        let lock = fs::File::options()
            .write(true)
            .open(self.index().join("lock"))
            .unwrap();
        lock.lock().unwrap();
        lock
    }

    /// Removes the manifest and takes the writer's place. In this order a dropped pack, whose
    /// thread may still be publishing symbols, cannot bring the manifest back.
    pub fn remove_index(&self) -> fs::File {
        let lock = self.hold_writing();
        fs::remove_file(self.index().join("manifest")).unwrap();
        lock
    }

    /// The folder of the only index.
    pub fn index(&self) -> PathBuf {
        let mut folders = fs::read_dir(self.cache().join("code")).unwrap();
        folders.next().unwrap().unwrap().path()
    }

    pub fn settings(&self) -> CodeSettings {
        CodeSettings {
            roots: vec![RootSetting::at(self.root())],
            cache_dir: Some(self.cache()),
            ..CodeSettings::default()
        }
    }

    pub fn open(&self) -> Pack {
        pack(&self.settings(), "0.0.0").unwrap()
    }

    /// A pack whose index has no symbols and gets none.
    pub fn built_without_symbols(&self) -> Pack {
        let settings = CodeSettings {
            no_symbols: true,
            ..self.settings()
        };
        let pack = pack(&settings, "0.0.0").unwrap();
        let job = call(&pack, "index_build", &json!({}));
        assert_eq!(job["state"], "done", "{job}");
        pack
    }

    /// A pack whose index is complete.
    pub fn built(&self) -> Pack {
        let pack = self.open();
        let job = call(&pack, "index_build", &json!({}));
        assert_eq!(job["state"], "done", "{job}");
        // A build waits a while for symbols, which are found behind everything else.
        wait_until("all symbols are found", || {
            let status = call(&pack, "index_status", &json!({}));
            status["layers"]["symbols"] == 1.0
        });
        pack
    }
}

pub fn try_call(pack: &Pack, tool: &str, arguments: &Value) -> Result<Value, Problem> {
    run_tool(pack, tool, arguments).map(|reply| reply.json.to_value().unwrap())
}

pub fn call(pack: &Pack, tool: &str, arguments: &Value) -> Value {
    try_call(pack, tool, arguments)
        .unwrap_or_else(|problem| panic!("{tool} {arguments}: {problem:?}"))
}

pub fn search(pack: &Pack, arguments: &Value) -> Value {
    call(pack, "search", arguments)
}

/// Path and line of every match, cursors followed to the end; and the last answer. Asked as a
/// program asks: writing the text of each page takes most of the time of a large comparison.
pub fn all_lines(pack: &Pack, arguments: &Value) -> (Vec<(String, u64)>, Value) {
    let mut arguments = arguments.clone();
    let mut found = Vec::new();
    for _ in 0..10_000 {
        let answer = run_tool_as_json(pack, "search", &arguments)
            .unwrap_or_else(|problem| panic!("search {arguments}: {problem:?}"));
        let answer = answer.json.to_value().unwrap();
        found.extend(lines(&answer));
        match answer["cursor"].as_str() {
            Some(cursor) => arguments["cursor"] = json!(cursor),
            None => return (found, answer),
        }
    }
    panic!("the cursor does not end: {arguments}");
}

/// Path and line of every match in one answer.
pub fn lines(answer: &Value) -> Vec<(String, u64)> {
    let hits = answer["hits"].as_array().unwrap();
    let one = |hit: &Value| {
        let path = hit["path"].as_str().unwrap().to_owned();
        let lines = hit["match_lines"].as_array().unwrap().clone();
        lines
            .into_iter()
            .map(move |line| (path.clone(), line.as_u64().unwrap()))
    };
    hits.iter().flat_map(one).collect()
}

/// Paths of the hits, in their order.
pub fn paths(answer: &Value) -> Vec<String> {
    let hits = answer["hits"].as_array().unwrap();
    hits.iter()
        .map(|hit| hit["path"].as_str().unwrap().to_owned())
        .collect()
}

/// Waits until `holds`.
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !holds() {
        assert!(Instant::now() < deadline, "waited too long until {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The workspace, a real tree.
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}

/// A ripgrep to compare with: the one that `cargo xtask test` installs, or the machine's.
pub fn ripgrep() -> Option<PathBuf> {
    let modules = workspace().join("target/tools/node/node_modules/@vscode");
    let installed = fs::read_dir(modules)
        .ok()
        .into_iter()
        .flatten()
        .filter_map(Result::ok);
    let mut candidates: Vec<PathBuf> = installed
        .map(|entry| entry.path().join("bin/rg"))
        .filter(|path| path.exists())
        .collect();
    candidates.push(PathBuf::from("rg"));
    candidates.into_iter().find(|rg| {
        std::process::Command::new(rg)
            .arg("--version")
            .output()
            .is_ok_and(|out| out.status.success())
    })
}

/// Numbers that look random and are the same every time.
pub struct Dice(pub u64);

impl Dice {
    pub fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % limit as u64).unwrap()
    }
}

/// A little tree with one thing in several languages.
pub const FILES: &[(&str, &str)] = &[
    (
        "src/router.rs",
        "//! Routes requests.\n\npub struct Router {\n    routes: Vec<Route>,\n}\n\nimpl Router {\n    pub fn add_route(&mut self, route: Route) {\n        self.routes.push(route);\n    }\n}\n",
    ),
    (
        "src/main.py",
        "class Router:\n    def add_route(self, route):\n        pass\n\ndef main():\n    Router().add_route('x')\n",
    ),
    (
        "tests/router_test.rs",
        "fn router_works() {\n    let router = Router::default();\n}\n",
    ),
    ("docs/routing.md", "# Routing\n\nThe Router maps paths.\n"),
];

pub fn small_place() -> (Place, Pack) {
    let place = Place::with(FILES);
    let pack = place.built();
    (place, pack)
}

pub fn refused(pack: &Pack, tool: &str, arguments: &Value) -> (ErrorKind, String) {
    let problem = try_call(pack, tool, arguments).unwrap_err();
    (
        problem.kind,
        format!("{} / {}", problem.message, problem.hint.unwrap_or_default()),
    )
}
