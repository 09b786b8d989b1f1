//! A browser that a test drives: Chromium behind its WebDriver.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use mainstay_testkit::process::{TempDir, program};
use serde_json::{Value, json};

/// For anything that a page shows in the end.
const PATIENCE: Duration = Duration::from_secs(120);
const STEP: Duration = Duration::from_millis(50);
/// The name under which WebDriver gives the id of an element.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// A browser with one window.
pub struct Browser {
    driver: Child,
    url: String,
    _profile: TempDir,
}

impl Browser {
    /// Starts a browser. `None` where it is not installed; in CI that is an error.
    pub fn start() -> Option<Self> {
        let folder = Path::new("/usr/bin");
        let both = (program("chromedriver", folder), program("chromium", folder));
        let (Some(driver), Some(chromium)) = both else {
            let in_ci = std::env::vars().any(|(name, value)| name == "CI" && value == "true");
            assert!(
                !in_ci,
                "Chromium is not installed, and in CI nothing is skipped"
            );
            println!("skipped: Chromium is not installed; cargo xtask tools --install installs it");
            return None;
        };
        let profile = TempDir::new().unwrap();
        let mut driver = Command::new(driver)
            .arg("--port=0")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(driver.stdout.take().unwrap())
            .lines()
            .map(Result::unwrap);
        let ready = lines
            .find(|line| line.contains("started successfully on port"))
            .unwrap();
        // The driver must not write into a closed pipe.
        std::thread::spawn(move || lines.for_each(drop));
        let port: String = ready
            .rsplit("port ")
            .next()
            .unwrap()
            .chars()
            .filter(char::is_ascii_digit)
            .collect();
        let mut browser = Self {
            driver,
            url: format!("http://127.0.0.1:{port}/session"),
            _profile: profile,
        };
        let arguments = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
        ];
        let mut arguments: Vec<String> = arguments.map(str::to_owned).to_vec();
        arguments.push(format!(
            "--user-data-dir={}",
            browser._profile.path().display()
        ));
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "browserName": "chrome",
            "goog:chromeOptions": {"binary": chromium, "args": arguments},
            "goog:loggingPrefs": {"browser": "ALL"},
        }}});
        let url = browser.url.clone();
        let session = send("POST", &url, &wanted);
        let id = session["sessionId"].as_str().unwrap();
        browser.url = format!("{url}/{id}");
        Some(browser)
    }

    fn post(&self, path: &str, body: &Value) -> Value {
        send("POST", &format!("{}/{path}", self.url), body)
    }

    pub fn open(&self, url: &str) {
        self.post("url", &json!({ "url": url }));
    }

    /// The value of a script's body.
    pub fn script(&self, body: &str) -> Value {
        self.post("execute/sync", &json!({"script": body, "args": []}))
    }

    /// Waits until an expression is true.
    pub fn wait(&self, expression: &str) {
        let deadline = Instant::now() + PATIENCE;
        while self.script(&format!("return Boolean({expression})")) != json!(true) {
            if Instant::now() > deadline {
                let text = self.script("return document.body.innerText");
                panic!(
                    "never true: {expression}\n{}\n{:#}",
                    text.as_str().unwrap(),
                    self.log()
                );
            }
            std::thread::sleep(STEP);
        }
    }

    /// The text that a person sees in an element.
    pub fn text(&self, selector: &str) -> String {
        let script = format!("return document.querySelector({selector:?}).innerText");
        self.script(&script).as_str().unwrap().to_owned()
    }

    fn element(&self, selector: &str) -> String {
        let found = self.post(
            "element",
            &json!({"using": "css selector", "value": selector}),
        );
        found[ELEMENT].as_str().unwrap().to_owned()
    }

    /// Clicks as a person does: the element must be visible. The page draws parts of itself anew each second, so an
    /// element that was found may be gone by then, and is looked for again.
    pub fn click(&self, selector: &str) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let element = self.element(selector);
            let url = format!("{}/element/{element}/click", self.url);
            let value = ask("POST", &url, &json!({}));
            match value["error"].as_str() {
                None => return,
                Some("stale element reference") if Instant::now() < deadline => {}
                Some(_) => panic!("{selector}: {value:#}"),
            }
        }
    }

    /// Types as a person does.
    pub fn type_into(&self, selector: &str, text: &str) {
        let element = self.element(selector);
        self.post(
            &format!("element/{element}/value"),
            &json!({ "text": text }),
        );
    }

    pub fn resize(&self, width: u32, height: u32) {
        let metrics =
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.command("Emulation.setDeviceMetricsOverride", &metrics);
    }

    pub fn dark(&self, is_dark: bool) {
        let value = if is_dark { "dark" } else { "light" };
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": value}]});
        self.command("Emulation.setEmulatedMedia", &features);
    }

    fn command(&self, name: &str, parameters: &Value) {
        self.post(
            "goog/cdp/execute",
            &json!({"cmd": name, "params": parameters}),
        );
    }

    /// A picture of the window, as PNG in base64.
    pub fn screenshot(&self) -> String {
        let picture = send("GET", &format!("{}/screenshot", self.url), &Value::Null);
        picture.as_str().unwrap().to_owned()
    }

    /// The messages of the browser's console.
    pub fn log(&self) -> Value {
        self.post("se/log", &json!({"type": "browser"}))
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = agent().delete(&self.url).call();
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

/// A command of WebDriver and its value, which is not an error.
fn send(method: &str, url: &str, body: &Value) -> Value {
    let value = ask(method, url, body);
    assert!(value.get("error").is_none(), "{method} {url}: {value:#}");
    value
}

/// A command of WebDriver and its value.
fn ask(method: &str, url: &str, body: &Value) -> Value {
    let sent = match method {
        "GET" => agent().get(url).call(),
        _ => agent()
            .post(url)
            .content_type("application/json")
            .send(body.to_string()),
    };
    let mut answer = sent.unwrap();
    let text = answer
        .body_mut()
        .with_config()
        .limit(64 << 20)
        .read_to_string()
        .unwrap();
    let mut value: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}"));
    value["value"].take()
}

/// Speaks to the driver itself, not to a proxy of the environment.
fn agent() -> ureq::Agent {
    let config = ureq::Agent::config_builder()
        .proxy(None)
        .http_status_as_error(false)
        .timeout_global(Some(PATIENCE));
    config.build().into()
}
