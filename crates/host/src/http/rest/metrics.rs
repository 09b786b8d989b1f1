//! `/metrics`: what is counted, in the text format of Prometheus.

use std::fmt::{Display, Write as _};
use std::sync::atomic::Ordering;

use mainstay_contract::error::ErrorKind;
use mainstay_contract::health::{Health, Lifecycle};
use mainstay_contract::metrics::{HostMetrics, LATENCY_BOUNDS_US, PackMetrics, RefusalMetrics};
use mainstay_contract::outcome::Problem;

use super::super::Front;
use super::super::respond::{self, Answer, Tongue};
use super::diagnostics::counted;
use crate::envelopes::Latencies;

const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

pub(super) async fn answer(front: &Front) -> Answer {
    let (Some(status), Some(counted)) = (front.status().await, counted(front).await) else {
        return respond::refuse(&Problem::of(ErrorKind::ShuttingDown), Tongue::Plain);
    };
    let mut page = Page::default();
    page.family("mainstay_build_info", "gauge", "The build that runs.");
    page.sample("", &[("version", &status.version)], 1);
    requests(&mut page, &counted);
    health(&mut page, &status.health, counted.restart_count);
    packs(&mut page, &counted);
    refused(&mut page, &counted.refused);
    envelopes(&mut page, front);
    http(&mut page, front);
    respond::typed(TEXT, page.0)
}

fn requests(page: &mut Page, counted: &HostMetrics) {
    page.family(
        "mainstay_requests_total",
        "counter",
        "Requests that ended, by how they did: success, error, or lost with a worker or client.",
    );
    for of in &counted.methods {
        let (method, tool) = (of.method.as_str(), of.tool.as_deref().unwrap_or_default());
        let lost = of.counts.transport_fault_count;
        let failed = of.counts.response_error_count.saturating_sub(lost);
        for (outcome, count) in [
            ("success", of.counts.success_count),
            ("error", failed),
            ("lost", lost),
        ] {
            let labels = [("method", method), ("tool", tool), ("outcome", outcome)];
            page.sample("", &labels, count);
        }
    }
    page.family(
        "mainstay_replays_total",
        "counter",
        "Times that a request was sent to a worker again.",
    );
    for of in &counted.methods {
        let tool = of.tool.as_deref().unwrap_or_default();
        let labels = [("method", of.method.as_str()), ("tool", tool)];
        page.sample("", &labels, of.counts.retry_count);
    }
    page.family(
        "mcp_server_operation_duration_seconds",
        "histogram",
        "From the acceptance of a request to its end.",
    );
    for of in &counted.methods {
        let tool = of.tool.as_deref().unwrap_or_default();
        let labels = [
            ("mcp_method_name", of.method.as_str()),
            ("gen_ai_tool_name", tool),
        ];
        let bounds = LATENCY_BOUNDS_US.map(seconds_of_micros);
        let sum = seconds_of_micros(of.latency_sum_us);
        page.histogram(&labels, &bounds, &of.latencies, sum);
    }
}

fn health(page: &mut Page, health: &Health, restarts: u64) {
    page.family("mainstay_workers", "gauge", "Workers, by their state.");
    for state in Lifecycle::ALL {
        let workers = health.workers.iter();
        let count = workers.filter(|worker| worker.state == *state).count();
        page.sample("", &[("state", state.as_str())], count);
    }
    page.single(
        ("mainstay_worker_restarts_total", "counter"),
        "Workers that were replaced after a fault.",
        restarts,
    );
    for (name, help, value) in [
        (
            "mainstay_queue_depth",
            "Calls that wait for a worker.",
            health.queue_depth,
        ),
        (
            "mainstay_in_flight",
            "Calls that workers work on.",
            health.in_flight,
        ),
        (
            "mainstay_sessions",
            "Clients that are connected.",
            health.sessions,
        ),
    ] {
        page.single((name, "gauge"), help, value);
    }
    page.single(
        ("mainstay_uptime_seconds", "gauge"),
        "Time since the start.",
        seconds_of_micros(health.uptime_ms.saturating_mul(1000)),
    );
}

fn packs(page: &mut Page, counted: &HostMetrics) {
    page.family(
        "mainstay_pack_lost_total",
        "counter",
        "Processes of a pack or server that were lost after a fault.",
    );
    for (name, pack) in &counted.packs {
        page.sample("", &[("pack", name.as_str())], pack.lost);
    }
    type Value = fn(&PackMetrics) -> usize;
    let gauges: [(&str, &str, Value); 3] = [
        (
            "mainstay_pack_ready",
            "Processes of a pack or server that serve calls.",
            |pack| pack.ready,
        ),
        (
            "mainstay_pack_queue_depth",
            "Calls that wait for a process of a pack or server.",
            |pack| pack.queue_depth,
        ),
        (
            "mainstay_pack_in_flight",
            "Calls that processes of a pack or server work on.",
            |pack| pack.in_flight,
        ),
    ];
    for (name, help, value) in gauges {
        page.family(name, "gauge", help);
        for (pack, metrics) in &counted.packs {
            page.sample("", &[("pack", pack.as_str())], value(metrics));
        }
    }
}

fn refused(page: &mut Page, refused: &RefusalMetrics) {
    page.family(
        "mainstay_calls_refused_total",
        "counter",
        "Tool calls that were not run: their caller had used up a quota, or repeated a failing call.",
    );
    for (reason, count) in [
        ("calls", refused.calls),
        ("bytes_in", refused.bytes_in),
        ("bytes_out", refused.bytes_out),
        ("tool_ms", refused.tool_ms),
        ("repeated_failure", refused.repeated_failures),
    ] {
        page.sample("", &[("reason", reason)], count);
    }
}

fn envelopes(page: &mut Page, front: &Front) {
    let checks = front.envelopes.checks();
    page.family(
        "mainstay_envelope_validations_total",
        "counter",
        "Envelopes of ours that were checked against their own schema.",
    );
    page.sample("", &[("result", "success")], checks.success_count);
    page.sample("", &[("result", "failure")], checks.failure_count);
    page.family(
        "mainstay_envelope_validation_duration_seconds",
        "histogram",
        "How long such a check took.",
    );
    let Latencies {
        bounds_us,
        counts,
        sum_ns,
    } = front.envelopes.latencies();
    let bounds: Vec<f64> = bounds_us.iter().copied().map(seconds_of_micros).collect();
    page.histogram(&[], &bounds, &counts, seconds_of_micros(sum_ns) / 1e3);
}

fn http(page: &mut Page, front: &Front) {
    let counts = &front.counts;
    page.family(
        "mainstay_http_requests_total",
        "counter",
        "Answered HTTP requests, by route and class of status.",
    );
    for (route, class, count) in counts.requests() {
        page.sample("", &[("route", route), ("status", &class)], count);
    }
    page.single(
        ("mainstay_http_requests_in_flight", "gauge"),
        "HTTP requests that are being answered, this one included.",
        front.in_flight.load(Ordering::Relaxed),
    );
    page.single(
        ("mainstay_http_connections", "gauge"),
        "Open HTTP connections.",
        counts.connections.load(Ordering::Relaxed),
    );
    page.single(
        ("mainstay_http_connections_accepted_total", "counter"),
        "HTTP connections that were accepted.",
        counts.connections_total.load(Ordering::Relaxed),
    );
    page.single(
        ("mainstay_http_connections_refused_total", "counter"),
        "HTTP connections that were turned away because there were too many.",
        counts.turned_away_total.load(Ordering::Relaxed),
    );
    page.family(
        "mainstay_http_access_refused_total",
        "counter",
        "Requests whose access was refused, by reason.",
    );
    for (reason, count) in front.refusals.counts() {
        page.sample("", &[("reason", reason)], count);
    }
    page.single(
        ("mainstay_http_sessions", "gauge"),
        "MCP sessions over HTTP.",
        front.table.sessions(),
    );
}

/// A page of metrics.
#[derive(Debug, Default)]
struct Page(String, &'static str);

impl Page {
    /// Begins a family; samples follow.
    fn family(&mut self, name: &'static str, kind: &str, help: &str) {
        self.1 = name;
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// A family of one sample without labels.
    fn single(&mut self, (name, kind): (&'static str, &str), help: &str, value: impl Display) {
        self.family(name, kind, help);
        self.sample("", &[], value);
    }

    fn sample(&mut self, suffix: &str, labels: &[(&str, &str)], value: impl Display) {
        let _ = write!(self.0, "{}{suffix}", self.1);
        for (index, (name, value)) in labels.iter().enumerate() {
            self.0.push(if index == 0 { '{' } else { ',' });
            let _ = write!(self.0, "{name}=\"");
            for letter in value.chars() {
                match letter {
                    '\\' => self.0.push_str("\\\\"),
                    '"' => self.0.push_str("\\\""),
                    '\n' => self.0.push_str("\\n"),
                    letter => self.0.push(letter),
                }
            }
            self.0.push('"');
        }
        let end = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.0, "{end} {value}");
    }

    /// The samples of a histogram; `counts` are of each bucket alone, the last one has no bound.
    fn histogram(&mut self, labels: &[(&str, &str)], bounds: &[f64], counts: &[u64], sum: f64) {
        let mut seen = 0;
        for (index, bound) in bounds.iter().enumerate() {
            seen += counts.get(index).copied().unwrap_or_default();
            let bound = bound.to_string();
            let labels = [labels, &[("le", bound.as_str())]].concat();
            self.sample("_bucket", &labels, seen);
        }
        let total: u64 = counts.iter().sum();
        self.sample("_bucket", &[labels, &[("le", "+Inf")]].concat(), total);
        self.sample("_sum", labels, sum);
        self.sample("_count", labels, total);
    }
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
fn seconds_of_micros(micros: u64) -> f64 {
    micros as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped_and_buckets_are_cumulative() {
        let mut page = Page::default();
        page.family("x_seconds", "histogram", "Help.");
        let labels = [("tool", "a\"b\\c\nd")];
        page.histogram(&labels, &[0.0001, 1.0], &[2, 1, 4], 7.5);
        assert_eq!(
            page.0,
            concat!(
                "# HELP x_seconds Help.\n# TYPE x_seconds histogram\n",
                "x_seconds_bucket{tool=\"a\\\"b\\\\c\\nd\",le=\"0.0001\"} 2\n",
                "x_seconds_bucket{tool=\"a\\\"b\\\\c\\nd\",le=\"1\"} 3\n",
                "x_seconds_bucket{tool=\"a\\\"b\\\\c\\nd\",le=\"+Inf\"} 7\n",
                "x_seconds_sum{tool=\"a\\\"b\\\\c\\nd\"} 7.5\n",
                "x_seconds_count{tool=\"a\\\"b\\\\c\\nd\"} 7\n",
            )
        );
    }
}
