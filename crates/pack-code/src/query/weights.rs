//! The numbers of ranked search, in one place.
//!
//! Those of the first two steps were found on half of a public benchmark at a time and checked on the
//! other half, those of the third with one repository left out at a time. None of them belongs to a
//! repository, a language or a query. docs/search-quality.md says how they are measured.

/// Saturation of a term's frequency: high, for a file about something says so often.
pub(crate) const K1: f64 = 25.0;
/// How much a long file is held against it.
pub(crate) const B: f64 = 0.35;
/// What a definition, the file's name and a folder's name are worth, in occurrences.
pub(crate) const DEFINITION: f64 = 1.3;
pub(crate) const FILE_NAME: f64 = 4.0;
pub(crate) const FOLDER: f64 = 0.8;

/// Weights of a query's terms beside 1 for a plain word: words that questions are full of, the
/// parts of an identifier, the whole of one, and two neighbours written as one.
pub(crate) const WEAK: f64 = 0.3;
pub(crate) const PART: f64 = 0.9;
pub(crate) const WHOLE: f64 = 1.2;
pub(crate) const JOINED: f64 = 0.65;

/// The second step: what the first one counts there, and what a closer look adds.
pub(crate) const FIRST: f64 = 0.8;
pub(crate) const PASSAGE: f64 = 0.6;
pub(crate) const DEFINES: f64 = 0.55;
pub(crate) const NAMED: f64 = 2.24;
pub(crate) const CALLED: f64 = 1.2;
pub(crate) const DEFINES_ALL: f64 = 0.3;
pub(crate) const HEAD: f64 = 0.4;
pub(crate) const FOLDERS: f64 = 0.2;
/// How much a file's name counts that has little of the query but nothing else.
pub(crate) const CALLED_FLOOR: f64 = 0.4;
/// How much a definition's name counts that has much beside the query.
pub(crate) const PRECISION_FLOOR: f64 = 0.5;
/// Lines that count as standing together, and as the head of a file.
pub(crate) const WINDOW: usize = 24;
pub(crate) const HEAD_LINES: usize = 30;

/// Penalties: headers and declarations, what is kept for old callers. In the second step each
/// counts half.
pub(crate) const HEADER: f64 = 0.75;
pub(crate) const LEGACY: f64 = 0.7;
pub(crate) const SECOND_STEP: f64 = 0.5;

/// The third step, for questions of several words: the order so far, and how alike the file and the
/// query are. The mean of the choices with one repository left out at a time.
pub(crate) const ALIKE: f64 = 0.3;
/// The same where only words are compared, which say less.
pub(crate) const ALIKE_WORDS: f64 = 0.2;
pub(crate) const ALIKE_PASSAGE: f64 = 1.0;
pub(crate) const ALIKE_SPREAD: f64 = 0.6;
pub(crate) const ALIKE_PATH: f64 = 0.25;
pub(crate) const ALIKE_STEM: f64 = 0.15;
pub(crate) const ALIKE_DEFINITION: f64 = 0.2;
pub(crate) const ALIKE_DEFINITIONS: f64 = 0.2;
/// What tests, documentation and examples keep of it.
pub(crate) const BACKGROUND: f64 = 0.8;
