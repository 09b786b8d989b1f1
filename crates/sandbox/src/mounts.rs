//! Mounts of a sandbox: read-only, apart from the paths that a policy names.
//!
//! Landlock does not restrict changes of modes, owners, times and extended attributes. On a read-only mount they fail.

use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use rustix::mount::{MoveMountFlags, OpenTreeFlags};

use crate::confine::{SandboxError, failed, open_named};

/// Makes all mounts of this mount namespace read-only, and mounts the writable paths over themselves as they were.
pub(crate) fn seal(writable: &[PathBuf]) -> Result<(), SandboxError> {
    if writable.iter().any(|path| path == Path::new("/")) {
        return Ok(());
    }
    // Sorted, so that a directory is mounted before another one in it.
    let mut writable: Vec<&PathBuf> = writable.iter().collect();
    writable.sort();
    let clone = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let clone = clone | OpenTreeFlags::AT_EMPTY_PATH | OpenTreeFlags::AT_RECURSIVE;
    let mut trees = Vec::new();
    for path in writable {
        let place = open_named(path)?;
        let tree = rustix::mount::open_tree(place.as_fd(), c"", clone);
        trees.push((
            path,
            tree.map_err(failed("copy the mount of a writable path"))?,
        ));
    }
    mainstay_system::make_mounts_read_only(c"/").map_err(failed("make its mounts read-only"))?;
    let here = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    for (path, tree) in trees {
        // Opened anew: it may be below a path that was just mounted.
        let place = open_named(path)?;
        rustix::mount::move_mount(tree.as_fd(), c"", place.as_fd(), c"", here)
            .map_err(failed("mount a writable path"))?;
    }
    // The working directory is still one of the mounts below.
    if let Ok(folder) = std::env::current_dir() {
        std::env::set_current_dir(folder).map_err(failed("enter its directory again"))?;
    }
    Ok(())
}
