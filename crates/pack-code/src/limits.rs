//! Every bound of this pack, by name.

use std::time::Duration;

/// Largest file that is indexed and searched.
pub(crate) const FILE_BYTES: u64 = 4 * 1024 * 1024;
/// Average bytes of a line past which a file counts as minified.
pub(crate) const AVERAGE_LINE_BYTES: usize = 1000;
/// Files of one repository.
pub(crate) const FILES: usize = 4_000_000;
/// Nested directories that are entered: a path that the system takes has no more.
pub(crate) const DEPTH: usize = 4096 / 2;
/// Largest ignore file that counts, and all of a walk together.
pub(crate) const IGNORE_FILE_BYTES: u64 = 1024 * 1024;
pub(crate) const IGNORE_BYTES: u64 = 8 * 1024 * 1024;

/// Text of one chunk, the unit that a build thread turns into a run.
pub(crate) const CHUNK_BYTES: u64 = 16 * 1024 * 1024;
/// The same for the first chunks of a build, and how many these are.
pub(crate) const SMALL_CHUNK_BYTES: u64 = 3 * 1024 * 1024;
pub(crate) const SMALL_CHUNKS: usize = 8;
/// Files of one chunk.
pub(crate) const CHUNK_FILES: usize = 16_384;
/// Threads of a build.
pub(crate) const BUILD_THREADS: usize = 4;
/// Files of a build from which on it pays to read which versions git has of them.
pub(crate) const GIT_FILES: usize = 16;
/// Indexes of other trees that a first build compares with its own tree, the files that are compared, and
/// how many of these have to be there with the same size, in percent.
pub(crate) const LENDERS: usize = 4;
pub(crate) const LENDER_SAMPLE: u32 = 64;
pub(crate) const LENDER_PERCENT: usize = 50;
/// Files of a borrowed segment that are read at each start rather than having their stamps kept.
pub(crate) const UNPROVEN_FILES: usize = 256;
/// Segments past which a build compacts.
pub(crate) const SEGMENTS: usize = 8;

/// Changed files that are held in memory before a build takes them in.
pub(crate) const OVERLAY_FILES: usize = 256;
/// Their text.
pub(crate) const OVERLAY_BYTES: u64 = 8 * 1024 * 1024;
/// Changed directories past which the whole tree is swept instead.
pub(crate) const DIRTY_DIRECTORIES: usize = 512;
/// Directories that are watched.
pub(crate) const WATCHED_DIRECTORIES: usize = 100_000;
/// Rest after the last change before a background build takes changed files in.
pub(crate) const SETTLE: Duration = Duration::from_secs(2);

/// Rest between two sweeps, and how many times as long as a sweep it is at least: what no watch
/// tells is found within that time, for a hundredth of one processor.
pub(crate) const SWEEP_REST: Duration = Duration::from_secs(5);
pub(crate) const SWEEP_REST_FACTOR: u32 = 100;

/// Time a search waits for a first build before it scans.
pub(crate) const FIRST_BUILD_WAIT: Duration = Duration::from_millis(500);
/// Time a search waits for a sweep before it answers as not fresh.
pub(crate) const SWEEP_WAIT: Duration = Duration::from_millis(10);
/// Files with several links that each call looks at; with more of them no answer is called fresh.
pub(crate) const LINKED_FILES: usize = 2_000;
/// Files of git's own ignore rules that each call looks at, one for each repository in the tree; with
/// more of them no answer is called fresh.
pub(crate) const EXCLUDE_FILES: usize = 2_000;
/// Files of a tree that is swept within that time.
pub(crate) const SWEPT_AT_ONCE: u32 = 5_000;
/// Time of a scan without an index.
pub(crate) const SCAN_TIME: Duration = Duration::from_millis(700);
/// Bytes that one exact query verifies before it hands out a cursor.
pub(crate) const VERIFY_BYTES: u64 = 192 * 1024 * 1024;
/// Candidates beyond the last hit that are still counted, so that small totals are exact.
pub(crate) const COUNT_ON_FILES: usize = 16;
/// Bytes of a compiled pattern and of its lazy automaton.
pub(crate) const REGEX_BYTES: usize = 10 * 1024 * 1024;
/// Compiled patterns that are kept for the next page.
pub(crate) const PATTERNS: usize = 16;
/// Longest query.
pub(crate) const QUERY_BYTES: usize = 4096;
/// Alternatives that a plan keeps apart.
pub(crate) const PLAN_STRINGS: usize = 64;
/// Files that a ranked query of one word reads to put them in order, and one of several words.
pub(crate) const RERANK_FILES: usize = 28;
pub(crate) const COMPARED_FILES: usize = 50;
/// Passages of one file that a ranked query shows where few files are in scope.
pub(crate) const FILE_PASSAGES: usize = 3;
/// Windows of one file that are compared with the query for each passage, because they have most of
/// its words.
pub(crate) const LIKELY_WINDOWS: usize = 4;
/// Hits that are shown when nothing matches exactly.
pub(crate) const GUESSES: usize = 5;
/// Files that go before the ranked ones because they have the query verbatim, and lines that are
/// looked at to find them.
pub(crate) const VERBATIM_FILES: usize = 3;
pub(crate) const VERBATIM_LINES: usize = 24;
/// Bytes of one file that a ranked query reads.
pub(crate) const RERANK_FILE_BYTES: usize = 128 * 1024;
/// Commits that the pages of one listing give.
pub(crate) const COMMITS: usize = 2_000;
/// Hits of one answer.
pub(crate) const HITS: usize = 200;
/// Lines of context on either side.
pub(crate) const CONTEXT_LINES: usize = 20;
/// Bytes of all snippets unless told otherwise, and at most.
pub(crate) const SNIPPET_BYTES: usize = 24_000;
pub(crate) const MAX_SNIPPET_BYTES: usize = 1_000_000;
/// Bytes of one line in a snippet.
pub(crate) const LINE_BYTES: usize = 400;
/// Matching lines that one hit may join.
pub(crate) const HIT_LINES: u64 = 40;
/// Skipped files that are named in an answer.
pub(crate) const NAMED_SKIPS: usize = 200;
/// Bytes of a file or an outline that is shown.
pub(crate) const SHOW_BYTES: usize = 48_000;
pub(crate) const MAX_SHOW_BYTES: usize = 2_000_000;
/// Entries of a folder that its map has before its definitions; the others follow them.
pub(crate) const MAP_ENTRIES: usize = 60;
/// Bytes of the map of a folder unless told otherwise.
pub(crate) const MAP_BYTES: usize = 8_000;
/// Files of a folder that are read for its most important definitions, their bytes, and the time.
pub(crate) const MAP_FILES: usize = 600;
pub(crate) const MAP_FILE_BYTES: u64 = 16 * 1024 * 1024;
pub(crate) const MAP_TIME: Duration = Duration::from_millis(400);
/// Largest file that is shown.
pub(crate) const SHOW_FILE_BYTES: u64 = 64 * 1024 * 1024;

/// Largest file that is parsed for symbols.
pub(crate) const PARSE_BYTES: usize = 512 * 1024;
/// Nested brackets of a file that is parsed.
pub(crate) const PARSE_DEPTH: usize = 1000;
/// Time of one parse.
pub(crate) const PARSE_TIME: Duration = Duration::from_millis(800);
/// Largest file whose definitions are found although it is too large to be searched.
pub(crate) const DEFINITION_FILE_BYTES: u64 = 48 * 1024 * 1024;
/// Symbols of one file.
pub(crate) const FILE_SYMBOLS: usize = 500_000;
/// Symbols after which a batch of the symbol layer ends early.
pub(crate) const SYMBOL_BATCH_SYMBOLS: usize = 1_000_000;
/// Text of one batch of the symbol layer, published as one generation.
pub(crate) const SYMBOL_BATCH_BYTES: u64 = 32 * 1024 * 1024;
/// Time of a worker's first batch, so that one that ends soon has added something, and of any later
/// one; each takes twice as long as the one before.
pub(crate) const FIRST_SYMBOL_BATCH: Duration = Duration::from_millis(250);
pub(crate) const SYMBOL_BATCH: Duration = Duration::from_secs(8);
/// Rest before documents that the symbol layer has passed by are tried again.
pub(crate) const SYMBOLS_AGAIN: Duration = Duration::from_secs(5);

/// Bytes of all indexes together.
pub(crate) const CACHE_BYTES: u64 = 20 * 1000 * 1000 * 1000;
