//! Executables of packs, held open: a file that is replaced on disk runs only after a rollout.
//!
//! The executable of the first worker that is accepted is kept open. Later workers run it, from its path
//! while the path leads to the same file, else from the descriptor. The successor of a rollout runs the
//! file that is at the path now; if it is accepted, that one is kept instead.
//!
//! A script cannot be held: its interpreter opens it by name, and it reads other files beside it. It runs
//! from its path. A file that is rewritten in place, rather than replaced, is not protected either.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::path::Path;

use mainstay_contract::id::Generation;
use mainstay_kernel::call::SlotId;
use rustix::fs::{CWD, FileType, Mode, OFlags};
use serde::{Deserialize, Serialize};

use crate::upgrade::{Incoming, Outgoing, Place};

/// The first bytes of a file that names its interpreter.
const SCRIPT: [u8; 2] = *b"#!";

/// The executables that packs run.
#[derive(Debug, Default)]
pub(crate) struct Programs {
    held: BTreeMap<SlotId, Program>,
    /// Those of workers that are not accepted yet; `None` for one that cannot be held.
    tried: BTreeMap<Generation, (SlotId, Option<Program>)>,
}

/// An open executable.
#[derive(Debug)]
struct Program {
    file: OwnedFd,
    /// Device and number.
    id: (u64, u64),
}

/// [`Programs`], as they are saved.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct SavedPrograms {
    held: Vec<(SlotId, Place)>,
    tried: Vec<(Generation, SlotId, Option<Place>)>,
}

impl Programs {
    /// Their state, for the program that continues this one.
    pub(crate) fn save<'a>(&'a self, descriptors: &mut Outgoing<'a>) -> SavedPrograms {
        let mut save = |program: &'a Program| descriptors.add(program.file.as_fd());
        let held = self.held.iter();
        let held = held.map(|(slot, program)| (*slot, save(program))).collect();
        let tried = self.tried.iter();
        let tried = tried
            .map(|(generation, (slot, program))| {
                (*generation, *slot, program.as_ref().map(&mut save))
            })
            .collect();
        SavedPrograms { held, tried }
    }

    /// The state that another program saved.
    pub(crate) fn restore(saved: SavedPrograms, descriptors: &mut Incoming) -> io::Result<Self> {
        let mut programs = Self::default();
        for (slot, place) in saved.held {
            let program = Program::of(descriptors.take(place)?)?;
            programs.held.insert(slot, program);
        }
        for (generation, slot, place) in saved.tried {
            let program = match place {
                Some(place) => Some(Program::of(descriptors.take(place)?)?),
                None => None,
            };
            programs.tried.insert(generation, (slot, program));
        }
        Ok(programs)
    }

    /// Chooses the executable of a worker: `fresh` takes the one that is at `path` now. Returns the
    /// descriptor to run if the path leads to another file.
    pub(crate) fn choose(
        &mut self,
        slot: SlotId,
        generation: Generation,
        path: &Path,
        fresh: bool,
    ) -> Option<OwnedFd> {
        let held = self.held.get(&slot).filter(|_| !fresh);
        let Some(held) = held else {
            self.tried.insert(generation, (slot, Program::open(path)));
            return None;
        };
        if rustix::fs::stat(path).is_ok_and(|facts| (facts.st_dev, facts.st_ino) == held.id) {
            return None;
        }
        held.file.try_clone().ok()
    }

    /// A worker was accepted: its executable is the one of later workers.
    pub(crate) fn accept(&mut self, generation: Generation) {
        match self.tried.remove(&generation) {
            Some((slot, Some(program))) => {
                self.held.insert(slot, program);
            }
            Some((slot, None)) => {
                self.held.remove(&slot);
            }
            None => {}
        }
    }

    /// A worker has gone.
    pub(crate) fn forget(&mut self, generation: Generation) {
        self.tried.remove(&generation);
    }
}

impl Program {
    /// Opens an executable that can be held.
    fn open(path: &Path) -> Option<Self> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let file = rustix::fs::openat(CWD, path, flags, Mode::empty()).ok()?;
        let facts = rustix::fs::fstat(&file).ok()?;
        // Opening a FIFO would wait for a writer.
        if FileType::from_raw_mode(facts.st_mode) != FileType::RegularFile {
            return None;
        }
        let mut start = [0; SCRIPT.len()];
        // A file that may be run and not read is not a script: its interpreter would have to read it.
        let same = format!("/proc/self/fd/{}", file.as_raw_fd());
        let read = File::open(same).and_then(|mut file| file.read_exact(&mut start));
        let is_script = read.is_ok() && start == SCRIPT;
        if is_script {
            return None;
        }
        Self::of(file).ok()
    }

    fn of(file: OwnedFd) -> io::Result<Self> {
        let facts = rustix::fs::fstat(&file)?;
        let id = (facts.st_dev, facts.st_ino);
        Ok(Self { file, id })
    }
}

#[cfg(test)]
mod tests {
    use mainstay_testkit::process::TempDir;

    use super::*;

    #[test]
    fn a_replaced_executable_runs_only_after_it_was_accepted_fresh() {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("pack");
        let replace = |text: &str| {
            let next = folder.path().join("next");
            std::fs::write(&next, text).unwrap();
            std::fs::rename(next, &path).unwrap();
        };
        let (slot, generation) = (SlotId(0), Generation::new);
        let mut programs = Programs::default();
        replace("one");
        let id = |fd: &OwnedFd| rustix::fs::fstat(fd).unwrap().st_ino;
        let first = rustix::fs::stat(&path).unwrap().st_ino;
        assert!(programs.choose(slot, generation(1), &path, false).is_none());
        programs.accept(generation(1));
        assert!(programs.choose(slot, generation(2), &path, false).is_none());
        replace("two");
        let held = programs.choose(slot, generation(3), &path, false).unwrap();
        assert_eq!(id(&held), first);
        assert!(programs.choose(slot, generation(4), &path, true).is_none());
        // It is refused.
        programs.forget(generation(4));
        let held = programs.choose(slot, generation(5), &path, false).unwrap();
        assert_eq!(id(&held), first);
        assert!(programs.choose(slot, generation(6), &path, true).is_none());
        programs.accept(generation(6));
        assert!(programs.choose(slot, generation(7), &path, false).is_none());
        replace("#!/bin/sh");
        assert!(programs.choose(slot, generation(8), &path, true).is_none());
        programs.accept(generation(8));
        let held = programs.choose(slot, generation(9), &path, false);
        assert!(held.is_none(), "{held:?}");
        // A FIFO is not waited for.
        std::fs::remove_file(&path).unwrap();
        rustix::fs::mknodat(CWD, &path, FileType::Fifo, Mode::RWXU, 0).unwrap();
        assert!(programs.choose(slot, generation(10), &path, true).is_none());
    }
}
