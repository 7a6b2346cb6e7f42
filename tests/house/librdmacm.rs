//! Checks the page for users of librdmacm: each of its functions has a row, with exactly the items whose documentation names it (`doc(alias)`),
//! or with the reason for which there is none.

use std::collections::{BTreeMap, BTreeSet};

use super::porting::{aliases, read, rows, spans};

const PAGE: &str = "docs/guide/from-librdmacm.md";
const NAMES: &str = "tests/golden/librdmacm-names.txt";

/// The functions of librdmacm.
fn names() -> BTreeSet<String> {
    let list = read(NAMES);
    let names: BTreeSet<_> = list.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect();
    assert!(names.len() > 80, "the list is read");
    names
}

/// Names of the program `rdma` of iproute2.
fn is_of_iproute(name: &str) -> bool {
    ["rdma_statistic", "rdma_resource"].iter().any(|of| name.starts_with(of))
}

#[test]
fn every_function_of_librdmacm_has_one_answer() {
    let page = read(PAGE);
    let (with, without) = page.split_once("## Without counterpart").expect("both parts");
    let names_of = |part| rows(part).iter().flat_map(|row| spans(row[0])).map(str::to_owned).collect();
    let (with, without): (BTreeSet<String>, BTreeSet<String>) = (names_of(with), names_of(without));
    let both: Vec<_> = with.intersection(&without).collect();
    assert!(both.is_empty(), "with and without counterpart: {both:?}");
    let known = |name: &&String| with.contains(*name) || without.contains(*name);
    let (names, mut unknown) = (names(), Vec::new());
    unknown.extend(names.iter().filter(|name| !known(name)));
    assert!(unknown.is_empty(), "not in {PAGE}: {unknown:?}");
    for row in rows(page.split_once("## Without counterpart").expect("both parts").1) {
        assert!(row[1].trim().len() > 10, "{} has a reason", row[0]);
    }
}

#[test]
fn the_rows_name_just_the_items_that_name_librdmacm() {
    let page = read(PAGE);
    let (with, _) = page.split_once("## Without counterpart").expect("both parts");
    let mut named: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for row in rows(with) {
        for name in spans(row[0]) {
            named.entry(name.to_owned()).or_default().extend(spans(row[1]).map(str::to_owned));
        }
    }
    let is_wanted = |name: &str| name.to_lowercase().starts_with("rdma_") && !is_of_iproute(name);
    let aliases = aliases(is_wanted);
    assert!(aliases.len() > 40, "the library is read");
    for name in aliases.keys().chain(named.keys()) {
        assert_eq!(named.get(name), aliases.get(name), "{name}: in {PAGE}, and by doc(alias) in src");
    }
}
