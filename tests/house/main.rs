//! Rules of the source tree that the compiler does not check: where `unsafe` may be, the length of files, texts that must not occur, and
//! which module may use which.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

mod commands;
mod comments;
mod drivers;
mod lanes;
mod layers;
mod librdmacm;
mod limits;
mod links;
mod messages;
mod objects;
mod porting;
mod rooms;

/// The only files that contain `unsafe`. Each has a row in `docs/internals/safety.md`.
const UNSAFE: &[&str] = &[
    "benches/played/src/interposed.rs",
    "benches/played/src/memory.rs",
    "benches/played/src/meter.rs",
    "src/counters/clock/mod.rs",
    "src/counters/clock/counter.rs",
    "src/driver/ring/mod.rs",
    "src/driver/ring/consumer.rs",
    "src/driver/ring/flagged.rs",
    "src/driver/ring/producer.rs",
    "src/driver/ring/units.rs",
    "src/kernel/manager/file.rs",
    "src/kernel/mapping/joined.rs",
    "src/kernel/mapping/mod.rs",
    "src/kernel/mapping/barrier.rs",
    "src/kernel/mapping/register.rs",
    "src/kernel/mapping/source.rs",
    "src/kernel/mapping/value.rs",
    "src/kernel/process.rs",
    "src/mlx5/devx/umem_at.rs",
    "src/raw.rs",
    "src/soft/connection.rs",
    "src/kernel/transport/contract.rs",
    "src/kernel/transport/uverbs.rs",
    "tests/allocations.rs",
    "tests/common/raw.rs",
    "tests/fork/main.rs",
    "tests/interposed.rs",
    "tests/random/src/child.rs",
    "uverbs-c/mlx5/src/lib.rs",
    "uverbs-c/efa/src/lib.rs",
    "uverbs-c/src/boundary.rs",
    "uverbs-c/src/boundary/lock.rs",
    "uverbs-c/src/export/mod.rs",
];

/// Maximum number of lines of a file, and of one with tables of the ABI's numbers.
const LINES: usize = 500;
const TABLE_LINES: usize = 600;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every Rust file under these directories, by its path from the root.
fn sources(directories: &[&str]) -> BTreeMap<String, String> {
    let mut open: Vec<PathBuf> = directories.iter().map(|directory| root().join(directory)).collect();
    let mut files = BTreeMap::new();
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(&directory).expect("a directory") {
            let path = entry.expect("an entry").path();
            if path.is_dir() && !path.ends_with("target") {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.strip_prefix(root()).expect("below the root").display().to_string();
                files.insert(name, fs::read_to_string(path).expect("text"));
            }
        }
    }
    assert!(!files.is_empty());
    files
}

fn all_sources() -> BTreeMap<String, String> {
    sources(&["src", "uverbs-abi", "uverbs-c", "tests", "benches"])
}

/// Lines that are not comments, with their numbers.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = text.lines().enumerate().map(|(i, line)| (i + 1, line));
    lines.filter(|(_, line)| !line.trim_start().starts_with("//"))
}

fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !c.is_alphanumeric() && c != '_')
}

#[track_caller]
fn assert_none(what: &str, found: &[String]) {
    assert!(found.is_empty(), "{what}:\n{}", found.join("\n"));
}

#[test]
fn unsafe_code_is_where_the_safety_page_says() {
    let is_unsafe = |text: &str| code(text).any(|(_, line)| words(line).any(|word| word == "unsafe"));
    let allows = |text: &str| {
        code(text).any(|(_, line)| line.contains("allow(unsafe_code") || line.contains("expect(unsafe_code"))
    };
    let listed: BTreeSet<_> = UNSAFE.iter().map(ToString::to_string).collect();
    let this = "tests/house/main.rs";

    let mut found = all_sources();
    found.retain(|name, text| name != this && (is_unsafe(text) || allows(text)));
    for (name, text) in &found {
        let page: String = text.lines().take_while(|line| line.starts_with("//!")).collect();
        assert!(page.contains("# Safety"), "{name} begins without a `# Safety` section");
    }
    assert_eq!(found.into_keys().collect::<BTreeSet<_>>(), listed, "files with `unsafe`, and those that may");

    let page = fs::read_to_string(root().join("docs/internals/safety.md")).expect("docs/internals/safety.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let rows: BTreeSet<_> = rows.filter(|name| name.ends_with(".rs")).map(str::to_owned).collect();
    assert_eq!(rows, listed, "the rows of docs/internals/safety.md");

    let abi = fs::read_to_string(root().join("uverbs-abi/src/lib.rs")).expect("the ABI crate");
    assert!(abi.contains("#![forbid(unsafe_code)]"));
}

#[test]
fn files_are_short() {
    let mut long = Vec::new();
    for directories in
        [&["src", "uverbs-abi/src"][..], &["uverbs-c"], &["tests", "uverbs-abi/tests", "benches"]]
    {
        let mut lengths = Vec::new();
        for (name, text) in sources(directories) {
            let (length, limit) = (text.lines().count(), limit(&name));
            lengths.push(length);
            if length > limit {
                long.push(format!("{name}: {length} lines, {limit} allowed"));
            }
        }
        lengths.sort_unstable();
        let at = |quarter: usize| lengths[(lengths.len() - 1) * quarter / 4];
        println!(
            "{directories:?}: {} files; median {} lines, third quartile {}, longest {}",
            lengths.len(),
            at(2),
            at(3),
            at(4)
        );
    }
    assert_none("too long", &long);
}

fn limit(name: &str) -> usize {
    if name.starts_with("uverbs-abi/src/") { TABLE_LINES } else { LINES }
}

#[test]
fn nothing_is_left_to_do() {
    // In pieces, so that this file does not contain the words.
    let words = [
        concat!("todo", "!"),
        concat!("unimpl", "emented!"),
        concat!("db", "g!"),
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
    ];
    let mut found = Vec::new();
    for (name, text) in all_sources() {
        for (i, line) in text.lines().enumerate() {
            if words.iter().any(|word| line.contains(word)) {
                found.push(format!("{name}:{}: {}", i + 1, line.trim()));
            }
        }
    }
    assert_none("left to do", &found);
}

/// The output of macros in a test is shown only if the test fails, so skips use `tests/common/skips.rs`.
#[test]
fn what_is_skipped_is_said() {
    let said = concat!("println!(", "\"skip");
    let mut found = Vec::new();
    for (name, text) in sources(&["src", "uverbs-abi", "uverbs-c", "tests"]) {
        let lines = code(&text).filter(|(_, line)| line.contains(said));
        found.extend(lines.map(|(i, line)| format!("{name}:{i}: {}", line.trim())));
    }
    assert_none("skipped where nobody sees it", &found);
}

/// The only files that name a transport or its methods. Everything else uses `Context`, and therefore `door.rs`, which first checks which
/// process owns the device: a command of a child of `fork` at the same time as one of its parent can crash the kernel. `open.rs` creates
/// a context from a transport, and sends nothing; `identify.rs` queries a file that was just opened.
const TRANSPORTS: &[&str] = &[
    "src/device/context/door.rs",
    "src/device/context/identify.rs",
    "src/device/context/mod.rs",
    "src/device/context/open.rs",
];

#[test]
fn one_file_sends_commands() {
    let may = |name: &str| {
        TRANSPORTS.contains(&name)
            || name.starts_with("src/kernel/transport/")
            || name.starts_with("src/soft/")
    };
    let mut wrong = Vec::new();
    for (name, text) in sources(&["src"]) {
        if may(&name) || name.starts_with("src/bin/") {
            continue;
        }
        for (i, line) in code(&text) {
            if line.contains("dyn Transport") || line.contains("transport.") || line.contains("::Uverbs") {
                wrong.push(format!("{name}:{i}: {}", line.trim()));
            }
        }
    }
    assert_none("ways to a transport around the door", &wrong);

    // In the door, each method begins with the check, and the transport is a field that no other file can access.
    let door = fs::read_to_string(root().join("src/device/context/door.rs")).expect("the door");
    assert!(door.contains("\n    transport: Box<dyn Transport>,\n"), "a private field");
    let asks = [
        "self.may_ask(",
        "self.take(",
        "self.check(",
        "if !self.was_asked(here) {",
        // `here` is the answer of a queue of this device, and the only way to have one.
        "debug_assert!(self.was_asked(here)",
        "if !self.owner.is_here() {",
    ];
    let (mut ways, mut asked) = (Vec::new(), false);
    for (i, line) in code(&door) {
        if line.trim_start().starts_with("fn ") || line.contains(" fn ") {
            asked = false;
        }
        asked |= asks.iter().any(|ask| line.contains(ask));
        if line.contains("self.transport.") {
            ways.push((i, asked));
        }
    }
    assert_eq!(
        ways.len(),
        8,
        "invoke, read_counters, ring, request_event, map, map_to_read, file, and whether the device has gone"
    );
    assert!(ways.iter().all(|(_, asked)| *asked), "a way without the question: {ways:?}");

    // Another file uses a transport only to create its door.
    for name in ["src/device/context/mod.rs", "src/device/context/open.rs"] {
        let text = fs::read_to_string(root().join(name)).expect("a source");
        let sends = [".invoke(", ".read_counters(", ".ring(", ".request_event(", ".map("]
            .map(|call| format!("transport{call}"));
        for (i, line) in code(&text) {
            assert!(!sends.iter().any(|call| line.contains(call)), "{name}:{i}: sends around the door");
        }
    }
}

/// What is put in front of the C library's functions sees all that this library asks of the kernel (`tests/interposed.rs`).
#[test]
fn every_system_call_is_one_of_the_c_librarys() {
    let ways =
        ["syscall", "\"svc", "ecall", "int 0x80", "sysenter", "rustix", "linux_raw", "SYS_ioctl", "SYS_mmap"];
    let mut found = Vec::new();
    for (name, text) in sources(&["src", "uverbs-c/src"]) {
        let lines = code(&text).filter(|(_, line)| ways.iter().any(|way| line.contains(way)));
        found.extend(lines.map(|(i, line)| format!("{name}:{i}: {}", line.trim())));
    }
    assert_none("calls of the kernel around the C library", &found);
}

/// The files with locks, or with data that one thread initialises while others wait. A child of `fork` that finds a lock held waits for
/// ever. Each file therefore says in a comment, or shows by a check before the lock, why this cannot happen (`docs/internals/safety.md`).
const LOCKS: &[&str] = &[
    "src/cm/connection.rs",
    "src/cm/helper.rs",
    "src/cm/beside.rs",
    "src/cm/messages/builder.rs",
    "src/cm/messages/mod.rs",
    "src/cm/shared.rs",
    "src/cm/sleeper.rs",
    "src/cm/task.rs",
    "src/cm/waiting.rs",
    "src/tokio/requests.rs",
    "src/counters/clock/watch.rs",
    "src/completion_counter/hardware.rs",
    "src/completion_counter/registry.rs",
    "src/completion_counter/lobby.rs",
    "src/completion_counter/sync.rs",
    "src/completion_counter/wait_object.rs",
    "src/completion_counter/waiter.rs",
    "src/completion_counter/watch.rs",
    "src/counters/mod.rs",
    "src/counters/refresh.rs",
    "src/counters/sampler/mod.rs",
    "src/counters/sampler/thread.rs",
    "src/kernel/mapping/register.rs",
    "src/mlx5/pool.rs",
    "src/mlx5/qp_numbers.rs",
    "src/mlx5/snapshots.rs",
    "src/device/context/paged.rs",
    "src/device/object.rs",
    "src/kernel/process.rs",
    "src/driver/efa/completions.rs",
    "src/driver/efa/track.rs",
    "src/driver/erdma/completions.rs",
    "src/driver/mana/side.rs",
    "src/driver/mana/track.rs",
    "src/driver/mlx5/completions.rs",
    "src/driver/mlx5/state.rs",
    "src/verbs/qp/multicast.rs",
    "src/soft/mod.rs",
    "src/soft/network/mod.rs",
    "src/soft/wire/driver.rs",
    "src/kernel/transport/raw.rs",
    "src/kernel/transport/trace.rs",
    "src/verbs/work/held.rs",
    "uverbs-c/src/abi/objects.rs",
    "uverbs-c/src/channel.rs",
];

#[test]
fn locks_are_where_the_safety_page_says() {
    let locks = ["Mutex", "RwLock", "Condvar", "OnceLock", "LazyLock", "Barrier", "mpsc"];
    let has_lock = |text: &str| {
        let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or(text);
        self::code(code).any(|(_, line)| words(line).any(|word| locks.contains(&word)))
    };
    let mut found = sources(&["src", "uverbs-c/src"]);
    found
        .retain(|name, text| !name.starts_with("src/bin/") && !name.ends_with("/tests.rs") && has_lock(text));
    let listed: BTreeSet<_> = LOCKS.iter().map(ToString::to_string).collect();
    assert_eq!(found.into_keys().collect::<BTreeSet<_>>(), listed, "files with locks");
    let page = fs::read_to_string(root().join("docs/internals/safety.md")).expect("docs/internals/safety.md");
    for name in LOCKS {
        assert!(page.contains(&format!("`{name}`")), "{name} is not in docs/internals/safety.md");
    }
}

#[test]
fn the_abi_crate_uses_nothing_but_its_two_helpers() {
    let manifest = fs::read_to_string(root().join("uverbs-abi/Cargo.toml")).expect("a manifest");
    let table = manifest.split("[dependencies]").nth(1).expect("dependencies");
    let names = table.lines().skip(1).take_while(|line| !line.starts_with('['));
    let names: Vec<_> = names.filter_map(|line| Some(line.split_once(['.', ' '])?.0)).collect();
    assert_eq!(names, ["bitflags", "zerocopy"]);
}

/// The machine's own configuration determines the source of packages: it may have a mirror.
#[test]
fn no_registry_is_named() {
    // In pieces, so that this file does not contain them.
    let hosts = [
        concat!("debian", ".org"),
        concat!("ubuntu", ".com"),
        concat!("//crates", ".io"),
        concat!("index.crates", ".io"),
        concat!("pypi", ".org"),
        concat!("pythonhosted", ".org"),
        concat!("npmjs", ".org"),
    ];
    let mut found = Vec::new();
    for path in all_files() {
        let Ok(text) = fs::read_to_string(&path) else { continue };
        let name = path.strip_prefix(root()).expect("below the root").display();
        // cargo writes the lock file with these names, whatever mirror is configured.
        if !name.to_string().ends_with("Cargo.lock") {
            let named = |line: &str| hosts.iter().any(|host| line.contains(host));
            let lines = text.lines().enumerate().filter(|(_, line)| named(line));
            found.extend(lines.map(|(i, line)| format!("{name}:{}: {}", i + 1, line.trim())));
        }
    }
    assert_none("hosts of registries", &found);
}

/// Every file of the project, except those in a `.gitignore` and git's own.
fn all_files() -> Vec<PathBuf> {
    let (mut open, mut files) = (vec![root().to_path_buf()], Vec::new());
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(&directory).expect("a directory") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            match path.is_dir() {
                true if [".git", "target", "__pycache__", "corpus", "artifacts"].contains(&name) => {}
                true => open.push(path),
                false => files.push(path),
            }
        }
    }
    assert!(files.len() > 400, "only {} files", files.len());
    files
}
