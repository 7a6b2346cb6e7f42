//! `--once`: a file for node_exporter's textfile collector, written completely or not at all.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::Outcome;
use crate::failure::Failure;

/// Replaces the contents of the file by `text`. Readers see the old or the new contents.
///
/// # Errors
/// The file is unchanged in this case.
pub(super) fn write(path: &Path, text: &str) -> Outcome {
    let failed = |error| Failure::File(path.display().to_string(), error);
    let temporary =
        temporary(path).ok_or_else(|| Failure::Usage(format!("{}: it names no file", path.display())))?;
    // Only a regular file is replaced. If the path names a device, a pipe or a link, replacing it would not be what the user
    // wants.
    if fs::symlink_metadata(path).is_ok_and(|there| !there.is_file()) {
        return Err(failed(io::Error::other("it is there, and is no regular file")));
    }
    let mut file = fs::OpenOptions::new().write(true).create_new(true).open(&temporary).map_err(failed)?;
    let written = file
        .write_all(text.as_bytes())
        // The collector runs as another user, so the file must be readable whatever the umask is.
        .and_then(|()| file.set_permissions(fs::Permissions::from_mode(0o644)))
        // A file that is renamed before it is on the disk may be empty after a crash of the machine.
        .and_then(|()| file.sync_all())
        .and_then(|()| fs::rename(&temporary, path));
    written.map_err(|error| {
        let _ = fs::remove_file(&temporary);
        failed(error)
    })
}

/// A name in the same directory that does not end in `.prom`, because the collector reads files with that ending.
fn temporary(path: &Path) -> Option<PathBuf> {
    let mut name = OsString::from(".");
    name.push(path.file_name()?);
    name.push(format!(".{}.tmp", std::process::id()));
    Some(path.with_file_name(name))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use super::*;

    struct Directory(PathBuf);

    impl Directory {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("uverbs-once-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).expect("a directory");
            Self(path)
        }

        fn names(&self) -> Vec<OsString> {
            fs::read_dir(&self.0)
                .expect("a directory")
                .map(|entry| entry.expect("an entry").file_name())
                .collect()
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_reader_sees_one_text_or_the_other() {
        let directory = Directory::new("whole");
        let path = directory.0.join("uverbs.prom");
        let texts = ["a".repeat(100_000), "b".repeat(50_000)];
        write(&path, &texts[0]).expect("it is written");
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut seen = 0;
                while !done.load(Ordering::Relaxed) {
                    let text = fs::read_to_string(&path).expect("it is always there");
                    assert!(texts.contains(&text), "{} bytes", text.len());
                    seen += 1;
                }
                seen
            });
            for number in 0..50 {
                write(&path, &texts[number % 2]).expect("it is written");
            }
            done.store(true, Ordering::Relaxed);
            assert!(reader.join().expect("no panic") > 0);
        });
        assert_eq!(directory.names(), ["uverbs.prom"]);
    }

    #[test]
    fn what_fails_changes_nothing() {
        let directory = Directory::new("fails");
        // A directory that is not empty cannot be replaced by a file.
        let path = directory.0.join("kept");
        fs::create_dir_all(path.join("inside")).expect("a directory");
        assert!(matches!(write(&path, "x"), Err(Failure::File(..))));
        assert_eq!(directory.names(), ["kept"]);
        let nowhere = directory.0.join("nowhere/file.prom");
        assert_eq!(write(&nowhere, "x").expect_err("no directory").exit_code(), 3);
        assert_eq!(write(Path::new("/"), "x").expect_err("no name").exit_code(), 2);
    }

    #[test]
    fn what_is_no_file_or_another_ones_stays() {
        let directory = Directory::new("others");
        let (path, link) = (directory.0.join("uverbs.prom"), directory.0.join("link"));
        write(&path, "ours").expect("it is written");
        let mode = fs::metadata(&path).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o644, "the collector may read it");
        std::os::unix::fs::symlink(&path, &link).expect("a link");
        assert!(matches!(write(&link, "x"), Err(Failure::File(..))));
        assert!(fs::symlink_metadata(&link).is_ok_and(|there| there.is_symlink()));
        // A process with the same process number, in another container, is writing its file.
        let busy = temporary(&path).expect("a name");
        fs::write(&busy, "theirs").expect("a file");
        assert!(matches!(write(&path, "x"), Err(Failure::File(..))));
        assert_eq!(fs::read_to_string(&busy).ok().as_deref(), Some("theirs"));
        assert_eq!(fs::read_to_string(&path).ok().as_deref(), Some("ours"));
    }
}
