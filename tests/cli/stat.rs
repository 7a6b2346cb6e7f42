//! `uverbs stat`, as a user runs it: on the soft device, and on devices in a sysfs tree of the test. Then what is generated from the
//! definition of the command line: completions and manual pages.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use super::children::interrupt;
use super::skips::skipped;

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uverbs"));
    command.args(arguments).stdin(Stdio::null());
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

/// Standard output of a run that must succeed, with nothing on standard error.
fn said(command: &mut Command) -> String {
    let output = command.output().expect("the program starts");
    assert!(output.status.success(), "{command:?}: {}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "", "{command:?}");
    text(&output.stdout)
}

/// The one line on standard error of a run that must end with this code.
fn complaint(command: &mut Command, code: i32) -> String {
    let Output { status, stderr, .. } = command.output().expect("the program starts");
    let stderr = text(&stderr);
    assert_eq!((status.code(), stderr.lines().count()), (Some(code), 1), "{command:?}: {stderr}");
    stderr.strip_prefix("uverbs: ").expect("it says who complains").trim_end().to_owned()
}

/// A sysfs tree with two devices, removed at the end of the test.
struct Tree(PathBuf);

impl Tree {
    fn new(name: &str) -> Self {
        let tree = Self(std::env::temp_dir().join(format!("uverbs-stat-{name}-{}", std::process::id())));
        for (number, device) in ["some0", "some1"].into_iter().enumerate() {
            let verbs = format!("class/infiniband_verbs/uverbs{number}");
            tree.file(&format!("{verbs}/ibdev"), &format!("{device}\n"));
            tree.file(&format!("{verbs}/abi_version"), "1\n");
            tree.file(&format!("class/infiniband/{device}/node_type"), "1: CA\n");
        }
        for (file, value) in [
            ("ports/1/counters/port_rcv_data", "1000"),
            ("ports/1/counters/port_xmit_data", "0"),
            ("ports/1/counters/link_downed", "255"),
            ("ports/1/counters/symbol_error", "N/A (no PMA)"),
            ("ports/1/hw_counters/out_of_buffer", "7"),
            ("ports/1/hw_counters/odd \"name\"\n", "8"),
            ("ports/1/hw_counters/active_qps", "2"),
            ("ports/1/hw_counters/lifespan", "12"),
            ("ports/2/counters/port_rcv_packets", "5"),
            ("hw_counters/cmds_err", "9"),
        ] {
            tree.file(&format!("class/infiniband/some0/{file}"), &format!("{value}\n"));
        }
        tree.file("class/infiniband/some1/ports/1/state", "4: ACTIVE\n");
        tree
    }

    fn file(&self, path: &str, text: &str) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().expect("a directory")).expect("it is ours");
        fs::write(path, text).expect("it is ours");
    }

    /// A run with these devices; `None` if RDMA netlink answers, because it reports other devices.
    fn command(&self, arguments: &[&str]) -> Option<Command> {
        let mut list = command(&["devices"]);
        // The devices have no files, which is said on standard error.
        let output = list.env("SYSFS_PATH", &self.0).output().expect("the program starts");
        if !text(&output.stdout).contains("\nsome0 ") {
            skipped("uverbs stat on a made-up tree: RDMA netlink answers on this machine");
            return None;
        }
        let mut command = command(arguments);
        command.env("SYSFS_PATH", &self.0);
        Some(command)
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_port_is_listed_although_its_device_cannot_be_opened() {
    let tree = Tree::new("devices");
    let port = "class/infiniband/some1/ports/1";
    tree.file(&format!("{port}/rate"), "100 Gb/sec (4X EDR)\n");
    tree.file(&format!("{port}/link_layer"), "InfiniBand\n");
    tree.file(&format!("{port}/gids/0"), "fe80:0000:0000:0000:0011:2233:4455:6677\n");
    let Some(mut list) = tree.command(&["devices", "some1"]) else { return };
    let output = list.output().expect("the program starts");
    let (table, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{stderr}");
    let row = table.lines().nth(1).expect("a row").split_whitespace().collect::<Vec<_>>();
    assert_eq!((row[0], &row[3..8]), ("some1", &["1", "ACTIVE", "100", "Gb/s", "-"][..]), "{table}");
    assert!(
        stderr.starts_with(
            "uverbs: some1: some of its ports could not be seen, such as the MTU: device.open: "
        ),
        "{stderr}"
    );
    let addresses = said(&mut tree.command(&["devices", "--gids", "some1"]).expect("as before"));
    assert!(
        addresses.contains("fe80:0000:0000:0000:0011:2233:4455:6677") && addresses.contains("IB"),
        "{addresses}"
    );
}

#[test]
fn the_soft_devices_port_has_counters() {
    let page = said(&mut command(&["stat", "soft0"]));
    assert_eq!(
        page,
        "soft0 (soft)\n  port 1, the driver's counters\n    4 counters are zero (--all shows them)\n"
    );
    let page = said(&mut command(&["stat", "soft0/1", "--all"]));
    assert!(page.lines().any(|line| line == "    rcvd_bytes  0  bytes"), "{page}");
    let page = said(&mut command(&["stat", "soft0", "--resources"]));
    assert!(page.contains("alive: pd 0, cq 0"), "{page}");
}

#[test]
fn a_page_has_units_ends_and_what_is_missing() {
    let tree = Tree::new("page");
    let Some(mut command) = tree.command(&["stat", "some0"]) else { return };
    let wanted = r#"some0 (unknown)
  port 1, InfiniBand's counters
    port_rcv_data  4000  bytes
    link_downed     255  events  at its maximum (8 bits): this many or more
    symbol_error      -          statistics.read: malformed answer: the kernel's file holds no number
    1 counter is zero (--all shows it)
  port 1, the driver's counters
    active_qps      2  events  a level
    odd \"name\"\n  8  events
    out_of_buffer   7  events
  port 2, InfiniBand's counters
    port_rcv_packets  5  packets
  the device, the driver's counters
    cmds_err  9  events
"#;
    assert_eq!(said(&mut command), wanted);
    let page = said(&mut tree.command(&["stat", "some0/1", "--all", "--raw"]).expect("as before"));
    for line in ["port_rcv_data 1000 words of 4 bytes", "port_xmit_data 0 words of 4 bytes"] {
        assert!(page.lines().any(|shown| shown.split_whitespace().eq(line.split(' '))), "{page}");
    }
    assert!(!page.contains("port 2") && !page.contains("the device,"), "{page}");
    let page = said(&mut tree.command(&["stat", "--hw"]).expect("as before"));
    assert!(!page.contains("port_rcv_data") && page.contains("out_of_buffer"), "{page}");
    let second = "some1 (unknown)\n  no counters: the driver counts nothing that the kernel shows\n";
    assert!(page.ends_with(second), "{page}");
}

#[test]
fn json_has_values_as_people_and_as_the_kernel_have_them() {
    let tree = Tree::new("json");
    let Some(mut command) = tree.command(&["stat", "--json"]) else { return };
    let page: Value = serde_json::from_str(&said(&mut command)).expect("one document");
    let [first, second] = &page["devices"].as_array().expect("devices")[..] else { panic!("{page}") };
    assert_eq!((&first["name"], &second["name"]), (&"some0".into(), &"some1".into()));
    let row = |name: &str| {
        let rows = first["counters"].as_array().expect("counters");
        rows.iter().find(|row| row["name"] == name).cloned().expect("a counter")
    };
    let data = row("port_rcv_data");
    assert_eq!((&data["value"], &data["raw"], &data["unit"]), (&4000.into(), &1000.into(), &"bytes".into()));
    assert_eq!((&data["port"], &data["source"], &data["bits"]), (&1.into(), &"counters".into(), &32.into()));
    assert_eq!((&row("link_downed")["saturated"], &row("active_qps")["gauge"]), (&true.into(), &true.into()));
    assert_eq!((&row("cmds_err")["port"], &row("cmds_err")["bits"]), (&Value::Null, &Value::Null));
    assert_eq!(row("odd \"name\"\n")["value"], 8);
    let [missing] = &first["missing"].as_array().expect("what is missing")[..] else { panic!("{page}") };
    assert_eq!((&missing["name"], &missing["source"]), (&"symbol_error".into(), &"counters".into()));
    assert_eq!(second["counters"].as_array().map(Vec::len), Some(0));
}

#[test]
fn a_watch_has_rates_and_ends_when_the_device_has_gone() {
    let tree = Tree::new("watch");
    let arguments = ["stat", "some0/1", "--watch", "20ms", "--json"];
    let Some(mut command) = tree.command(&arguments) else { return };
    let started = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = started.expect("the program starts");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let mut next = || -> Value {
        let line = lines.next().expect("a reading").expect("a line");
        serde_json::from_str(&line).expect("JSON")
    };
    let rate = |page: &Value| {
        let rows = page["devices"][0]["counters"].as_array().expect("counters");
        let row = rows.iter().find(|row| row["name"] == "port_rcv_data").expect("it is there").clone();
        (row["raw"].as_u64().expect("a number"), row["per_second"].as_f64())
    };
    assert_eq!(rate(&next()), (1000, None), "the first has none");
    // Written to another file first, so that no reading finds it empty.
    let file = tree.0.join("class/infiniband/some0/ports/1/counters/port_rcv_data");
    fs::write(file.with_extension("new"), "2000\n").expect("it is ours");
    fs::rename(file.with_extension("new"), &file).expect("it is ours");
    let seen = (0..500).map(|_| rate(&next())).find(|(raw, _)| *raw == 2000).expect("it is read again");
    assert!(seen.1.expect("a rate") > 0.0);
    fs::remove_dir_all(tree.0.join("class/infiniband/some0")).expect("it is ours");
    let output = child.wait_with_output().expect("it ends");
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.starts_with("uverbs: some0: statistics.read: device gone (ENODEV)"), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
}

#[test]
fn counters_that_are_set_back_have_no_rate_and_say_so() {
    let tree = Tree::new("back");
    let file = |name: &str, value: &str| {
        let file = tree.0.join("class/infiniband/some0/ports/1").join(name);
        fs::write(file.with_extension("new"), value).expect("it is ours");
        fs::rename(file.with_extension("new"), &file).expect("it is ours");
    };
    file("counters/unicast_rcv_packets", "1000\n");
    let arguments = ["stat", "some0/1", "--watch", "20ms", "--json"];
    let Some(mut command) = tree.command(&arguments) else { return };
    let mut child = command.stdout(Stdio::piped()).spawn().expect("the program starts");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    // The next reading in which these counters are as wanted.
    let mut until = |wanted: &[(&str, u64)]| -> Value {
        let page = (0..500).find_map(|_| {
            let line = lines.next().expect("a reading").expect("a line");
            let page: Value = serde_json::from_str(&line).expect("JSON");
            let rows = page["devices"][0]["counters"].clone();
            let is = |(name, raw): &(&str, u64)| {
                rows.as_array()
                    .is_some_and(|rows| rows.iter().any(|row| row["name"] == *name && row["raw"] == *raw))
            };
            wanted.iter().all(is).then_some(rows)
        });
        page.expect("it is read again")
    };
    let told = |rows: &Value, name: &str| {
        let rows = rows.as_array().expect("counters");
        let row = rows.iter().find(|row| row["name"] == name).expect("it is there");
        (row["per_second"].clone(), row["reset"].clone())
    };
    let (data, wide, narrow) = ("port_rcv_data", "unicast_rcv_packets", "link_downed");
    let rows = until(&[(data, 1000), (wide, 1000), (narrow, 255)]);
    assert_eq!(told(&rows, wide), (Value::Null, false.into()), "the first has neither");
    for (name, before, now) in [(data, 1000, 3), (wide, 1000, 0), (narrow, 255, 2)] {
        file(&format!("counters/{name}"), &format!("{now}\n"));
        let rows = until(&[(name, now)]);
        assert_eq!(told(&rows, name), (Value::Null, true.into()), "{name} from {before}: {rows}");
        let rows = until(&[(name, now)]);
        assert_eq!(told(&rows, name), (0.0.into(), false.into()), "{name}: from there on it counts");
    }
    interrupt(&child);
    drop(lines);
    child.wait().expect("it ends");
    // In text, also if it stands at zero.
    let arguments = ["stat", "some0/1", "--watch", "200ms", "--count", "20"];
    let mut command = tree.command(&arguments).expect("as before");
    let mut child = command.stdout(Stdio::piped()).spawn().expect("the program starts");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let mut until =
        |has: &dyn Fn(&str) -> bool| lines.by_ref().map(|line| line.expect("a line")).find(|line| has(line));
    until(&|line| line.contains("port_rcv_data")).expect("the first reading");
    file("counters/port_rcv_data", "0\n");
    let line = until(&|line| line.contains("reset")).expect("it says so");
    let words: Vec<_> = line.split_whitespace().collect();
    assert_eq!(words, ["port_rcv_data", "0", "bytes", "reset", "since", "the", "previous", "reading"]);
    interrupt(&child);
    drop(lines);
    child.wait().expect("it ends");
}

#[test]
fn a_watch_ends_after_its_readings_and_on_a_signal() {
    let pages = said(&mut command(&["stat", "soft0", "--all", "--watch", "10ms", "--count", "3"]));
    assert_eq!(pages.matches("soft0 (soft)").count(), 3, "{pages}");
    assert!(pages.contains("packets/s") && pages.contains("\n\nsoft0"), "{pages}");
    let mut child = command(&["stat", "soft0", "--watch", "10ms", "--json"]);
    let mut child = child.stdout(Stdio::piped()).spawn().expect("the program starts");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    lines.next().expect("a reading").expect("a line");
    interrupt(&child);
    lines
        .map(|line| line.expect("a line"))
        .for_each(|line| drop(serde_json::from_str::<Value>(&line).expect("JSON")));
    assert!(child.wait().expect("it ends").success());
}

#[test]
fn colours_are_for_terminals_and_for_who_wants_them() {
    let program = env!("CARGO_BIN_EXE_uverbs");
    // script(1) gives the program a terminal.
    let on_terminal = |variable: &str, value: &str| {
        let line = format!("'{program}' stat soft0");
        let mut script = Command::new("script");
        script
            .args(["-qec", &line, "/dev/null"])
            .stdin(Stdio::null())
            .env("TERM", "xterm")
            .env_remove("NO_COLOR");
        script.env(variable, value).output().map(|output| text(&output.stdout))
    };
    let Ok(coloured) = on_terminal("NO_COLOR", "") else {
        return skipped("colours of uverbs stat: there is no script(1)");
    };
    assert!(coloured.contains("\u{1b}[1msoft0\u{1b}[m (soft)"), "{coloured:?}");
    for (variable, value) in [("NO_COLOR", "1"), ("TERM", "dumb")] {
        let plain = on_terminal(variable, value).expect("as before");
        assert!(plain.contains("soft0 (soft)") && !plain.contains('\u{1b}'), "{variable}: {plain:?}");
    }
    assert!(!said(command(&["stat", "soft0"]).env("TERM", "xterm")).contains('\u{1b}'));
}

#[test]
fn refusals_are_one_line_and_a_code() {
    for (arguments, code, wanted) in [
        (&["stat", "nope"][..], 3, "no device nope; there is "),
        (&["stat", "soft0/2"], 3, "no port 2 on soft0; the last one is 1"),
        (&["stat", "soft0/99999999999"], 3, "no port 4294967295 on soft0"),
        (&["stat", "soft0", "--qp"], 5, "a soft device does not count per queue pair"),
        (&["stat", "soft0", "--watch", "0s"], 2, "longer than zero"),
        (&["stat", "soft0", "--count", "3"], 2, "--watch <TIME>"),
        (
            &["man", "nope"],
            2,
            "no subcommand nope; there is devices, doctor, verify, info, watch, stat, export",
        ),
        (&["man", "--dir", "/nope"], 3, "/nope: No such file"),
        (&["completions", "csh"], 2, "invalid value 'csh'"),
    ] {
        let line = complaint(&mut command(arguments), code);
        assert!(line.contains(wanted), "{arguments:?}: {line}");
    }
    // A device without counters is distinguished from one whose ports cannot be read.
    let tree = Tree::new("refusals");
    let Some(mut command) = tree.command(&["stat", "some0", "--resources"]) else { return };
    assert!(complaint(&mut command, 5).contains("RDMA netlink"));
}

#[test]
fn completions_are_for_each_shell() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = said(&mut command(&["completions", shell]));
        for word in ["uverbs", "stat", "resources", "completions"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
    // bash, which every Debian has, accepts its script.
    let script = said(&mut command(&["completions", "bash"]));
    let line = "eval \"$1\"; COMP_WORDS=(uverbs st) COMP_CWORD=1; _uverbs uverbs st uverbs; echo \"${COMPREPLY[*]}\"";
    let completed = Command::new("bash").args(["-c", line, "bash", &script]).output();
    match completed {
        Ok(output) => assert_eq!(text(&output.stdout).trim(), "stat", "{}", text(&output.stderr)),
        Err(_) => skipped("completions in bash: there is no bash"),
    }
}

#[test]
fn each_subcommand_has_a_manual_page() {
    let page = said(&mut command(&["man", "stat"]));
    assert!(page.contains(".TH uverbs-stat 1") && page.contains("\\-\\-resources"), "{page}");
    assert!(said(&mut command(&["man"])).contains("uverbs\\-stat(1)"));
    assert!(said(&mut command(&["man", "bench", "read"])).contains(".TH uverbs-bench-read 1"));
    let directory = std::env::temp_dir().join(format!("uverbs-man-{}", std::process::id()));
    fs::create_dir_all(&directory).expect("it is ours");
    said(&mut command(&["man", "--dir", directory.to_str().expect("UTF-8")]));
    for name in [
        "uverbs",
        "uverbs-devices",
        "uverbs-info",
        "uverbs-watch",
        "uverbs-stat",
        "uverbs-export",
        "uverbs-ping",
        "uverbs-bench-read",
    ] {
        let page = fs::read_to_string(directory.join(format!("{name}.1"))).expect("a page");
        assert!(page.contains(&format!(".TH {name} 1")), "{name}");
    }
    fs::remove_dir_all(&directory).expect("it is ours");
}
