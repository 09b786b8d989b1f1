//! Which files a search looks at: globs, languages, times.

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use mainstay_worker::{ErrorKind, Problem};

use crate::tree::file::Reader;
use crate::tree::lang::Lang;

/// The filters of one search.
#[derive(Clone, Debug, Default)]
pub(crate) struct Filter {
    pub(crate) paths: Option<GlobSet>,
    pub(crate) excluded: Option<GlobSet>,
    pub(crate) langs: Vec<Lang>,
    /// Nanoseconds since 1970.
    pub(crate) modified_since: Option<i64>,
}

impl Filter {
    /// Whether every name is in scope.
    pub(crate) const fn is_open(&self) -> bool {
        self.paths.is_none() && self.excluded.is_none() && self.langs.is_empty()
    }

    /// Whether some files are out of scope.
    pub(crate) const fn leaves_out(&self) -> bool {
        !self.is_open() || self.modified_since.is_some()
    }

    /// Whether a file is in scope, as far as its name says.
    pub(crate) fn admits(&self, path: &str, lang: Lang) -> bool {
        self.paths.as_ref().is_none_or(|globs| globs.is_match(path))
            && !self
                .excluded
                .as_ref()
                .is_some_and(|globs| globs.is_match(path))
            && (self.langs.is_empty() || self.langs.contains(&lang))
    }

    /// As above, for a file of which only the path is known.
    pub(crate) fn admits_path(&self, path: &str) -> bool {
        self.is_open() || self.admits(path, Lang::of_path(path))
    }

    /// Whether a file's time, looked up now, is in scope.
    pub(crate) fn admits_time_of(&self, reader: &Reader<'_>, path: &str) -> bool {
        self.modified_since.is_none()
            || reader
                .modified(path)
                .is_some_and(|modified| self.admits_time(modified))
    }

    /// Whether a file's time is in scope.
    pub(crate) fn admits_time(&self, modified: i64) -> bool {
        self.modified_since.is_none_or(|since| modified >= since)
    }
}

/// Globs as people write them. A name without a slash stands for files and folders of that name
/// anywhere; a path without a wildcard stands for itself and everything below. `repo` is the only
/// repository in scope: a pattern may begin with its name, as the paths of answers do.
pub(crate) fn globs(
    patterns: &[String],
    argument: &str,
    repo: Option<&str>,
) -> Result<Option<GlobSet>, Problem> {
    if patterns.is_empty() {
        return Ok(None);
    }
    let wrong = |pattern: &str, why: &str| {
        Problem::new(
            ErrorKind::InvalidArguments,
            format!("{argument}: {pattern:?} is not a glob: {why}"),
        )
        .with_hint("for example src/**, *.rs or a folder's path, relative to the root")
    };
    let mut set = GlobSetBuilder::new();
    for pattern in patterns {
        let plain = pattern.trim_start_matches("./").trim_end_matches('/');
        if pattern.starts_with('/') || plain.split('/').any(|part| part == "..") {
            return Err(wrong(pattern, "it leads out of the root"));
        }
        if plain.starts_with('!') {
            return Err(wrong(pattern, "it begins with !"))
                .map_err(|problem| problem.with_hint("exclude names what is left out"));
        }
        let has_wildcard = plain.contains(['*', '?', '[', '{']);
        let has_slash = plain.contains('/');
        let mut forms = Vec::new();
        match repo.and_then(|repo| in_repo(plain, repo)) {
            Some("") => forms.push("**".to_owned()),
            Some(rest) => forms.extend([rest.to_owned(), format!("{rest}/**")]),
            None => {}
        }
        if plain.is_empty() || plain == "." {
            forms.push("**".to_owned());
        } else if has_slash || plain == "**" {
            forms.push(plain.to_owned());
            forms.push(format!("{plain}/**"));
        } else {
            forms.push(format!("**/{plain}"));
            if !has_wildcard {
                forms.push(format!("**/{plain}/**"));
            }
        }
        for form in forms {
            let glob = GlobBuilder::new(&form).literal_separator(true).build();
            set.add(glob.map_err(|error| wrong(pattern, &error.kind().to_string()))?);
        }
    }
    set.build()
        .map(Some)
        .map_err(|error| wrong("", &error.to_string()))
}

/// The rest of a pattern that begins with the name of a repository.
fn in_repo<'a>(pattern: &'a str, repo: &str) -> Option<&'a str> {
    let rest = pattern.trim_start_matches("./").strip_prefix(repo)?;
    match rest.is_empty() {
        true => Some(rest),
        false => rest.strip_prefix('/'),
    }
}

/// The repository that all patterns begin with, if they do.
pub(crate) fn repo_of<'a>(patterns: &[String], repos: &[&'a str]) -> Option<&'a str> {
    let first = patterns.first()?;
    let mut repos = repos.iter().copied();
    let repo = repos.find(|repo| in_repo(first, repo).is_some())?;
    let all = patterns
        .iter()
        .all(|pattern| in_repo(pattern, repo).is_some());
    all.then_some(repo)
}

/// Languages by their names.
pub(crate) fn langs(names: &[String]) -> Result<Vec<Lang>, Problem> {
    names
        .iter()
        .map(|name| {
            Lang::named(name).ok_or_else(|| {
                let known: Vec<&str> = Lang::names().collect();
                Problem::new(
                    ErrorKind::InvalidArguments,
                    format!("there is no language {name:?}"),
                )
                .with_hint(format!("known: {}", known.join(", ")))
            })
        })
        .collect()
}

/// An ISO date or time as nanoseconds since 1970. Without a zone it is UTC.
pub(crate) fn instant(text: &str) -> Result<i64, Problem> {
    parse_instant(text).ok_or_else(|| {
        Problem::new(
            ErrorKind::InvalidArguments,
            format!("modified_since: {text:?} is not an ISO date or time"),
        )
        .with_hint("for example 2026-05-01 or 2026-05-01T12:30:00Z")
    })
}

fn parse_instant(text: &str) -> Option<i64> {
    let (date, time) = match text.split_once(['T', 't', ' ']) {
        Some((date, time)) => (date, Some(time)),
        None => (text, None),
    };
    let mut parts = date.split('-');
    let (year, month, day) = (
        digits(parts.next()?, 4)?,
        digits(parts.next()?, 2)?,
        digits(parts.next()?, 2)?,
    );
    if parts.next().is_some() || !(1..=12).contains(&month) || day < 1 || day > days_in(year, month)
    {
        return None;
    }
    let mut seconds = days_from_1970(year, month, day) * 86_400;
    let mut nanos = 0;
    if let Some(time) = time {
        let zone_at = time.find(['Z', 'z', '+', '-']).unwrap_or(time.len());
        let (clock, zone) = time.split_at_checked(zone_at)?;
        let (clock, fraction) = clock.split_once('.').unwrap_or((clock, ""));
        let mut parts = clock.split(':');
        let (hour, minute) = (digits(parts.next()?, 2)?, digits(parts.next()?, 2)?);
        let second = parts.next().map_or(Some(0), |part| digits(part, 2))?;
        if parts.next().is_some() || hour > 23 || minute > 59 || second > 60 {
            return None;
        }
        if !fraction.is_empty() {
            let padded: String = fraction
                .chars()
                .chain(std::iter::repeat('0'))
                .take(9)
                .collect();
            nanos = digits(&padded, 9)?;
        }
        seconds += hour * 3600 + minute * 60 + second - zone_seconds(zone)?;
    }
    seconds.checked_mul(1_000_000_000)?.checked_add(nanos)
}

fn zone_seconds(zone: &str) -> Option<i64> {
    if zone.is_empty() || zone.eq_ignore_ascii_case("z") {
        return Some(0);
    }
    let (sign, rest) = match zone.split_at_checked(1)? {
        ("+", rest) => (1, rest),
        ("-", rest) => (-1, rest),
        _ => return None,
    };
    let rest = rest.replace(':', "");
    let (hours, minutes) = rest.split_at_checked(2)?;
    let minutes = if minutes.is_empty() {
        0
    } else {
        digits(minutes, 2)?
    };
    Some(sign * (digits(hours, 2)? * 3600 + minutes * 60))
}

fn digits(text: &str, count: usize) -> Option<i64> {
    let right = text.len() == count && text.bytes().all(|byte| byte.is_ascii_digit());
    right.then(|| text.parse().ok()).flatten()
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_in(year: i64, month: i64) -> i64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days since 1970 of a date of the Gregorian calendar.
fn days_from_1970(year: i64, month: i64, day: i64) -> i64 {
    // Years begin in March here, so that a leap day is the last of its year.
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// A time as ISO text, to the second.
pub(crate) fn iso(milliseconds: u64) -> String {
    let seconds = milliseconds / 1000;
    let (days, rest) = ((seconds / 86_400) as i64, seconds % 86_400);
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 {
        shifted + 3
    } else {
        shifted - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z",
        rest / 3600,
        rest / 60 % 60,
        rest % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_mean_what_people_write() {
        let matches = |pattern: &str, path: &str| {
            globs(&[pattern.to_owned()], "path", None)
                .unwrap()
                .unwrap()
                .is_match(path)
        };
        assert!(matches("*.rs", "a/b/c.rs"));
        assert!(matches("src", "src/a.rs"));
        assert!(matches("src/", "x/src/a.rs"));
        assert!(matches("src/**", "src/a/b.rs"));
        assert!(matches("src/*.rs", "src/a.rs"));
        assert!(!matches("src/*.rs", "src/a/b.rs"));
        assert!(matches("crates/worker", "crates/worker/src/lib.rs"));
        assert!(!matches("crates/work", "crates/worker/src/lib.rs"));
        assert!(globs(&["../x".to_owned()], "path", None).is_err());
        assert!(globs(&["[".to_owned()], "path", None).is_err());
    }

    #[test]
    fn dates_and_times_are_read() {
        for (text, seconds) in [
            ("1970-01-01", 0),
            ("2000-02-29", 951_782_400),
            ("2026-05-01T12:30:00Z", 1_777_638_600),
            ("2026-05-01T14:30:00+02:00", 1_777_638_600),
        ] {
            assert_eq!(instant(text).unwrap(), seconds * 1_000_000_000, "{text}");
        }
        assert_eq!(instant("1970-01-01T00:00:00.5Z").unwrap(), 500_000_000);
        for wrong in [
            "",
            "yesterday",
            "2026-13-01",
            "2025-02-29",
            "2026-05-01T25:00:00Z",
            "20260501",
        ] {
            assert!(instant(wrong).is_err(), "{wrong}");
        }
        assert_eq!(iso(1_777_638_600_123), "2026-05-01T12:30:00Z");
        assert_eq!(iso(951_782_400_000), "2000-02-29T00:00:00Z");
    }
}
