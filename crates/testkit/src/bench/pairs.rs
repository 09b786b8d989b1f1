//! Two builds in interleaved pairs: `bench pairs OLD NEW PARTS...`.
//!
//! Each side of a pair is a run of this program with the programs of one directory, so that both sides are measured by the
//! same code, in turn, under the same load. A figure is the median of the ratios new / old with its 95 % interval. A row is worse
//! only if its whole interval is beyond 5 %.

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail, ensure};
use serde_json::Value;

use super::stats::interval;

/// Pairs of runs.
const PAIRS: usize = 10;
/// Where a run looks for the programs that it measures.
const PROGRAMS: &str = "MAINSTAY_BIN_DIR";
/// How much worse a row may be, as a ratio.
const WORSE: f64 = 1.05;

/// Values of one run, with their units.
type Rows = BTreeMap<String, (f64, String)>;

/// Runs the pairs, and gives the table of the ratios.
pub fn run(arguments: &[String], show: &mut dyn FnMut(&str)) -> anyhow::Result<()> {
    let [old, new, parts @ ..] = arguments else {
        bail!(
            "usage: bench pairs OLD NEW PARTS..., where OLD and NEW are directories with the programs of a build"
        );
    };
    ensure!(
        !parts.is_empty(),
        "name the parts, for example roundtrip flood"
    );
    let mut pairs: BTreeMap<String, Vec<(f64, f64, String)>> = BTreeMap::new();
    for pair in 0..PAIRS {
        let (before, after) = if pair.is_multiple_of(2) {
            let before = measure(old, parts)?;
            (before, measure(new, parts)?)
        } else {
            let after = measure(new, parts)?;
            (measure(old, parts)?, after)
        };
        for (key, (old, unit)) in before {
            if let Some((new, _)) = after.get(&key) {
                pairs.entry(key).or_default().push((old, *new, unit));
            }
        }
        show(&format!("pair {} of {PAIRS}\n", pair + 1));
    }
    show(&table(pairs));
    Ok(())
}

/// One run with the programs of a directory.
fn measure(programs: &str, parts: &[String]) -> anyhow::Result<Rows> {
    let programs: OsString = Path::new(programs)
        .canonicalize()
        .with_context(|| format!("the directory {programs}"))?
        .into();
    let output = Command::new(env::current_exe()?)
        .args(parts)
        .args(["--quick", "--json"])
        .env(PROGRAMS, programs)
        .stderr(Stdio::inherit())
        .output()
        .context("starting a run")?;
    ensure!(
        output.status.success(),
        "a run ended with {}",
        output.status
    );
    let report: BTreeMap<String, Value> = serde_json::from_slice(&output.stdout)?;
    let rows = report.into_iter().filter_map(|(key, row)| {
        let unit = row.get("unit")?.as_str()?.to_owned();
        Some((key, (row.get("value")?.as_f64()?, unit)))
    });
    Ok(rows.collect())
}

/// One line for each row. Shares and differences of a run are its own comparisons, so they are left out.
fn table(pairs: BTreeMap<String, Vec<(f64, f64, String)>>) -> String {
    let mut out = String::new();
    for (key, values) in pairs {
        let unit = values.first().map(|(.., unit)| unit.clone());
        let unit = unit.filter(|unit| unit != "x" && !key.contains(".added"));
        let Some(unit) = unit else { continue };
        let olds = values.iter().map(|(old, ..)| *old).collect();
        let news = values.iter().map(|(_, new, _)| *new).collect();
        let ratios = values.iter().map(|(old, new, _)| new / old).collect();
        let ((_, old, _), (_, new, _)) = (interval(olds), interval(news));
        let (low, middle, high) = interval(ratios);
        // More calls are better; more time or memory is worse.
        let is_worse = match unit.as_str() {
            "calls/s" => high < 1.0 / WORSE,
            _ => low > WORSE,
        };
        let mark = if is_worse { "  WORSE" } else { "" };
        let _ = writeln!(
            out,
            "{key:<40} {old:>10.2} {new:>10.2} {unit:<8} {middle:.3} [{low:.3}, {high:.3}]{mark}"
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(unit: &str, new: f64) -> String {
        let values = (0..PAIRS).map(|pair| (100.0, new + pair as f64, unit.to_owned()));
        table([("key".to_owned(), values.collect())].into())
    }

    #[test]
    fn a_row_is_worse_only_with_its_whole_interval() {
        assert!(rows("us", 106.0).contains("WORSE"));
        assert!(!rows("us", 103.0).contains("WORSE"), "it begins at 1.03");
        assert!(!rows("us", 50.0).contains("WORSE"));
        assert!(rows("calls/s", 50.0).contains("WORSE"));
        assert!(!rows("calls/s", 106.0).contains("WORSE"));
        assert_eq!(rows("x", 106.0), "");
    }
}
