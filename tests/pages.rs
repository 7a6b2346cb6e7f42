//! The pages are true to the tree: the files, tests and items that they name are there.
#![cfg(feature = "soft")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every file below a directory, by its path from the root.
fn files(directory: &str) -> BTreeSet<String> {
    let (mut open, mut found) = (vec![root().join(directory)], BTreeSet::new());
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(&directory).expect("a directory") {
            let path: PathBuf = entry.expect("an entry").path();
            if path.is_dir() && !path.ends_with("target") {
                open.push(path);
            } else {
                found.insert(path.strip_prefix(root()).expect("below the root").display().to_string());
            }
        }
    }
    found
}

/// The pages, with what they say outside of examples.
fn pages() -> Vec<(String, String)> {
    let mut names: Vec<_> = files("docs").into_iter().filter(|name| name.ends_with(".md")).collect();
    names.push("README.md".to_owned());
    assert!(names.len() > 12, "the pages are found");
    let text = |name: &String| fs::read_to_string(root().join(name)).expect("a page");
    let outside = |name: String| {
        let said = text(&name).split("```").step_by(2).collect();
        (name, said)
    };
    names.into_iter().map(outside).collect()
}

/// What stands between backticks.
fn spans(text: &str) -> impl Iterator<Item = &str> {
    text.lines().flat_map(|line| line.split('`').skip(1).step_by(2))
}

#[test]
fn every_file_that_a_page_names_is_there() {
    const TOPS: [&str; 6] = ["src/", "tests/", "docs/", "benches/", "uverbs-abi/", "uverbs-c/"];
    let tree: BTreeSet<_> = TOPS.iter().flat_map(|top| files(top)).collect();
    let is_there = |path: &str| {
        let path = path.trim_end_matches('/');
        let begins =
            |file: &String| file == path || file.strip_prefix(path).is_some_and(|rest| rest.starts_with('/'));
        tree.iter().any(begins)
    };
    let (mut count, mut missing) = (0, Vec::new());
    for (page, text) in pages() {
        for span in spans(&text) {
            let is_path = span.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c));
            let is_whole = TOPS.iter().any(|top| span.starts_with(top));
            // "connected.rs" is a test; "driver/rxe.rs" is below `src`; a name in capitals stands for several.
            let is_rust = span.ends_with(".rs") && !is_whole;
            if !is_path || !(is_whole || is_rust) || span.contains("VERSION") {
                continue;
            }
            count += 1;
            let places = [
                span.to_owned(),
                format!("src/{span}"),
                format!("tests/{span}"),
                format!("uverbs-c/src/{span}"),
            ];
            let here = if is_whole { is_there(span) } else { places.iter().any(|place| is_there(place)) };
            // The pages on one part of the tree name its files by their last names.
            let ends = || !span.contains('/') && tree.iter().any(|file| file.ends_with(&format!("/{span}")));
            if !here && (is_whole || !ends()) {
                missing.push(format!("{page}: {span}"));
            }
        }
    }
    assert!(count > 100, "the pages are read");
    assert!(missing.is_empty(), "named, but not there: {missing:#?}");
}

#[test]
fn every_test_that_a_page_names_is_there() {
    let mut count = 0;
    for (page, text) in pages() {
        for (file, test) in spans(&text).filter_map(|span| span.split_once("::")) {
            let path = root().join(format!("tests/{file}.rs"));
            let is_test = path.exists()
                && test.chars().all(|c| c.is_ascii_lowercase() || c == '_' || c.is_ascii_digit());
            if is_test {
                count += 1;
                let source = fs::read_to_string(path).expect("a test");
                assert!(source.contains(&format!("fn {test}(")), "{page} names {file}::{test}");
            }
        }
    }
    assert!(count > 60, "the pages are read");
}

/// from-libibverbs.md says so of everything.
#[test]
fn everything_can_be_used_by_any_thread() {
    use uverbs::*;
    fn is<T: Send + Sync>() {}
    is::<(Device, Devices, Context, ProtectionDomain, MemoryRegion, MemoryWindow, Mapping)>();
    is::<(CompletionQueue, CompletionChannel, Completion, SharedReceiveQueue, WorkQueue, IndirectionTable)>();
    is::<(
        QueuePair<Rc>,
        QueuePair<Uc>,
        QueuePair<Ud>,
        QueuePair<RawPacket>,
        RssQueuePair,
        AddressHandle,
        Membership,
    )>();
    is::<(Counters, Flow, FlowRule, Reader, Snapshot, Sampler, Rates<2>)>();
    is::<(CompletionCounter, WaitSet, Progress, Error, SoftDevice)>();
    is::<(mlx5::CounterPool, mlx5::PoolCounter, mlx5::PoolFlow, mlx5::PoolReader)>();
}

/// The README says so of every object.
#[test]
fn every_object_has_a_destroy() {
    use uverbs::*;
    let _ = (ProtectionDomain::destroy, MemoryRegion::destroy, MemoryWindow::destroy, AddressHandle::destroy);
    let _ = (
        CompletionQueue::destroy,
        SharedReceiveQueue::destroy,
        WorkQueue::destroy,
        IndirectionTable::destroy,
    );
    let _ = (QueuePair::<Rc>::destroy, RssQueuePair::destroy, Membership::leave);
    let _ = (Flow::destroy, Counters::destroy, CompletionCounter::destroy);
    let _ = (mlx5::PoolFlow::destroy, mlx5::CounterPool::destroy);
    // No kind of object is missing above.
    let source = fs::read_to_string(root().join("src/device/object.rs")).expect("source");
    let kinds = source.split("enum Kind {").nth(1).and_then(|rest| rest.split('}').next()).expect("kinds");
    let kinds: Vec<_> = kinds.lines().map(str::trim).filter(|line| line.ends_with(',')).collect();
    let known = [
        "Pd,",
        "Mr,",
        "Mw,",
        "Cq,",
        "Qp,",
        "Srq,",
        "Wq,",
        "IndirectionTable,",
        "Ah,",
        "Flow,",
        "Counters,",
        // Objects of mlx5: a matcher goes with its `PoolFlow`, a row of counters with its `CounterPool`.
        "OfDriver(&'static str, u16, u16),",
        "CompletionCounter,",
    ];
    assert_eq!(kinds, known);
}
