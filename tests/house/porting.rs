//! Checks the porting guide against the crate: its table contains every libibverbs name in the documentation of an item (`doc(alias)`),
//! with exactly these items, and no name of libibverbs is missing.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

#[path = "../common/skips.rs"]
mod skips;

const TABLE: &str = "docs/guide/from-libibverbs-table.md";
const PAGES: [&str; 4] = [
    "docs/guide/from-libibverbs.md",
    TABLE,
    "docs/guide/from-rust-crates.md",
    "docs/guide/from-librdmacm.md",
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

pub(super) fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The text of every file of the library.
fn sources() -> Vec<String> {
    let (mut open, mut texts) = (vec![root().join("src")], Vec::new());
    while let Some(directory) = open.pop() {
        let entries: Vec<PathBuf> = fs::read_dir(directory)
            .expect("a directory")
            .map(|entry| entry.expect("an entry").path())
            .collect();
        for path in entries {
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                texts.push(read(path));
            }
        }
    }
    assert!(texts.len() > 50, "the library is read");
    texts
}

/// The first word of a text.
fn word(text: &str) -> &str {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    text.split(|c| !is_part(c)).next().unwrap_or_default()
}

/// The word after one of these keywords.
fn after<'a>(line: &'a str, keywords: &[&str]) -> Option<&'a str> {
    keywords.iter().find_map(|keyword| line.strip_prefix("pub ")?.strip_prefix(keyword)).map(word)
}

/// The type of an `impl`.
fn implemented(line: &str) -> Option<&str> {
    let mut rest = line.strip_prefix("impl")?;
    if rest.starts_with('<') {
        let mut depth = 0;
        let end = rest.find(|c| {
            depth += i32::from(c == '<') - i32::from(c == '>');
            depth == 0
        })?;
        rest = &rest[end + 1..];
    }
    Some(word(rest.trim_start()))
}

/// The name of the item on a line: a type, or a type and its method, field or variant.
fn item(lines: &[&str], at: usize) -> String {
    const TYPES: [&str; 3] = ["struct ", "enum ", "trait "];
    let line = lines[at].trim_start();
    let outer = lines[at].starts_with(' ').then(|| {
        let begins = |line: &&&str| line.starts_with(|first: char| first.is_ascii_lowercase());
        *lines[..at].iter().rev().find(begins).expect("something around it")
    });
    if let Some(name) = after(line, &TYPES) {
        return name.to_owned();
    }
    let name = after(line, &["fn ", "const fn "]);
    let name = name.unwrap_or_else(|| word(line.trim_start_matches("pub ")));
    // Items that a macro defines have no surrounding name.
    match outer.and_then(|outer| implemented(outer).or_else(|| after(outer, &TYPES))) {
        Some(outer) => format!("{outer}::{name}"),
        None => name.to_owned(),
    }
}

/// Items by those aliases in their documentation that are wanted.
pub(super) fn aliases(is_wanted: impl Fn(&str) -> bool) -> BTreeMap<String, BTreeSet<String>> {
    let mut aliases: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for text in sources() {
        let lines: Vec<_> = text.lines().collect();
        for (at, line) in lines.iter().enumerate() {
            let alias =
                line.trim_start().strip_prefix("#[doc(alias = \"").and_then(|rest| rest.split('"').next());
            let Some(alias) = alias.filter(|alias| is_wanted(alias)) else { continue };
            let is_item =
                |line: &&str| !line.trim_start().starts_with("#[") && !line.trim_start().starts_with("//");
            let below = lines[at..].iter().position(is_item).expect("an item below its attributes");
            aliases.entry(alias.to_owned()).or_default().insert(item(&lines, at + below));
        }
    }
    aliases
}

fn is_libibverbs(name: &str) -> bool {
    name.starts_with("ibv_") || name.starts_with("mlx5dv_")
}

/// The text between backticks.
pub(super) fn spans(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// The rows of the tables of a text, each a list of its columns.
pub(super) fn rows(text: &str) -> Vec<Vec<&str>> {
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `").map(|_| line));
    rows.map(|row| row.split('|').skip(1).collect()).collect()
}

/// Both parts of the table: with a counterpart and without.
fn parts(table: &str) -> (&str, &str) {
    let (calls, _) = table.split_once("## Fields and flags").expect("the part of fields and flags");
    calls.split_once("## Without counterpart").expect("the part without counterpart")
}

#[test]
fn the_table_names_just_the_items_that_name_libibverbs() {
    let table = read(TABLE);
    let mut named: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for row in rows(parts(&table).0) {
        for name in spans(row[0]) {
            let items = named.entry(name.to_owned()).or_default();
            items.extend(spans(row[1]).map(str::to_owned));
        }
    }
    let aliases = aliases(is_libibverbs);
    assert!(aliases.len() > 150, "the library is read");
    for name in aliases.keys().chain(named.keys()) {
        assert_eq!(named.get(name), aliases.get(name), "{name}: in {TABLE}, and by doc(alias) in src");
    }
}

#[test]
fn no_name_of_libibverbs_is_missing() {
    let table = read(TABLE);
    let (with, without) = parts(&table);
    let (with, without): (BTreeSet<_>, BTreeSet<_>) = (
        rows(with).iter().flat_map(|row| spans(row[0])).collect(),
        rows(without).iter().flat_map(|row| spans(row[0])).collect(),
    );
    let both: Vec<_> = with.intersection(&without).collect();
    assert!(both.is_empty(), "with and without counterpart: {both:?}");

    // The names that libibverbs exports, except those that only its drivers call.
    let list = read("uverbs-c/tests/releases.list");
    let exported = list.lines().filter(|line| !line.starts_with("IBVERBS_PRIVATE"));
    let mut names: BTreeSet<_> =
        exported.filter_map(|line| line.split(' ').nth(1)).map(str::to_owned).collect();
    assert!(names.len() > 90, "the list is read");
    // The inline functions of its header.
    match fs::read_to_string("/usr/include/infiniband/verbs.h") {
        Ok(header) => {
            let calls = header.match_indices("ibv_").map(|(at, _)| (at, word(&header[at..])));
            let is_call = |at: usize, name: &str| {
                let alone = !header[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
                alone && header[at + name.len()..].starts_with('(')
            };
            names.extend(calls.filter(|(at, name)| is_call(*at, name)).map(|(_, name)| name.to_owned()));
            assert!(names.len() > 150, "the header is read");
        }
        Err(error) => skips::skipped(format_args!("inline calls of infiniband/verbs.h: {error}")),
    }
    let known =
        |name: &&String| [&with, &without].iter().any(|set| set.contains(name.trim_start_matches('_')));
    let missing: Vec<_> = names.iter().filter(|name| !known(name)).collect();
    assert!(missing.is_empty(), "not in {TABLE}: {missing:?}");
}

#[test]
fn every_name_of_the_manual_pages_has_a_row() {
    let list = read("tests/golden/manual-names.txt");
    let named = list.lines().filter(|line| !line.starts_with('#'));
    let named: Vec<_> = named.map(|line| line.split_once(' ').expect("a page and a name")).collect();
    let pages: BTreeSet<_> = named.iter().map(|(page, _)| *page).collect();
    assert_eq!((pages.len(), named.len() > 100), (5, true), "the list is read");
    let answered = |page: &str| {
        let text = read(page);
        let rows = text.lines().filter(|line| line.starts_with("| `"));
        let mut names = BTreeSet::new();
        for columns in rows.map(|row| row.split('|').skip(1).collect::<Vec<_>>()) {
            if columns[1..].iter().any(|column| !column.trim().is_empty()) {
                names.extend(spans(columns[0]).map(|name| name.trim_start_matches('-').to_owned()));
            }
        }
        names
    };
    let (verbs, fabric) = (answered(TABLE), answered("docs/guide/completion-counters.md"));
    let has_row = |page: &str, name: &str| if page == "fi_cntr" { &fabric } else { &verbs }.contains(name);
    let missing: Vec<_> = named.iter().filter(|(page, name)| !has_row(page, name)).collect();
    assert!(missing.is_empty(), "without a row: {missing:?}");
}

/// Names of libibverbs and libfabric that users search for, in addition to those of the manual pages: a search of the documentation must
/// find an item for each.
const SEARCHED: &[&str] = &[
    "ibv_get_device_list",
    "ibv_open_device",
    "ibv_query_device",
    "ibv_query_port",
    "ibv_alloc_pd",
    "ibv_reg_mr",
    "ibv_create_cq",
    "ibv_poll_cq",
    "ibv_req_notify_cq",
    "ibv_create_qp",
    "ibv_modify_qp",
    "ibv_post_send",
    "ibv_post_recv",
    "ibv_create_srq",
    "ibv_create_ah",
    "ibv_alloc_mw",
    "ibv_create_flow",
    "ibv_create_counters",
    "ibv_attach_counters_point_flow",
    "ibv_read_counters",
    "ibv_create_comp_cntr",
    "ibv_get_async_event",
    "ibv_wc_status_str",
    "IBV_SEND_SIGNALED",
    "IBV_SEND_INLINE",
    "IBV_WR_RDMA_WRITE",
    "IBV_WR_ATOMIC_CMP_AND_SWP",
    "IBV_QPS_RTS",
    "IBV_QPT_RC",
    "IBV_ACCESS_REMOTE_WRITE",
    "IBV_WC_RETRY_EXC_ERR",
    "IBV_WC_RNR_RETRY_EXC_ERR",
    "IBV_EVENT_SRQ_LIMIT_REACHED",
    "IBV_MW_TYPE_2",
    "efadv_create_qp_ex",
    "efadv_query_device",
    "fi_cntr",
    "fi_ep_bind",
    "FI_EAVAIL",
    "rdma_statistic",
    "rdma_resource",
    "perfquery",
];

/// Names of the manual pages that no item has, because nothing here corresponds to them.
const NOT_SEARCHED: &[&str] = &["fid_domain"];

#[test]
fn a_search_finds_the_names_that_users_know() {
    let mut found = BTreeSet::new();
    for text in sources() {
        let named = text.split("#[doc(alias = \"").skip(1);
        found.extend(named.filter_map(|rest| Some(rest.split_once('"')?.0.to_owned())));
        // A macro takes the name from its row.
        if text.contains("#[doc(alias = $alias)]") {
            found.extend(
                text.split('"').skip(1).step_by(2).filter(|name| word(name) == *name).map(str::to_owned),
            );
        }
    }
    let list = read("tests/golden/manual-names.txt");
    let manual =
        list.lines().filter(|line| !line.starts_with('#')).filter_map(|line| Some(line.split_once(' ')?.1));
    // Parameters and fields are found with their call or type.
    let is_own = |name: &&str| !name.contains('.') && name.contains('_') && !name.starts_with("counters_");
    let wanted: BTreeSet<_> = manual
        .filter(is_own)
        .filter(|name| !NOT_SEARCHED.contains(name))
        .chain(SEARCHED.iter().copied())
        .collect();
    assert!(wanted.len() > 80, "the list is read: {}", wanted.len());
    let missing: Vec<_> = wanted.into_iter().filter(|name| !found.contains(*name)).collect();
    assert!(missing.is_empty(), "no item has `doc(alias)` of: {missing:?}");
}

/// Whether a line defines a method, field or variant of that name.
fn defines(line: &str, name: &str) -> bool {
    let line = line.trim_start();
    let method = line.split_once("fn ").map(|(_, rest)| rest);
    !line.starts_with("//") && word(method.unwrap_or(line.trim_start_matches("pub "))) == name
}

#[test]
fn what_the_pages_name_is_there() {
    let (sources, exports) = (
        sources(),
        ["src/lib.rs", "src/mlx5/mod.rs", "src/mlx5/devx/mod.rs", "src/cm/mod.rs"].map(read).concat(),
    );
    let has = |text: &str, wanted: &str| {
        text.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == wanted)
    };
    let is_there = |owner: &str, name: &str| {
        let here = |text: &String| has(text, owner) && text.lines().any(|line| defines(line, name));
        has(&exports, owner) && sources.iter().any(here)
    };
    let mut count = 0;
    for page in PAGES {
        let text = read(page);
        // Without the examples, which are compiled, and the columns of other libraries.
        let lines = text.split("```").step_by(2).flat_map(str::lines);
        let lines =
            lines.map(|line| line.strip_prefix("| ").map_or(line, |row| row.split_once('|').unwrap().1));
        for (owner, name) in lines.flat_map(spans).filter_map(|span| span.split_once("::")) {
            if owner.starts_with(|first: char| first.is_ascii_uppercase()) {
                count += 1;
                assert!(is_there(owner, word(name)), "{page} names {owner}::{name}");
            }
        }
    }
    assert!(count > 150, "the pages are read");
}

#[test]
fn the_guide_has_the_table_of_errors() {
    let page = read(PAGES[0]);
    let errors =
        page.split("## Errors").nth(1).and_then(|rest| rest.split("## ").next()).expect("its section");
    let kinds: BTreeMap<_, _> = errors
        .lines()
        .filter_map(|line| line.strip_prefix("| E")?.split_once(" | `"))
        .map(|(errnos, kind)| (word(kind), format!("E{errnos}")))
        .collect();
    let code = read("src/kernel/error.rs");
    let arms = code.lines().filter_map(|line| line.trim().split_once(" => Self::"));
    let arms: Vec<_> = arms.filter(|(errnos, _)| errnos.starts_with('E')).collect();
    assert!(arms.len() > 5, "the table in the library is read");
    for (errnos, kind) in arms {
        let told = kinds
            .get(word(kind))
            .map(|told| told.split([' ', ',', ';']).collect::<Vec<_>>())
            .unwrap_or_default();
        for errno in errnos.split(" | ") {
            assert!(told.contains(&errno), "{errno} is {kind}");
        }
    }
}
