//! Counters of the front: connections, and requests by route and by class of their status.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use hyper::StatusCode;

/// Classes of status, from 1xx to 5xx.
const CLASSES: usize = 5;

/// A route, as metrics name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place(usize);

impl Place {
    /// The names; the last is for every path that nothing serves.
    pub(super) const NAMES: [&'static str; 16] = [
        "/mcp",
        "/v1/tools",
        "/v1/tool/{tool}",
        "/v1/invoke",
        "/v1/diagnostics",
        "/v1/tasks/{id}",
        "/v1/approvals",
        "/v1/approvals/{id}",
        "/schemas/{file}",
        "/openapi.json",
        "/healthz",
        "/readyz",
        "/metrics",
        "/",
        "/.well-known/oauth-protected-resource",
        "other",
    ];

    /// The route's name.
    pub(super) fn name(self) -> &'static str {
        Self::NAMES.get(self.0).copied().unwrap_or("other")
    }

    pub(super) fn of(path: &str) -> Self {
        let name = match path {
            path if path.starts_with("/v1/tool/") => "/v1/tool/{tool}",
            path if path.starts_with("/v1/tasks/") => "/v1/tasks/{id}",
            path if path.starts_with("/v1/approvals/") => "/v1/approvals/{id}",
            path if path.starts_with("/schemas/") => "/schemas/{file}",
            path if path.starts_with(super::METADATA) => super::METADATA,
            path if path.starts_with("/page/") => "/",
            path => path,
        };
        let mut names = Self::NAMES.iter();
        Self(
            names
                .position(|known| *known == name)
                .unwrap_or(Self::NAMES.len() - 1),
        )
    }
}

/// The counts.
#[derive(Debug, Default)]
pub(super) struct Counts {
    answered: [[AtomicU64; CLASSES]; Place::NAMES.len()],
    pub(super) connections: AtomicUsize,
    pub(super) connections_total: AtomicU64,
    pub(super) turned_away_total: AtomicU64,
}

impl Counts {
    pub(super) fn answered(&self, place: Place, status: StatusCode) {
        let class = usize::from(status.as_u16() / 100).saturating_sub(1);
        let counter = self.answered.get(place.0).and_then(|of| of.get(class));
        if let Some(counter) = counter {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Every number that only grows, in a fixed order.
    fn all(&self) -> impl Iterator<Item = &AtomicU64> {
        let single = [&self.connections_total, &self.turned_away_total];
        single.into_iter().chain(self.answered.iter().flatten())
    }

    pub(super) fn save(&self) -> Vec<u64> {
        self.all()
            .map(|count| count.load(Ordering::Relaxed))
            .collect()
    }

    pub(super) fn restore(&self, saved: &[u64]) {
        for (count, saved) in self.all().zip(saved) {
            count.store(*saved, Ordering::Relaxed);
        }
    }

    /// Route, class and count, where there is any.
    pub(super) fn requests(&self) -> impl Iterator<Item = (&'static str, String, u64)> + '_ {
        Place::NAMES
            .iter()
            .zip(&self.answered)
            .flat_map(|(name, of)| {
                of.iter().enumerate().filter_map(|(class, counter)| {
                    let count = counter.load(Ordering::Relaxed);
                    (count > 0).then(|| (*name, format!("{}xx", class + 1), count))
                })
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_is_counted_under_one_of_few_names() {
        let counts = Counts::default();
        for (path, status) in [
            ("/v1/tool/a", 200),
            ("/v1/tool/b%2Fc", 204),
            ("/v1/tool/b", 404),
            ("/nothing", 404),
            ("/other", 404),
        ] {
            counts.answered(Place::of(path), StatusCode::from_u16(status).unwrap());
        }
        let seen: Vec<_> = counts.requests().collect();
        assert_eq!(
            seen,
            [
                ("/v1/tool/{tool}", "2xx".to_owned(), 2),
                ("/v1/tool/{tool}", "4xx".to_owned(), 1),
                ("other", "4xx".to_owned(), 2),
            ]
        );
    }
}
