//! Chooses the weights of ranked search's third step with one repository left out at a time.
//!
//! ```text
//! measure features REPOS QUERIES CACHE | tune
//! ```
//!
//! For every repository the weights are chosen on all others and scored on it. The mean over all
//! repositories says how well weights carry over to code they were not chosen on; how much better
//! they are where they were chosen is the price of tuning.
//!
//! A single choice follows the accidents of a few queries. So weights are the mean of the choices
//! that are made with each of the repositories at hand left out in turn, and each choice begins at
//! weights that know nothing of the benchmark.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a program for developers that fails by panicking"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::io::BufRead as _;

use serde_json::Value;

const FEATURES: [&str; 6] = [
    "passage",
    "spread",
    "path",
    "stem",
    "definition",
    "definitions",
];
/// The weights of `query/weights.rs`: the features, and what all of them count beside the order so far.
const CURRENT: [f64; 7] = [1.0, 0.6, 0.25, 0.15, 0.2, 0.2, 0.3];
/// Where a choice begins: a passage counts most, everything else alike.
const NEUTRAL: [f64; 7] = [1.0, 0.1, 0.1, 0.1, 0.1, 0.1, 0.5];
const BACKGROUND: f64 = 0.8;
const STEPS: [f64; 6] = [0.0, 0.05, 0.1, 0.2, 0.3, 0.5];
const SHARES: [f64; 8] = [0.0, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0];
const SAMPLES: usize = 1000;

struct Hit {
    lexical: f64,
    alike: [f64; 6],
    factor: f64,
    relevant: Option<u64>,
}

struct Query {
    repo: String,
    category: String,
    ideal: f64,
    /// Whether the third step applies.
    compared: bool,
    hits: Vec<Hit>,
}

fn gain(rank: usize) -> f64 {
    1.0 / ((rank + 2) as f64).log2()
}

impl Query {
    fn read(line: &str) -> Self {
        let value: Value = serde_json::from_str(line).unwrap();
        let text = |key: &str| value[key].as_str().unwrap().to_owned();
        let relevant = usize::try_from(value["relevant"].as_u64().unwrap()).unwrap();
        let hits = value["hits"].as_array().unwrap();
        let compared = hits.iter().any(|hit| hit["why"]["alike"].is_object());
        let hit = |hit: &Value| Hit {
            lexical: hit["why"]["lexical"].as_f64().unwrap_or(0.0),
            alike: FEATURES.map(|name| hit["why"]["alike"][name].as_f64().unwrap_or(0.0)),
            factor: if hit["why"]["class"] == "code" {
                1.0
            } else {
                BACKGROUND
            },
            relevant: hit["relevant"].as_u64(),
        };
        let compares = |found: &&Value| !compared || found["why"]["alike"].is_object();
        Self {
            repo: text("repo"),
            category: text("category"),
            ideal: (0..relevant.min(10)).map(gain).sum(),
            compared,
            hits: hits.iter().filter(compares).map(hit).collect(),
        }
    }

    /// NDCG@10 with these weights.
    fn score(&self, weights: &[f64; 7]) -> f64 {
        let mut order: Vec<usize> = (0..self.hits.len()).collect();
        if self.compared {
            let alike = |hit: &Hit| {
                hit.factor
                    * hit
                        .alike
                        .iter()
                        .zip(weights)
                        .map(|(a, w)| a * w)
                        .sum::<f64>()
            };
            let values: Vec<f64> = self.hits.iter().map(alike).collect();
            let low = values.iter().copied().fold(f64::MAX, f64::min);
            let high = values.iter().copied().fold(f64::MIN, f64::max);
            let best = self
                .hits
                .iter()
                .map(|hit| hit.lexical)
                .fold(f64::MIN_POSITIVE, f64::max);
            let score = |at: &usize| {
                let lexical = (self.hits[*at].lexical / best).max(0.0).sqrt();
                lexical + weights[6] * (values[*at] - low) / (high - low).max(f64::MIN_POSITIVE)
            };
            order.sort_by(|a, b| score(b).total_cmp(&score(a)));
        }
        let mut seen = BTreeSet::new();
        let mut got = 0.0;
        for (rank, at) in order.iter().take(10).enumerate() {
            if let Some(relevant) = self.hits[*at].relevant
                && seen.insert(relevant)
            {
                got += gain(rank);
            }
        }
        got / self.ideal
    }
}

fn mean(scores: &[f64]) -> f64 {
    scores.iter().sum::<f64>() / scores.len().max(1) as f64
}

/// The scores of all queries by weights; choices try the same ones again and again.
struct Scores<'a> {
    queries: &'a [Query],
    known: BTreeMap<[u64; 7], Vec<f64>>,
}

impl Scores<'_> {
    fn of(&mut self, weights: &[f64; 7]) -> &[f64] {
        let queries = self.queries;
        let score = || queries.iter().map(|query| query.score(weights)).collect();
        let known = self.known.entry(weights.map(f64::to_bits));
        known.or_insert_with(score)
    }

    /// The mean over all repositories but some.
    fn mean(&mut self, weights: &[f64; 7], without: &[&str]) -> f64 {
        let queries = self.queries;
        let scores = self.of(weights).iter().zip(queries);
        let counts = |query: &Query| !without.contains(&query.repo.as_str());
        let kept = scores.filter(|(_, query)| counts(query));
        mean(&kept.map(|(score, _)| *score).collect::<Vec<_>>())
    }

    /// The best weights without some repositories, one weight after the other, twice.
    fn choose(&mut self, without: &[&str]) -> [f64; 7] {
        let mut best = (self.mean(&NEUTRAL, without), NEUTRAL);
        for _ in 0..2 {
            for at in [6, 0, 1, 2, 3, 4, 5] {
                let values = if at == 6 { &SHARES[..] } else { &STEPS[..] };
                for value in values {
                    let mut weights = best.1;
                    weights[at] = if at == 0 { 0.5 + value } else { *value };
                    let found = self.mean(&weights, without);
                    if found > best.0 {
                        best = (found, weights);
                    }
                }
            }
        }
        best.1
    }

    /// The mean of the choices with one more repository left out each time.
    fn choose_together(&mut self, repos: &BTreeSet<&str>, without: Option<&str>) -> [f64; 7] {
        let mut sum = [0.0; 7];
        let others = repos.iter().filter(|repo| Some(**repo) != without);
        let others: Vec<&str> = others.copied().collect();
        for other in &others {
            let left: Vec<&str> = without.into_iter().chain([*other]).collect();
            let weights = self.choose(&left);
            sum.iter_mut()
                .zip(weights)
                .for_each(|(sum, weight)| *sum += weight);
        }
        sum.map(|sum| sum / others.len() as f64)
    }
}

/// The middle 95 % of the means of samples drawn with replacement.
fn interval(scores: &[f64]) -> (f64, f64) {
    let mut state = 88_172_645_463_325_252_u64;
    let mut means: Vec<f64> = (0..SAMPLES)
        .map(|_| {
            let draw = |_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                scores[usize::try_from(state % scores.len() as u64).unwrap()]
            };
            mean(&(0..scores.len()).map(draw).collect::<Vec<_>>())
        })
        .collect();
    means.sort_by(f64::total_cmp);
    (means[SAMPLES / 40], means[SAMPLES - SAMPLES / 40])
}

fn main() {
    let lines = std::io::stdin().lock().lines().map(|line| line.unwrap());
    let queries: Vec<Query> = lines.map(|line| Query::read(&line)).collect();
    let mut table = Scores {
        queries: &queries,
        known: BTreeMap::new(),
    };
    let mut lexical = CURRENT;
    lexical[6] = 0.0;
    println!("without the third step    {:.4}", table.mean(&lexical, &[]));
    let (low, high) = interval(table.of(&CURRENT));
    println!(
        "with the current weights  {:.4} [{low:.4}, {high:.4}]",
        table.mean(&CURRENT, &[])
    );
    let repos: BTreeSet<&str> = queries.iter().map(|query| query.repo.as_str()).collect();
    let chosen = table.choose_together(&repos, None);
    println!(
        "chosen on all             {:.4} {chosen:.3?}",
        table.mean(&chosen, &[])
    );
    let mut left_out: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    let (mut scores, mut tuned) = (Vec::new(), Vec::new());
    for repo in &repos {
        let weights = table.choose_together(&repos, Some(repo));
        tuned.push(table.mean(&weights, &[repo]));
        for (query, score) in queries.iter().zip(table.of(&weights)) {
            if query.repo == *repo {
                scores.push(*score);
                let category = left_out.entry(query.category.as_str());
                category.or_default().push(*score);
            }
        }
    }
    let (low, high) = interval(&scores);
    println!(
        "left out                  {:.4} [{low:.4}, {high:.4}]",
        mean(&scores)
    );
    for (category, scores) in &left_out {
        println!("    {category:14} {:.4} ({})", mean(scores), scores.len());
    }
    println!(
        "chosen minus left out     {:.4}",
        mean(&tuned) - mean(&scores)
    );
}
