//! Checks that each command on a page names existing programs, lanes, tests and options, and is run by a test or has a reason why not.
//!
//! `cargo test --test house commands -- --nocapture` prints each command with the test that runs it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use super::{lanes, root};

#[path = "../common/pages.rs"]
mod pages;

/// How a command is tested.
#[derive(Clone, Copy, Debug)]
enum Tried {
    /// A test or a lane does the same: this file, which contains this text.
    By(&'static str, &'static str),
    /// No test runs it, for this reason.
    Not(&'static str),
}
use Tried::{By, Not};

const PACKAGE: &str = "tests/vm/dropin/dropin-package.sh";

/// The commands that no test takes from the page and that do not only name a lane, by their beginnings; `$` is the end of a command.
#[rustfmt::skip]
const LIST: &[(&str, Tried)] = &[
    ("cargo build --workspace --features cli", By(".ci/run", "cargo test --workspace --features cli")),
    ("cargo test --workspace --features cli", By(".ci/run", "cargo test --workspace --features cli")),
    ("cargo test --test any", By(".ci/run", "cargo test --workspace --features cli")),
    ("cargo fmt --all &&", By(".ci/run", "cargo clippy --workspace --all-targets --all-features -- -D warnings")),
    ("cargo build --profile dropin -p uverbs-c -p", By(PACKAGE, "build --profile dropin --package uverbs-c-efa")),
    ("mkdir -p /tmp/dropin", By("tests/vm/lib/dropin-common.sh", "/tmp/dropin/libibverbs.so.1")),
    ("ln -sf \"$PWD/target/dropin/libmlx5.so\"", By("tests/vm/lib/dropin-common.sh", "/tmp/dropin/libmlx5.so.1")),
    ("ln -sf \"$PWD/target/dropin/libefa.so\"", By("tests/vm/lib/dropin-common.sh", "/tmp/dropin/libefa.so.1")),
    ("ln -sf libibverbs.so.1", By("tests/vm/lib/dropin-common.sh", "ln -s libibverbs.so.1 /tmp/dropin/libibverbs.so")),
    ("LD_LIBRARY_PATH=/tmp/dropin ibv_devinfo -v", By("tests/vm/dropin/rxe/dropin.sh", "ibv_devinfo -v")),
    ("uverbs-c/debian/build", By(PACKAGE, "uverbs-c/debian/build")),
    ("sudo dpkg -i libibverbs1-uverbs", By(PACKAGE, "dpkg -i")),
    ("rustup target add x86_64-unknown-linux-musl", By("tests/vm/dropin/dropin-static.sh", "x86_64-unknown-linux-musl")),
    ("cargo build --profile dropin -p uverbs-c --target", By("tests/vm/dropin/dropin-static.sh", "x86_64-unknown-linux-musl")),
    ("mkdir headers", By("tests/vm/run", "idirafter")),
    ("musl-gcc", By("tests/vm/dropin/dropin-static.sh", "musl-gcc UVERBS_MUSL")),
    ("gcc -shared", By("uverbs-c/tests/exports.rs", "--whole-archive")),
    ("uverbs completions", By("tests/cli/stat.rs", "completions")),
    ("uverbs man bench read", By("tests/cli/stat.rs", "\"man\"")),
    ("uverbs ping --device rxe0", By("tests/vm/rxe/rxe.sh", "ping_side")),
    ("uverbs ping --cm", By("tests/vm/lib/connections.sh", "ping --cm")),
    ("rping -s", By("tests/vm/lib/stock.sh", "rping -s")),
    ("ibv_rc_pingpong", By("tests/vm/rxe/rxe.sh", "_pingpong\" -d")),
    ("uverbs stat", By("tests/vm/lib/statistics.sh", "stat")),
    ("uverbs verify", By("tests/cli/verify.rs", "the_page_has_each_row")),
    ("uverbs doctor", By("tests/vm/rxe/doctor.sh", "doctor --watch")),
    ("cargo new counting", Not("makes a package outside of the repository")),
    ("cargo add uverbs", Not("makes a package outside of the repository; the listing is a documentation test")),
    ("cargo run$", By("src/lib.rs", "docs/guide/first-program.md")),
    ("cargo build && sudo", Not("needs a card")),
    ("RUSTFLAGS=\"--cfg uverbs_loom\"", By(".ci/run", "RUSTFLAGS=\"--cfg uverbs_loom\" cargo test --release")),
    ("cargo run --example completion_counters", By("tests/examples.rs", "completion_counters")),
    ("cargo bench --bench wait", By(".ci/run", "--bench wait")),
    ("cargo bench --features cli --bench scrape", By(".ci/run", "--bench scrape")),
    ("cargo bench --features tokio --bench requests", By(".ci/run", "--bench requests")),
    ("cargo build --release --features cli", By(".ci/run", "cargo build --release --features cli")),
    ("target/release/uverbs export", By("tests/vm/rxe/export.sh", "\"$UVERBS_BIN\" export")),
    ("prometheus --config.file", By("tests/vm/rxe/export.sh", "prometheus --config.file")),
    ("curl -s http://127.0.0.1:9979/metrics | promtool", By("tests/vm/rxe/export.sh", "promtool check metrics")),
    ("curl -s -H", By("tests/vm/lib/compare-metrics", "application/openmetrics-text")),
    ("install ", Not("changes the machine")),
    ("systemctl enable", Not("changes the machine")),
    ("systemctl daemon-reload", Not("changes the machine")),
    ("uverbs export --once", By("tests/vm/rxe/export.sh", "export --once")),
    ("bash .ci/run", By(".ci/run", "bash .ci/run")),
    ("cargo bench --bench instructions", By(".ci/run", "cargo bench --features cli,tokio --bench instructions")),
    ("UVERBS_TEST_SECONDS=60 cargo test --release --test any", Not("takes a minute; the test itself is run for a second")),
    ("tests/vm/run -c", Not("one command beside a device, whose lane .ci/run has")),
    ("UVERBS_VHCA_OPTIONS=", Not("another card for a lane that .ci/run has")),
    ("UVERBS_VEFA_OPTIONS=", Not("another device for a lane that .ci/run has")),
    ("UVERBS_VERDMA_OPTIONS=", Not("another device for a lane that .ci/run has")),
    ("UVERBS_RANDOM_COUNT=", Not("other programs for lanes that .ci/run has")),
    ("tests/random/hunt", Not("takes as long as it is given")),
    ("benches/path --times", Not("times differ from machine to machine")),
    ("benches/path", By(".ci/run", "benches/path")),
    ("benches/watch", By(".ci/run", "benches/watch")),
    ("cargo run --release --features cli -- bench read", By("tests/cli/bench.rs", "--plot")),
    ("MIRIFLAGS=", By(".ci/run", "cargo +nightly miri test")),
    ("cargo run --release -p uverbs-random -- soft", By(".ci/run", "soft --count 100000")),
    ("cargo run --release -p uverbs-random -- play", Not("needs the file of a program")),
    (".ci/calls --count 20000$", By(".ci/run", ".ci/calls --count 20000")),
    (".ci/calls", Not("prints more of what the step `calls` counts")),
    ("cargo test -p v", By(".ci/run", "cargo test --workspace --features cli")),
    ("vhca --socket", By("tests/vm/lib/mlx5.py", "--socket")),
    ("qemu-system-x86_64", By("tests/vm/lib/mlx5.py", "vfio-user-pci")),
];

/// The longest row that matches a command.
fn row(command: &str) -> Option<usize> {
    let fits = |begin: &str| match begin.strip_suffix('$') {
        Some(all) => command == all,
        None => command.starts_with(begin),
    };
    let rows = LIST.iter().enumerate().filter(|(_, (begin, _))| fits(begin));
    rows.max_by_key(|(_, (begin, _))| begin.len()).map(|(at, _)| at)
}

fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The words of a command, without the assignments before it and without quoted text.
fn words(command: &str) -> Vec<&str> {
    let outside = command.split(['\'', '"']).step_by(2).flat_map(str::split_whitespace);
    outside.skip_while(|word| word.contains('=') && !word.starts_with('-')).collect()
}

/// The names of lanes, kernels, steps and packages that exist.
struct Known {
    lanes: BTreeSet<String>,
    kernels: BTreeSet<String>,
    steps: BTreeSet<String>,
    /// Lanes and kernels that `.ci/run` runs.
    rows: BTreeSet<String>,
    packages: BTreeSet<String>,
    program: String,
}

impl Known {
    fn new() -> Self {
        let (ci, vm) = (read(".ci/run"), read("tests/vm/run"));
        let heads = lanes::heads();
        let rows = heads.iter().flat_map(|(lane, head)| {
            lanes::said(head, "kernels").map(move |kernel| format!("{lane}@{kernel}"))
        });
        let between = |text: &str, from: &str, to: &str| {
            text.split(from).nth(1).and_then(|rest| rest.split(to).next()).expect(from).to_owned()
        };
        let first = |line: &str| line.split_once('|').map(|(name, _)| name.to_owned());
        let kernels = between(&vm, "\nKERNELS = {", "}");
        let kernels = kernels.lines().filter_map(|line| line.trim().split('"').nth(1).map(str::to_owned));
        let manifests =
            ["", "uverbs-abi", "uverbs-c", "uverbs-c/mlx5", "uverbs-c/efa", "tests/random", "tests/vefa"];
        let manifests = manifests.iter().chain(&["tests/verdma", "tests/vhca", "tests/vmana", "tests/vpci"]);
        let name = |place: &&str| between(&read(Path::new(place).join("Cargo.toml")), "\nname = \"", "\"");
        let known = Self {
            lanes: heads.keys().cloned().collect(),
            kernels: kernels.flat_map(|name| [format!("{name}-debug"), name]).collect(),
            steps: between(&ci, "\nSTEPS=\"", "\n\"").lines().filter_map(first).collect(),
            rows: rows.collect(),
            packages: manifests.map(name).collect(),
            program: super::sources(&["src/bin"]).into_values().collect(),
        };
        assert!(known.lanes.len() > 40 && known.kernels.len() > 5 && known.steps.len() > 15);
        known
    }

    /// What a command names that does not exist, and whether it only runs lanes that `.ci/run` has.
    fn check(&self, command: &str) -> (Vec<String>, bool) {
        let words = words(command);
        let (mut wrong, mut is_lanes) = (Vec::new(), false);
        let has = |path: String| root().join(path).exists();
        match words.as_slice() {
            [runner @ ("tests/vm/run" | "tests/random/hunt"), arguments @ ..] => {
                let (mut lanes, mut kernels) = (Vec::new(), Vec::new());
                for (at, word) in arguments.iter().enumerate() {
                    if at > 0 && arguments[at - 1].starts_with("--") {
                        continue; // the value of an option
                    }
                    if let Some((lane, kernel)) = word.split_once('@') {
                        lanes.push(lane);
                        kernels.push(kernel);
                    } else if word.starts_with(|first: char| first.is_ascii_digit()) {
                        kernels.push(word);
                    } else if *runner == "tests/vm/run"
                        && word.starts_with(|first: char| first.is_ascii_lowercase())
                    {
                        lanes.push(word);
                    }
                }
                let unknown = |set: &BTreeSet<String>, names: &[&str]| {
                    let names = names.iter().filter(|name| !set.contains(**name));
                    names.map(|name| format!("{name} of `{command}`")).collect::<Vec<_>>()
                };
                wrong.extend(unknown(&self.lanes, &lanes));
                wrong.extend(unknown(&self.kernels, &kernels));
                let is_run = |lane: &&&str| self.rows.iter().any(|row| row.split('@').next() == Some(**lane));
                let is_plain = command.starts_with("tests/vm/run") && !arguments.contains(&"-c");
                is_lanes = *runner == "tests/vm/run" && is_plain && lanes.iter().all(|lane| is_run(&lane));
            }
            ["bash", ".ci/run", arguments @ ..] => {
                for word in arguments.iter().filter(|word| !word.starts_with("--")) {
                    if !self.steps.contains(*word) && !self.rows.contains(*word) {
                        wrong.push(format!("{word} of `{command}`"));
                    }
                }
            }
            ["cargo", arguments @ ..] => {
                for pair in arguments.windows(2) {
                    let is_there = match pair[0] {
                        "--test" => {
                            has(format!("tests/{}.rs", pair[1])) || has(format!("tests/{}/main.rs", pair[1]))
                        }
                        "--bench" => has(format!("benches/{}.rs", pair[1])),
                        "--example" => has(format!("docs/examples/{}.rs", pair[1])),
                        "-p" | "--package" => self.packages.contains(pair[1]),
                        _ => true,
                    };
                    if !is_there {
                        wrong.push(format!("{} {} of `{command}`", pair[0], pair[1]));
                    }
                }
                // A part of a test's name, after the name of a file.
                let module = arguments.iter().find_map(|word| word.split_once("::"));
                let tests: Vec<_> = arguments.windows(2).filter(|pair| pair[0] == "--test").collect();
                if let (Some((module, name)), [test]) = (module, tests.as_slice())
                    && !arguments.contains(&"--lib")
                {
                    let file = root().join(format!("tests/{}/{module}.rs", test[1]));
                    let text = fs::read_to_string(&file).unwrap_or_default();
                    if !text.contains(&format!("fn {name}")) {
                        wrong.push(format!("{module}::{name} of `{command}`"));
                    }
                }
            }
            _ => {}
        }
        if let Some(arguments) = self.arguments(&words) {
            wrong.extend(self.unknown_options(arguments).map(|option| format!("{option} of `{command}`")));
        }
        (wrong, is_lanes)
    }

    /// The arguments of the program `uverbs`.
    fn arguments<'a>(&self, words: &'a [&'a str]) -> Option<&'a [&'a str]> {
        match words {
            ["uverbs" | "target/release/uverbs", arguments @ ..] => Some(arguments),
            ["cargo", "run", rest @ ..] if rest.contains(&"cli") => {
                Some(&rest[rest.iter().position(|word| *word == "--")? + 1..])
            }
            _ => None,
        }
    }

    /// Options that no subcommand has. An option is a field of the arguments, or its name is given as a string.
    fn unknown_options<'a>(&self, arguments: &'a [&'a str]) -> impl Iterator<Item = &'a str> {
        let options = arguments.iter().take_while(|word| !["|", "&", ">"].contains(word));
        let options = options.filter_map(|word| word.strip_prefix("--")).filter(|word| *word != "help");
        options.filter(|option| {
            let field = format!("{}: ", option.replace('-', "_"));
            !self.program.contains(&field) && !self.program.contains(&format!("\"{option}\""))
        })
    }
}

#[test]
fn commands_of_pages_name_what_exists_and_are_tried_or_have_a_reason() {
    let known = Known::new();
    let (mut wrong, mut used, mut count) = (Vec::new(), BTreeSet::new(), BTreeMap::new());
    for page in pages::pages(&["README.md", "CONTRIBUTING.md", "docs", "tests"]) {
        for command in pages::commands(&page) {
            let text = command.text.as_str();
            let (unknown, is_lanes) = known.check(text);
            wrong.extend(unknown.into_iter().map(|what| format!("{page}: {what}")));
            let is_guide = page == "README.md" || page.starts_with("docs/guide/");
            let what = if is_guide && pages::on_the_soft_device(text).is_some() {
                "run by tests/cli/pages.rs".to_owned()
            } else if is_lanes {
                "run by lanes of .ci/run".to_owned()
            } else if let Some(at) = row(text) {
                used.insert(at);
                match LIST[at].1 {
                    By(file, _) => format!("run by {file}"),
                    Not(why) => format!("not run: {why}"),
                }
            } else {
                wrong.push(format!("{page}: `{text}` is not in LIST"));
                continue;
            };
            *count.entry(what.starts_with("run")).or_insert(0) += 1;
            println!("{page}: {text}\n    {what}");
        }
    }
    println!("{count:?}");
    for (at, (begin, tried)) in LIST.iter().enumerate() {
        if !used.contains(&at) {
            wrong.push(format!("no page has a command that begins with `{begin}`"));
        }
        if let By(file, text) = tried
            && !read(file).contains(text)
        {
            wrong.push(format!("{file} has no `{text}`, for `{begin}`"));
        }
    }
    super::assert_none("commands", &wrong);
    assert!(count[&true] > 40, "the commands are found: {count:?}");
}

/// The same for commands between backticks in the text of a page.
#[test]
fn commands_in_the_text_of_pages_name_what_exists() {
    let known = Known::new();
    let (mut wrong, mut count) = (Vec::new(), 0);
    for page in pages::pages(&["README.md", "CONTRIBUTING.md", "docs", "tests", "uverbs-abi", "uverbs-c"]) {
        let text = read(&page);
        for line in text.lines().filter(|line| !line.starts_with("```")) {
            for command in line.split('`').skip(1).step_by(2) {
                if command.contains("NAME") || command.contains("LANE") || command.contains("VERSION") {
                    continue;
                }
                count += 1;
                wrong.extend(known.check(command).0.into_iter().map(|what| format!("{page}: {what}")));
            }
        }
    }
    super::assert_none("commands in the text", &wrong);
    assert!(count > 1000, "the text is read: {count}");
}

#[test]
fn what_does_not_exist_is_found() {
    let known = Known::new();
    for bad in [
        "tests/vm/run rxe@5.4",
        "tests/vm/run rex@6.1",
        "UVERBS_TEST_SECONDS=60 cargo test --release --test sampler",
        "cargo test --test any -- sampler::no_such_test",
        "cargo bench --bench nothing",
        "cargo build -p uverbs-d",
        "bash .ci/run fmt clipy",
        "uverbs watch --device soft0 --cuont 3",
    ] {
        assert_eq!(known.check(bad).0.len(), 1, "{bad}: {:?}", known.check(bad).0);
    }
    for good in
        ["tests/vm/run -c 'ibv_devinfo -v' rxe@6.1", "uverbs watch --device soft0 --pcap FILE", "cargo run"]
    {
        assert_eq!(known.check(good).0, [""; 0]);
    }
}
