//! OpenTelemetry's own variables, as far as they are needed here.

use mainstay_contract::uri::decode_lossy;
use mainstay_host::OtlpConfig;

use crate::VERSION;

/// Where spans go, and what they say about this service.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Collector {
    traces: Option<String>,
    metrics: Option<String>,
    headers: Vec<(String, String)>,
    service: Option<String>,
    attributes: Vec<(String, String)>,
}

impl std::fmt::Debug for Collector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Collector")
            .field("traces", &self.traces)
            .field("metrics", &self.metrics)
            .finish_non_exhaustive()
    }
}

impl Collector {
    /// Reads the variables; nothing is sent unless one of them names a place.
    pub(super) fn from(get: impl Fn(&str) -> Option<String>) -> Result<Option<Self>, String> {
        let disabled = get("OTEL_SDK_DISABLED").is_some_and(|off| off.eq_ignore_ascii_case("true"));
        let protocol = get("OTEL_EXPORTER_OTLP_PROTOCOL");
        let (headers, named) = (get("OTEL_EXPORTER_OTLP_HEADERS"), get("OTEL_SERVICE_NAME"));
        let attributes = pairs(get("OTEL_RESOURCE_ATTRIBUTES"));
        let base = get("OTEL_EXPORTER_OTLP_ENDPOINT");
        let place = |name: &str, path: &str| {
            let base = base.as_deref().map(|base| base.trim_end_matches('/'));
            get(name).or_else(|| base.map(|base| format!("{base}{path}")))
        };
        let traces = place("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "/v1/traces");
        let metrics = place("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "/v1/metrics");
        if disabled || (traces.is_none() && metrics.is_none()) {
            return Ok(None);
        }
        if protocol.is_some_and(|protocol| protocol == "grpc") {
            return Err(
                "OTEL_EXPORTER_OTLP_PROTOCOL is grpc; set it to http/json and the endpoint to the \
                 collector's HTTP port, usually 4318"
                    .to_owned(),
            );
        }
        let is_url = |url: &String| url.starts_with("http://") || url.starts_with("https://");
        if !traces.iter().chain(&metrics).all(is_url) {
            return Err(
                "OTEL_EXPORTER_OTLP_ENDPOINT cannot be used; set it to a URL such as \
                 http://127.0.0.1:4318"
                    .to_owned(),
            );
        }
        let is_name = |(key, _): &&(String, String)| key == "service.name";
        let service = attributes
            .iter()
            .find(is_name)
            .map(|(_, name)| name.clone());
        Ok(Some(Self {
            traces,
            metrics,
            headers: pairs(headers),
            service: named.or(service),
            attributes: attributes
                .into_iter()
                .filter(|(key, _)| key != "service.name")
                .collect(),
        }))
    }

    /// The same for a host that is called `name` unless a variable says otherwise.
    pub(crate) fn config(self, name: &str) -> OtlpConfig {
        OtlpConfig {
            traces: self.traces,
            metrics: self.metrics,
            headers: self.headers,
            service: self.service.unwrap_or_else(|| name.to_owned()),
            attributes: self.attributes,
            version: VERSION.to_owned(),
        }
    }
}

/// `key=value,key=value`; what is not of this form is left out.
fn pairs(text: Option<String>) -> Vec<(String, String)> {
    let text = text.unwrap_or_default();
    let pairs = text.split(',').filter_map(|pair| pair.split_once('='));
    pairs
        .map(|(key, value)| {
            (
                key.trim().to_owned(),
                decode_lossy(value.trim()).into_owned(),
            )
        })
        .filter(|(key, _)| !key.is_empty())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Option<Collector>, String> {
        Collector::from(|name| {
            let found = variables.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn one_place_serves_both_and_each_can_have_its_own() {
        let both = read(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318/")])
            .unwrap()
            .unwrap();
        assert_eq!(both.traces.as_deref(), Some("http://c:4318/v1/traces"));
        assert_eq!(both.metrics.as_deref(), Some("http://c:4318/v1/metrics"));
        let own = read(&[("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://t/x")])
            .unwrap()
            .unwrap();
        assert_eq!(
            (own.traces.as_deref(), own.metrics),
            (Some("https://t/x"), None)
        );
    }

    #[test]
    fn nothing_is_sent_unless_a_place_is_named() {
        assert_eq!(read(&[("OTEL_SERVICE_NAME", "x")]), Ok(None));
        let off = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c"),
            ("OTEL_SDK_DISABLED", "true"),
        ];
        assert_eq!(read(&off), Ok(None));
    }

    #[test]
    fn a_place_that_cannot_be_used_is_a_mistake() {
        assert!(read(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "c:4317")]).is_err());
        let grpc = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ];
        assert!(read(&grpc).unwrap_err().contains("http/json"));
    }

    #[test]
    fn names_and_keys_are_read_from_their_lists() {
        let collector = read(&[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c"),
            (
                "OTEL_EXPORTER_OTLP_HEADERS",
                "authorization=Bearer%20abc, x = 1,broken,%zz=%zz",
            ),
            ("OTEL_RESOURCE_ATTRIBUTES", "service.name=tools,team=a"),
        ]);
        let config = collector.unwrap().unwrap().config("host");
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(
            config.headers,
            [
                pair("authorization", "Bearer abc"),
                pair("x", "1"),
                pair("%zz", "%zz")
            ]
        );
        assert_eq!(config.service, "tools");
        assert_eq!(config.attributes, [pair("team", "a")]);
        assert!(!format!("{config:?}").contains("abc"));
    }
}
