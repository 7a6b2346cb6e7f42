//! `uverbs bench read`, run as a user runs it, on the soft device.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// The modes that the soft device supports.
const MODES: [&str; 4] = ["volatile", "prepared", "driver-cached", "snapshot"];

const READ: [&str; 4] = ["bench", "read", "--device", "soft0"];

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

fn run(rest: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uverbs"));
    command.args(READ).args(rest).output().expect("the program starts")
}

/// Standard output of a run that must succeed.
fn output(rest: &[&str]) -> String {
    let output = run(rest);
    assert!(output.status.success(), "{rest:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

fn parsed(lines: &str) -> Vec<Value> {
    lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// A separate directory for each test, removed at its end.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("uverbs-bench-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a directory");
        Self(path)
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn number(object: &Value, field: &str) -> f64 {
    object[field].as_f64().unwrap_or_else(|| panic!("{field} is a number in {object}"))
}

/// Relations that the figures of reads must satisfy.
fn check_figures(object: &Value) {
    let rising = ["min_ns", "typical_ns", "p99_ns", "p999_ns", "p9999_ns", "max_ns"];
    assert!(rising.map(|field| number(object, field)).is_sorted(), "{object}");
    let (min, max) = (number(object, "min_ns"), number(object, "max_ns"));
    let (mean, stdev) = (number(object, "mean_ns"), number(object, "stdev_ns"));
    assert!(min <= mean && mean <= max && stdev >= 0.0 && stdev <= max - min, "{object}");
    for field in ["floor_ns", "refused_ns", "clock_ns", "elapsed_ns"] {
        assert!(number(object, field) > 0.0, "{field} in {object}");
    }
    assert!(number(object, "elapsed_ns") >= max, "{object}");
    assert_eq!(object["device_kind"], "soft");
    assert_eq!(object["note"], "soft device: no hardware involved");
    assert_eq!(object["device"], "soft0");
}

#[test]
fn each_mode_and_number_of_counters_is_measured() {
    let all = ["--mode", "all", "--counters", "1,7", "--samples", "500", "--warmup", "20", "--json"];
    let objects = parsed(&output(&all));
    let found: Vec<_> =
        objects.iter().map(|object| (object["mode"].as_str(), object["counters"].as_u64())).collect();
    let wanted: Vec<_> = [1, 7].iter().flat_map(|n| MODES.map(|mode| (Some(mode), Some(*n)))).collect();
    assert_eq!(found, wanted);
    for object in &objects {
        check_figures(object);
        assert_eq!(object["count"], 500);
        assert_eq!(object["threads"], 1);
        assert_eq!(object["loop"], "closed");
        assert_eq!(object["warmup"]["count"], 20);
        // Values that are not from a cache have no age, and a driver's cache does not report one.
        let aged = object["mode"] == "snapshot";
        assert_eq!((object["age_p50_ns"].is_u64(), object["age_max_ns"].is_u64()), (aged, aged), "{object}");
        assert!(!aged || number(object, "age_p50_ns") <= number(object, "age_max_ns"), "{object}");
    }
}

#[test]
fn what_the_device_does_not_have_is_said() {
    let output = run(&["--mode", "all", "--samples", "5", "--counters", "1,2"]);
    let stderr = text(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    assert_eq!(
        stderr,
        "uverbs: bulk left out: context.create: unsupported (EOPNOTSUPP): the driver soft has no DEVX; mlx5 has\n"
    );
    let output = run(&["--mode", "volatile,bulk", "--samples", "5"]);
    assert_eq!(output.status.code(), Some(5));
    assert!(text(&output.stderr).contains("the driver soft has no DEVX; mlx5 has"));
    assert_eq!(text(&output.stdout), "");
}

#[test]
fn a_thread_can_keep_snapshots_fresh() {
    let fresh = [
        "--mode",
        "snapshot",
        "--counters",
        "3",
        "--refresh",
        "1ms",
        "--max-age",
        "1h",
        "--samples",
        "100",
        "--json",
    ];
    let object = &parsed(&output(&fresh))[0];
    check_figures(object);
    assert!(object["age_max_ns"].is_u64(), "{object}");
}

#[test]
fn cached_values_are_no_older_than_allowed_but_for_a_read_of_the_device() {
    let cached = ["--mode", "snapshot", "--max-age", "20us", "--samples", "2000", "--json"];
    let object = &parsed(&output(&cached))[0];
    check_figures(object);
    // A read that finds the values too old reads the device, which takes a part of the sample.
    assert!(number(object, "age_max_ns") <= number(object, "max_ns").max(21_020.0), "{object}");
    let forever = ["--mode", "snapshot", "--max-age", "1h", "--samples", "2000", "--json"];
    let object = &parsed(&output(&forever))[0];
    // There is one read of the device, in the warm-up: the last read sees it as old as all reads took.
    assert!(number(object, "age_max_ns") > number(object, "age_p50_ns"), "{object}");
    // Except for the part of the last sample after that; histograms have three digits.
    let seen = number(object, "age_max_ns") + number(object, "max_ns");
    assert!(seen * 1.01 >= number(object, "elapsed_ns"), "{object}");
}

#[test]
fn threads_share_the_samples() {
    let object = &parsed(&output(&["--samples", "1001", "--threads", "3", "--json"]))[0];
    check_figures(object);
    assert_eq!((object["count"].as_u64(), object["threads"].as_u64()), (Some(1001), Some(3)));
}

#[test]
fn an_open_loop_sends_on_time_and_counts_what_it_does_not_send() {
    let paced = ["--open-loop", "1k", "--duration", "100ms", "--json"];
    let object = &parsed(&output(&paced))[0];
    check_figures(object);
    assert_eq!((&object["loop"], &object["rate"]), (&Value::from("open"), &Value::from(1000)));
    // On any machine, what should have been sent in the time was sent, or is reported as not sent.
    assert_eq!(number(object, "count") + number(object, "unsent"), 100.0, "{object}");
    assert!(number(object, "late") <= number(object, "count"));
    // No rate makes it faster than reads are: nearly all of these were late.
    let flood = ["--open-loop", "1G", "--samples", "2000", "--json"];
    let object = &parsed(&output(&flood))[0];
    assert_eq!((number(object, "count"), number(object, "unsent")), (2000.0, 0.0));
    assert!(number(object, "late") > 1900.0, "{object}");
    assert!(number(object, "max_ns") > number(object, "elapsed_ns") / 2.0, "{object}");
}

#[test]
fn a_table_has_the_columns_of_perftest() {
    let table = output(&["--samples", "100", "--mode", "volatile,driver-cached"]);
    let head = table.lines().find(|line| line.starts_with("mode")).expect("a head");
    for column in
        ["t_min[ns]", "t_max[ns]", "t_typical[ns]", "t_avg[ns]", "t_stdev[ns]", "99%[ns]", "99.99%[ns]"]
    {
        assert!(head.contains(column), "{table}");
    }
    for line in [
        "clock    CLOCK_MONOTONIC",
        "floor    ",
        "load     closed loop, 1 thread",
        "volatile  ",
        "driver-cached  ",
    ] {
        assert!(table.lines().any(|found| found.starts_with(line)), "{line}: {table}");
    }
    assert!(table.contains("soft device: no hardware involved"), "{table}");
    assert!(table.contains("up to Linux 7.2 no driver has a cache"), "{table}");
}

/// Whether every tag is closed, in order, with the required quotes, as far as figures need it.
fn check_xml(svg: &str) {
    let mut open = Vec::new();
    for tag in svg.split('<').skip(1) {
        let (tag, _) = tag.split_once('>').expect("a tag ends");
        assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
        let name = tag.split([' ', '\n']).next().unwrap_or_default();
        if let Some(name) = name.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "{tag}");
        } else if !tag.ends_with('/') && !tag.starts_with('?') {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "{open:?}");
}

#[test]
fn figures_say_what_they_show_and_of_what() {
    let directory = Directory::new("plot");
    let (plot, json) = (directory.file("f.svg"), directory.file("f.json"));
    let table =
        output(&["--mode", "all", "--counters", "1,3", "--samples", "300", "--plot", &plot, "--json", &json]);
    assert!(table.contains("t_typical"), "with a file for JSON the table is printed");
    assert_eq!(parsed(&fs::read_to_string(json).expect("the file")).len(), 2 * MODES.len());
    let svg = fs::read_to_string(plot).expect("the figure");
    check_xml(&svg);
    assert!(svg.starts_with("<svg ") && svg.contains("xmlns=\"http://www.w3.org/2000/svg\""));
    for text in [
        "Time to read flow counters, soft device soft0",
        "percentile of the samples (%)",
        "99.9",
        "(b) Median time to read all",
        "(c) Age of cached values, 1 counters object",
        "counters objects",
        "1 µs",
        "closed loop, 1 thread",
    ] {
        assert!(svg.contains(text), "{text}");
    }
    for mode in MODES {
        assert!(svg.lines().any(|line| line == mode), "{mode} in the legend");
    }
}

/// Values, percentiles and counts of a distribution.
fn distribution(path: &Path) -> Vec<[f64; 3]> {
    let text = fs::read_to_string(path).expect("the distribution");
    let rows = text.lines().skip(2).take_while(|line| !line.starts_with('#'));
    let number = |word: Option<&str>| word.and_then(|word| word.parse().ok()).expect("a number");
    rows.map(|row| {
        let mut words = row.split_whitespace();
        [(); 3].map(|()| number(words.next()))
    })
    .collect()
}

#[test]
fn distributions_can_be_read_and_agree_with_the_figures() {
    let directory = Directory::new("hgrm");
    let hgrm = directory.file("one.hgrm");
    let object = &parsed(&output(&["--samples", "400", "--hgrm", &hgrm, "--json"]))[0];
    let rows = distribution(Path::new(&hgrm));
    let last = rows.last().expect("rows");
    assert_eq!(last[1..], [1.0, 400.0]);
    // Times have three digits.
    assert!((last[0] - number(object, "max_ns")).abs() <= 0.001 * last[0], "{object}");
    assert!(rows.is_sorted_by(|a, b| a.iter().zip(b).all(|(a, b)| a <= b)));

    output(&["--samples", "10", "--hgrm", &directory.file("two.hgrm"), "--counters", "1,2"]);
    for name in ["two-volatile-1.hgrm", "two-volatile-2.hgrm"] {
        assert!(!distribution(&directory.0.join(name)).is_empty());
    }
    assert!(!directory.0.join("two.hgrm").exists());
}

#[test]
fn a_signal_ends_it_with_the_result_so_far() {
    let mut traced = Command::new(env!("CARGO_BIN_EXE_uverbs"));
    traced.args([
        "--trace",
        "bench",
        "read",
        "--device",
        "soft0",
        "--duration",
        "1h",
        "--warmup",
        "10",
        "--json",
    ]);
    let mut child = traced.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
    let id = Pid::from_raw(i32::try_from(child.id()).expect("a process id"));
    let mut trace = BufReader::new(child.stderr.take().expect("a pipe")).lines();
    let reads = trace.by_ref().filter(|line| line.as_ref().is_ok_and(|line| line.contains("counters.read")));
    // The first ten are the warm-up.
    assert_eq!(reads.take(50).count(), 50);
    kill(id, Signal::SIGINT).expect("the signal is sent");
    assert!(trace.all(|line| line.is_ok()));
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success());
    let objects = parsed(&text(&output.stdout));
    assert_eq!(objects.len(), 1);
    check_figures(&objects[0]);
    assert!(number(&objects[0], "count") >= 39.0, "{}", objects[0]);
}

#[test]
fn errors_are_one_line_and_a_code() {
    for (arguments, code, wanted) in [
        (&["--samples", "0"][..], 2, "0 is not in 1.."),
        (&["--counters", "0"], 2, "0 is not in 1..=1048576"),
        (&["--threads", "0"], 2, "0 is not in 1..=1024"),
        (&["--mode", "fast"], 2, "invalid value 'fast'"),
        (&["--samples", "1", "--duration", "1s"], 2, "cannot be used with"),
        (&["--open-loop", "1k", "--batch", "2"], 2, "cannot be used with"),
        (&["--open-loop", "unlimited"], 2, "an open loop needs a rate"),
        (&["--open-loop", "2G"], 2, "the maximum is 1G"),
        (&["--cpu", "x"], 2, "`x` is no number of a CPU"),
        (&["--cpu", "60000"], 2, "--cpu: this process may not run on CPU 60000"),
        (&["--port", "2"], 3, "no port 2 on soft0; the last one is 1"),
        (&["--samples", "1", "--plot", "/nope/f.svg"], 3, "/nope/f.svg: No such file"),
        (&["--samples", "1", "--json", "/nope/f.json"], 3, "/nope/f.json: No such file"),
        (&["--samples", "1", "--hgrm", "/nope/f.hgrm"], 3, "/nope/f.hgrm: No such file"),
        (&["--samples", "1", "--counters", "70000"], 1, "flow.create: exhausted"),
    ] {
        let output = run(arguments);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{arguments:?}: {stderr}");
        assert!(stderr.starts_with("uverbs: ") && stderr.contains(wanted), "{arguments:?}: {stderr}");
    }
}

#[test]
fn threads_run_where_they_are_told_to() {
    let status = fs::read_to_string("/proc/self/status").expect("a status");
    let list =
        status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).expect("a list").trim();
    let first = list.split(['-', ',']).next().expect("a CPU");
    let object = &parsed(&output(&["--samples", "100", "--cpu", first, "--json"]))[0];
    check_figures(object);
    assert_eq!(object["cpus"][0].to_string(), first);
}
