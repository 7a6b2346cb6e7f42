//! How the program `uverbs` ends, and its messages if something cannot continue: output that cannot be written, pipes, signals before
//! there is a result.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use serde_json::Value;

use super::children::{interrupt, interrupt_at_work};

const PCAP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/mixed.pcap");
const PCAPNG: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/mixed.pcapng");

/// Every kind of output to standard output.
const WAYS: &[&[&str]] = &[
    &["--help"],
    &["--version"],
    &["help", "watch"],
    &["devices", "--help"],
    &["devices"],
    &["devices", "--json"],
    &["info", "soft0"],
    &["info", "soft0", "--json"],
    &["stat", "soft0"],
    &["stat", "soft0", "--resources", "--json"],
    &["export", "--device", "soft0", "--once", "-"],
    &["completions", "bash"],
    &["man"],
    &["man", "stat"],
    &["watch", "--device", "soft0", "--count", "1", "--interval", "1ms"],
    &["watch", "--device", "soft0", "--count", "1", "--interval", "1ms", "--json"],
    &["watch", "--device", "soft0", "--count", "1", "--interval", "1ms", "--rule", "a=udp", "--rule", "tcp"],
    &["ping", "--device", "soft0", "--iters", "1"],
    &["ping", "--device", "soft0", "--iters", "1", "--json"],
    &["bench", "read", "--device", "soft0", "--samples", "2"],
    &["bench", "read", "--device", "soft0", "--samples", "2", "--json"],
];

const READ: [&str; 4] = ["bench", "read", "--device", "soft0"];

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uverbs"));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// The exit code of a run, and its standard output and standard error.
fn end(child: Child) -> (Option<i32>, String, String) {
    let output = child.wait_with_output().expect("it ends");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// A named pipe, removed at the end of the test.
struct Pipe(PathBuf);

impl Pipe {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("uverbs-ends-{name}-{}", std::process::id()));
        mkfifo(&path, Mode::S_IRUSR | Mode::S_IWUSR).expect("a pipe");
        Self(path)
    }

    /// A watch that counts the packets from the pipe.
    fn watch(&self, more: &[&str]) -> Child {
        let path = self.0.to_str().expect("UTF-8");
        let watch = ["watch", "--device", "soft0", "--json", "--pcap", path];
        command(&[&watch, more].concat()).spawn().expect("the program starts")
    }

    fn writer(&self) -> File {
        OpenOptions::new().write(true).open(&self.0).expect("the program reads")
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[test]
fn output_that_cannot_be_written_is_an_error_everywhere() {
    for way in WAYS {
        let full = OpenOptions::new().write(true).open("/dev/full").expect("/dev/full");
        let (code, _, stderr) = end(command(way).stdout(full).spawn().expect("the program starts"));
        assert_eq!(code, Some(1), "{way:?}: {stderr}");
        assert_eq!(stderr, "uverbs: standard output: No space left on device (os error 28)\n", "{way:?}");
    }
}

#[test]
fn a_reader_that_went_away_is_no_error_anywhere() {
    for way in WAYS {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let (code, _, stderr) = end(command(way).stdout(writer).spawn().expect("the program starts"));
        assert_eq!((code, stderr.as_str()), (Some(0), ""), "{way:?}");
    }
}

#[test]
fn an_error_that_nobody_can_read_is_a_code_all_the_same() {
    for (arguments, wanted) in [
        (&["info", "nope"][..], 3),
        (&["frobnicate"], 2),
        (&["bench"], 2),
        (&["bench", "read", "--device", "soft0", "--mode", "all", "--samples", "2"], 0),
    ] {
        let full = OpenOptions::new().write(true).open("/dev/full").expect("/dev/full");
        let (code, ..) = end(command(arguments).stderr(full).spawn().expect("the program starts"));
        assert_eq!(code, Some(wanted), "{arguments:?}");
    }
}

#[test]
fn frames_of_a_pipe_are_counted_when_they_come() {
    for file in [PCAP, PCAPNG] {
        let capture = fs::read(file).expect("a capture");
        let pipe = Pipe::new(if file == PCAP { "pcap" } else { "pcapng" });
        let mut child = pipe.watch(&["--interval", "20ms"]);
        let mut writer = pipe.writer();
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let mut packets = || {
            let line = lines.next().expect("a reading").expect("a line");
            serde_json::from_str::<Value>(&line).expect("JSON")["packets"].as_u64().expect("a number")
        };
        assert_eq!(packets(), 0);
        // Far less than a buffer of the parser, split at any place.
        for part in [&capture[..5], &capture[5..1001], &capture[1001..4000]] {
            writer.write_all(part).expect("it is read");
        }
        let begun = Instant::now();
        while packets() == 0 {
            assert!(begun.elapsed().as_secs() < 20, "{file}: nothing is shown");
        }
        interrupt(&child);
        assert!(child.wait().expect("it ends").success());
        drop(writer);
    }
}

#[test]
fn a_signal_before_anybody_writes_to_the_pipe_leaves_the_last_reading() {
    for has_writer in [false, true] {
        let pipe = Pipe::new(if has_writer { "silent" } else { "nobody" });
        // Too long for a reading to be due.
        let child = pipe.watch(&["--interval", "1h"]);
        let writer = has_writer.then(|| pipe.writer());
        interrupt(&child);
        let (code, stdout, stderr) = end(child);
        assert_eq!(code, Some(0), "{stderr}");
        let reading: Value = serde_json::from_str(&stdout).expect("one reading");
        assert_eq!(reading["packets"], 0);
        drop(writer);
    }
}

#[test]
fn what_comes_out_of_a_pipe_and_is_no_capture_is_told() {
    let pipe = Pipe::new("nonsense");
    let child = pipe.watch(&[]);
    pipe.writer().write_all(&[b'x'; 100]).expect("it is read");
    let (code, _, stderr) = end(child);
    assert_eq!(code, Some(1));
    assert!(stderr.ends_with(": not a pcap or pcapng capture\n") && stderr.lines().count() == 1, "{stderr}");
}

#[test]
fn a_measurement_that_ended_before_its_first_sample_is_no_result() {
    for arguments in [
        &["bench", "read", "--device", "soft0", "--warmup", "1000000000000"][..],
        &["bench", "read", "--device", "soft0", "--warmup", "1000000000000", "--json", "--threads", "2"],
    ] {
        let child = command(arguments).spawn().expect("the program starts");
        interrupt_at_work(&child);
        let (code, stdout, stderr) = end(child);
        assert_eq!((code, stdout.as_str()), (Some(1), ""), "{arguments:?}");
        assert_eq!(stderr, "uverbs: nothing was measured: ended before the first sample\n", "{arguments:?}");
    }
}

#[test]
fn files_are_tried_before_anything_is_measured() {
    let directory = std::env::temp_dir().join(format!("uverbs-ends-files-{}", std::process::id()));
    fs::create_dir_all(&directory).expect("a directory");
    let kept = directory.join("kept");
    fs::write(&kept, "as it was").expect("a file");
    for option in ["--plot", "--hgrm", "--json"] {
        let begun = Instant::now();
        let run = |path: &str| {
            let rest = ["--duration", "10m", option, path];
            end(command(&[&READ[..], &rest].concat()).spawn().expect("the program starts"))
        };
        let (code, _, stderr) = run("/nope/file");
        assert_eq!(code, Some(3), "{stderr}");
        assert!(stderr.starts_with("uverbs: /nope/file: No such file"), "{stderr}");
        let (code, _, stderr) = run(directory.to_str().expect("UTF-8"));
        assert_eq!(code, Some(1), "{stderr}");
        assert!(begun.elapsed().as_secs() < 60);

        // A file that can be written is left unchanged until there is something to write.
        let new = directory.join("new");
        for path in [&kept, &new] {
            let rest = [option, path.to_str().expect("UTF-8"), "--warmup", "1000000000000"];
            let child = command(&[&READ[..], &rest].concat()).spawn().expect("the program starts");
            interrupt_at_work(&child);
            assert_eq!(end(child).0, Some(1));
        }
        assert_eq!(fs::read_to_string(&kept).expect("a file"), "as it was");
        assert!(!new.exists());
    }
    fs::remove_dir_all(&directory).expect("it is ours");
}

#[test]
fn a_watch_that_sees_nothing_says_what_to_look_at_once() {
    let watch = ["watch", "--device", "soft0", "--json", "--interval", "1500ms", "--count", "4"];
    for (rule, told) in [("tcp", true), ("udp", false)] {
        let (code, stdout, stderr) =
            end(command(&[&watch[..], &["--rule", rule]].concat()).spawn().expect("the program starts"));
        assert_eq!((code, stdout.lines().count()), (Some(0), 4), "{stderr}");
        assert_eq!(stderr.lines().count(), usize::from(told), "{stderr}");
        assert!(!told || stderr.starts_with("uverbs: no packet in 3 s: of "), "{stderr}");
        assert!(!told || stderr.contains("ethertype, VLAN tag and addresses"), "{stderr}");
    }
}
