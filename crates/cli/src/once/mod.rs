//! `mainstay once`: a fixed list of requests over HTTP, written down in a log that can be compared.

mod steps;
mod world;

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail};
use mainstay_contract::envelope::log::{Step as Written, record};
use mainstay_contract::envelope::{Asked, Ids, Meta, ResultEnvelope, Route, Transport as Wire};
use mainstay_contract::json::Json;
use mainstay_contract::outcome::Success;
use mainstay_host::config::{Config, EnvelopeMode, IdSource, Transport};
use mainstay_host::{HttpConfig, Level, Log, iso_now};
use mainstay_schema::SchemaRegistry;

use self::steps::{Asks, STEPS, Step};
use self::world::World;
use crate::args::{Once, Packs};
use crate::config_file::ConfigFile;
use crate::environment::Environment;
use crate::exit::{self, Failure, print};
use crate::{VERSION, local, serve, validation_log};

/// Longest answer of a worker in this run.
const WORKER_FRAME: usize = 64 * 1024;
/// Nobody listens there.
const NO_BACKEND: &str = "http://127.0.0.1:1";
/// Time for the host to start, and for each request.
const PATIENCE: Duration = Duration::from_secs(60);
/// Pause between two looks whether the host is ready.
const LOOK: Duration = Duration::from_millis(10);

/// Runs the list and writes the log. Ends with 1 if an answer was not of the kind it should be.
pub(crate) fn run(once: &Once) -> Result<ExitCode, Failure> {
    let began = iso_now();
    let world = World::make()
        .context("cannot make the files of this run")
        .map_err(Failure::input)?;
    let token = token().map_err(Failure::fault)?;
    let (told, bound) = mpsc::sync_channel(1);
    let ids = if once.deterministic_ids {
        IdSource::Deterministic
    } else {
        IdSource::Random
    };
    let config = config(&world, &token, told, ids)?;
    let log = Log::start(Level::Error, serve::redactor(&config));
    let host = std::thread::Builder::new()
        .name("host".into())
        .spawn(move || mainstay_host::serve(config, &log))
        .context("cannot start the host")
        .map_err(Failure::fault)?;
    let asked = bound
        .recv_timeout(PATIENCE)
        .context("the host did not start")
        .and_then(|address| Client::new(address, token, ids).ask_all());
    // The host ends as it would for an operator: what it started goes with it.
    let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::TERM);
    let served = host.join();
    let lines = asked.map_err(Failure::fault)?;
    match served {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => return Err(Failure::fault(error)),
        Err(_) => return Err(Failure::fault(anyhow!("the host broke"))),
    }
    let text: String = lines
        .iter()
        .map(|line| format!("{}\n", line.text))
        .collect();
    let path = validation_log::folder::write(&once.log_dir, &began, &text)
        .with_context(|| format!("cannot write below {}", once.log_dir.display()))
        .map_err(Failure::input)?;
    let wrong: Vec<&Line> = lines.iter().filter(|line| !line.as_expected).collect();
    for line in &wrong {
        print(&format!("not as it should be: {}\n", line.text))?;
    }
    print(&format!("{} records in {}\n", lines.len(), path.display()))?;
    Ok(ExitCode::from(if wrong.is_empty() {
        exit::SUCCESS
    } else {
        exit::NO
    }))
}

/// A host of its own, which touches nothing of the user's.
fn config(
    world: &World,
    token: &str,
    told: mpsc::SyncSender<SocketAddr>,
    ids: IdSource,
) -> Result<Config, Failure> {
    let mut environment = Environment::read_for_operator()?;
    environment.schemas_dir = Some(world.path("schemas"));
    environment.examples_dir = Some(world.path("examples"));
    environment.cache_dir = Some(world.path("cache"));
    environment.backend_url = Some(NO_BACKEND.to_owned());
    environment.backend_assets_path = None;
    environment.telemetry = None;
    let packs = Packs {
        roots: vec![world.path("code")],
        ..Packs::default()
    };
    let transport = Transport::Http(HttpConfig {
        approver_token: None,
        address: SocketAddr::from(([127, 0, 0, 1], 0)),
        allow_hosts: Vec::new(),
        token: Some(token.to_owned()),
        issuer: None,
        told: Some(told),
    });
    let mut config = local::config(&packs, &environment, ConfigFile::default(), transport)?;
    config.limits.worker_frame_bytes = WORKER_FRAME;
    config.envelopes = EnvelopeMode::Shadow;
    config.envelope_ids = ids;
    Ok(config)
}

/// A token for this run alone.
fn token() -> anyhow::Result<String> {
    let bytes: [u8; 24] = random()?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn random<const N: usize>() -> anyhow::Result<[u8; N]> {
    let mut bytes = [0; N];
    let flags = rustix::rand::GetRandomFlags::empty();
    if rustix::rand::getrandom(&mut bytes, flags)? != N {
        bail!("the system gave no randomness");
    }
    Ok(bytes)
}

/// One record.
struct Line {
    text: String,
    /// Whether it is the success or the failure that the step stands for.
    as_expected: bool,
}

struct Client {
    base: String,
    token: String,
    ids: IdSource,
    agent: ureq::Agent,
}

impl Client {
    fn new(address: SocketAddr, token: String, ids: IdSource) -> Self {
        let agent = ureq::Agent::config_builder()
            .timeout_global(Some(PATIENCE))
            .http_status_as_error(false)
            .proxy(None)
            .build()
            .new_agent();
        Self {
            base: format!("http://{address}"),
            token,
            ids,
            agent,
        }
    }

    fn ask_all(&self) -> anyhow::Result<Vec<Line>> {
        self.wait_until_ready()?;
        STEPS.iter().map(|step| self.ask(step)).collect()
    }

    fn wait_until_ready(&self) -> anyhow::Result<()> {
        let until = Instant::now() + PATIENCE;
        loop {
            let answer = self.agent.get(format!("{}/readyz", self.base)).call()?;
            if answer.status() == 200 {
                return Ok(());
            }
            if Instant::now() >= until {
                bail!("the host did not get ready");
            }
            std::thread::sleep(LOOK);
        }
    }

    fn ask(&self, step: &Step) -> anyhow::Result<Line> {
        let envelope = match step.asks {
            // These two answer with what they are about alone; its envelope is made here.
            Asks::Catalog => self.read("/v1/tools", true, &Asked::catalog())?,
            Asks::Health => {
                let asked = Asked {
                    route: Route::Health,
                    payload: Json::empty_object(),
                };
                self.read("/healthz", false, &asked)?
            }
            Asks::Tool {
                name,
                arguments,
                is_known,
            } => self.call(name, arguments, is_known)?,
        };
        let code = envelope.result.as_ref().err().map(|error| error.code);
        let written = Written {
            agent: "mainstay",
            task: "once",
            step: step.name,
        };
        Ok(Line {
            text: record(&envelope, written, &iso_now()),
            as_expected: code == step.fails,
        })
    }

    fn read(&self, path: &str, is_known: bool, asked: &Asked) -> anyhow::Result<ResultEnvelope> {
        let started = Instant::now();
        let mut request = self.agent.get(format!("{}{path}", self.base));
        if is_known {
            request = request.header("authorization", format!("Bearer {}", self.token));
        }
        let mut answer = request.call()?;
        if answer.status() != 200 {
            bail!("{path} answers {}", answer.status());
        }
        let text = answer.body_mut().read_to_string()?;
        // The commit it was built from is no part of what is promised.
        let text = text.replace(VERSION, env!("CARGO_PKG_VERSION"));
        let deterministic = self.ids == IdSource::Deterministic;
        let ids = if deterministic {
            Ids::deterministic(asked)
        } else {
            Ids::random(random()?)
        };
        let mut meta = Meta::new(asked, Wire::Http, ids, deterministic);
        meta.duration_ms = started.elapsed().as_secs_f64() * 1000.0;
        let data = Json::parse(&text).with_context(|| format!("{path} answers no JSON"))?;
        Ok(ResultEnvelope::new(meta, &Ok(Success::Members(data))))
    }

    fn call(&self, tool: &str, arguments: &str, is_known: bool) -> anyhow::Result<ResultEnvelope> {
        let mut request = self
            .agent
            .post(format!("{}/v1/tool/{tool}", self.base))
            .header("content-type", "application/json");
        if is_known {
            request = request.header("authorization", format!("Bearer {}", self.token));
        }
        let mut answer = request.send(format!("{{\"arguments\":{arguments}}}"))?;
        let text = answer.body_mut().read_to_string()?;
        let value = serde_json::from_str(&text)?;
        let violations = SchemaRegistry::new().load_envelope()?.check(&value);
        if let Some(first) = violations.first() {
            let (path, message) = (&first.path, &first.message);
            bail!("{tool} answers no envelope: {path} {message}");
        }
        Ok(ResultEnvelope::read(&text)?)
    }
}
