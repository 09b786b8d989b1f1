//! Rotation, and several writers of one file.

use std::os::unix::fs::PermissionsExt;

use super::*;

/// A folder that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("mst-events-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn file(&self) -> PathBuf {
        self.0.join("events.jsonl")
    }

    /// The lines of all files, oldest first.
    fn lines(&self, files: usize) -> Vec<String> {
        let names = (1..files).rev().map(|age| format!("events.jsonl.{age}"));
        names
            .chain(["events.jsonl".to_owned()])
            .filter_map(|name| fs::read_to_string(self.0.join(name)).ok())
            .flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>())
            .collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn full_file_is_moved_and_the_oldest_goes() {
    let folder = Folder::new("rotation");
    let mut file = EventFile::open(&folder.file(), 20, 3).unwrap();
    for number in 0..8 {
        file.append(format!("line {number}\n").as_bytes()).unwrap();
    }
    // Two lines of seven bytes fit into twenty; three files of two lines are kept.
    let kept: Vec<_> = (2..8).map(|number| format!("line {number}")).collect();
    assert_eq!(folder.lines(3), kept);
    assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 3);
    for entry in fs::read_dir(&folder.0).unwrap() {
        let mode = entry.unwrap().metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}

#[test]
fn batch_over_the_size_has_a_file_of_its_own() {
    let folder = Folder::new("large");
    let mut file = EventFile::open(&folder.file(), 10, 4).unwrap();
    for text in ["small\n", "much longer than ten\n", "small\n"] {
        file.append(text.as_bytes()).unwrap();
    }
    assert_eq!(folder.lines(4), ["small", "much longer than ten", "small"]);
}

#[test]
fn many_writers_lose_double_and_tear_nothing() {
    const WRITERS: usize = 8;
    const LINES: usize = 500;
    let folder = Folder::new("writers");
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let path = folder.file();
            scope.spawn(move || {
                let mut file = EventFile::open(&path, 2000, 200).unwrap();
                for line in 0..LINES {
                    let text = format!("{writer} {line}\n{writer} {line} again\n");
                    file.append(text.as_bytes()).unwrap();
                }
            });
        }
    });
    let lines = folder.lines(200);
    for writer in 0..WRITERS {
        let mine = lines
            .iter()
            .filter(|line| line.starts_with(&format!("{writer} ")));
        let expected: Vec<_> = (0..LINES)
            .flat_map(|line| [format!("{writer} {line}"), format!("{writer} {line} again")])
            .collect();
        assert!(
            mine.eq(&expected),
            "writer {writer}: its lines are not in order"
        );
    }
    assert_eq!(lines.len(), 2 * WRITERS * LINES);
    assert!(fs::read_dir(&folder.0).unwrap().count() > 20);
}

#[test]
fn removed_file_is_made_again_and_a_removed_folder_is_an_error() {
    let folder = Folder::new("removed");
    let mut file = EventFile::open(&folder.file(), 1000, 4).unwrap();
    file.append(b"one\n").unwrap();
    fs::remove_file(folder.file()).unwrap();
    file.append(b"two\n").unwrap();
    assert_eq!(folder.lines(4), ["two"]);
    fs::remove_dir_all(&folder.0).unwrap();
    assert!(file.append(b"three\n").is_err());
    fs::create_dir(&folder.0).unwrap();
    file.append(b"four\n").unwrap();
    assert_eq!(folder.lines(4), ["four"]);
}

#[test]
fn half_a_line_of_a_killed_writer_is_ended() {
    let folder = Folder::new("half");
    fs::write(folder.file(), "{\"event\":\"requ").unwrap();
    let mut file = EventFile::open(&folder.file(), 1000, 4).unwrap();
    file.append(b"one\n").unwrap();
    assert_eq!(folder.lines(4), ["{\"event\":\"requ", "one"]);
}

#[test]
fn what_is_no_regular_file_is_refused() {
    assert!(EventFile::open(Path::new("/dev/null"), 1000, 4).is_err());
    assert!(EventFile::open(&std::env::temp_dir(), 1000, 4).is_err());
}

#[test]
fn a_lock_that_is_never_released_fails_the_write_and_does_not_block_it() {
    let folder = Folder::new("held");
    let path = folder.file();
    let mut file = EventFile::open(&path, 1 << 20, 2).unwrap();
    file.append(b"{}\n").unwrap();
    let held = File::open(&path).unwrap();
    held.lock().unwrap();
    let error = file.append(b"{}\n").unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ResourceBusy);
    held.unlock().unwrap();
    file.append(b"{}\n").unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "{}\n{}\n");
}
