//! Checks that the targets of pages and comments exist: files, headings, and paths in the repository.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::root;

/// The directories whose paths are written from the root.
const TOPS: [&str; 6] = ["src/", "tests/", "docs/", "benches/", "uverbs-abi/", "uverbs-c/"];

/// The files with these endings, by their path from the root. Build output, hidden files and binary files are left out.
fn files(endings: &[&str]) -> BTreeMap<String, String> {
    let (mut open, mut found) = (vec![root().to_owned()], BTreeMap::new());
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(&directory).expect("a directory") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() {
                let is_ours = !name.starts_with('.') && !["target", "corpus", "artifacts"].contains(&&*name);
                open.extend(is_ours.then_some(path));
            } else if endings.iter().any(|ending| name.ends_with(ending))
                && let Ok(text) = fs::read_to_string(&path)
            {
                found.insert(path.strip_prefix(root()).expect("below the root").display().to_string(), text);
            }
        }
    }
    found
}

/// A page without its examples.
fn prose(page: &str) -> impl Iterator<Item = &str> {
    let mut is_example = false;
    page.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        is_example ^= is_fence;
        !is_example && !is_fence
    })
}

/// The text between backticks, and the text outside of them.
fn spans(line: &str) -> (Vec<&str>, String) {
    let parts: Vec<_> = line.split('`').collect();
    (parts.iter().skip(1).step_by(2).copied().collect(), parts.into_iter().step_by(2).collect())
}

/// The anchors of a page's headings, as repository hosts generate them.
fn anchors(page: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    for heading in prose(page).filter(|line| line.starts_with('#')) {
        let words = heading.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
        let anchor: String = words.chars().filter(|c| c.is_alphanumeric() || "-_".contains(*c)).collect();
        let mut number = 0;
        while !anchors.insert(if number == 0 { anchor.clone() } else { format!("{anchor}-{number}") }) {
            number += 1;
        }
    }
    anchors
}

/// A path without `.` and `..`.
fn plain(path: &Path) -> String {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            std::path::Component::ParentDir => drop(plain.pop()),
            part => plain.push(part),
        }
    }
    plain.display().to_string()
}

/// The broken links of a page, and the number of all links.
fn broken(name: &str, pages: &BTreeMap<String, String>) -> (usize, Vec<String>) {
    let (mut count, mut broken) = (0, Vec::new());
    for line in prose(&pages[name]) {
        for link in spans(line).1.split("](").skip(1) {
            let link = link.split([')', ' ']).next().unwrap_or_default();
            if link.contains("://") {
                continue;
            }
            count += 1;
            let (file, anchor) =
                link.split_once('#').map_or((link, None), |(file, anchor)| (file, Some(anchor)));
            let here = Path::new(name).parent().unwrap_or(Path::new(""));
            let to = if file.is_empty() { name.to_owned() } else { plain(&here.join(file)) };
            let leads = match anchor {
                Some(anchor) => pages.get(&to).is_some_and(|page| anchors(page).contains(anchor)),
                None => root().join(&to).exists(),
            };
            if !leads {
                broken.push(format!("{name}: {link}"));
            }
        }
    }
    (count, broken)
}

#[test]
fn links_lead_to_files_and_headings() {
    let pages = files(&[".md"]);
    let found: Vec<_> = pages.keys().map(|name| broken(name, &pages)).collect();
    assert!(found.iter().map(|(count, _)| count).sum::<usize>() > 100, "the links are found");
    let broken: Vec<_> = found.into_iter().flat_map(|(_, broken)| broken).collect();
    assert!(broken.is_empty(), "links that lead nowhere: {broken:#?}");
}

/// The part of a word that is a path; if it contains a placeholder, the directory.
fn path(word: &str) -> &str {
    let is_path = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    let end = word.find(|c| !is_path(c)).unwrap_or(word.len());
    let path = word[..end].trim_end_matches(['.', '-']);
    let is_open =
        word[end..].starts_with(['*', '{', '<', '[']) || path.contains("NAME") || path.contains("VERSION");
    if is_open { path.rsplit_once('/').map_or("", |(folder, _)| folder) } else { path }
}

#[test]
fn paths_that_pages_name_are_there() {
    let sources = files(&[".rs"]);
    let (mut count, mut missing) = (0, Vec::new());
    for (name, page) in files(&[".md"]) {
        let here = root().join(&name).parent().expect("a folder").to_owned();
        for word in prose(&page).flat_map(|line| spans(line).0).flat_map(str::split_whitespace) {
            let path = path(word);
            let is_there = if TOPS.iter().any(|top| word.starts_with(top)) {
                // The page of a crate also names the crate's own files.
                root().join(path).exists() || here.join(path).exists()
            } else if path.ends_with(".rs") && path == word {
                // Pages about a part of the tree name its files by the end of their paths.
                here.join(path).exists() || sources.keys().any(|source| Path::new(source).ends_with(path))
            } else {
                continue;
            };
            count += 1;
            if !is_there {
                missing.push(format!("{name}: {word}"));
            }
        }
    }
    assert!(count > 200, "the paths are found: {count}");
    assert!(missing.is_empty(), "named, but not there: {missing:#?}");
}

/// Whether a text has a function or a value of this name, and names its type.
fn has(source: &str, item: &str) -> bool {
    let (of, name) = item.split_once("::").expect("a type and a name");
    let is_there = |before: &str| source.contains(&format!("{before} {name}"));
    source.contains(of) && (is_there("fn") || is_there("const") || source.contains(&format!("    {name}")))
}

/// Pages say where something is as "`file`, `Type::name`".
#[test]
fn what_pages_say_of_a_file_is_in_it() {
    let sources = files(&[".rs"]);
    let (mut count, mut missing) = (0, Vec::new());
    for (name, page) in files(&[".md"]) {
        for line in prose(&page) {
            for pair in spans(line).0.windows(2) {
                let [file, item] = [pair[0], pair[1]];
                let is_pair = file.ends_with(".rs") && line.contains(&format!("`{file}`, `{item}`"));
                let is_item = item.split("::").count() == 2
                    && item.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == ':');
                if !is_pair || !is_item {
                    continue;
                }
                count += 1;
                if !sources.get(file).is_some_and(|source| has(source, item)) {
                    missing.push(format!("{name}: {item} in {file}"));
                }
            }
        }
    }
    assert!(count > 10, "the pairs are found: {count}");
    assert!(missing.is_empty(), "said, but not so: {missing:#?}");
}

#[test]
fn pages_that_sources_name_are_there() {
    let (mut count, mut missing) = (0, Vec::new());
    for (name, text) in files(&[".rs", ".toml", ".sh", ".py", ".c", "run", "watch"]) {
        if name.ends_with("house/links.rs") {
            continue;
        }
        for (at, _) in text.match_indices("docs/") {
            let path = path(&text[at..]);
            if path.ends_with(".md") {
                count += 1;
                if !root().join(path).exists() {
                    missing.push(format!("{name}: {path}"));
                }
            }
        }
    }
    assert!(count > 20, "the pages are named");
    assert!(missing.is_empty(), "named, but not there: {missing:#?}");
}

#[test]
fn what_leads_nowhere_is_found() {
    let page =
        "# A `b` c, d\n[x](#a-b-c-d) [y](#e) [`z`](../src) [w](gone.md)\n```\n[v](gone.md)\n```\n# A b c d";
    let pages = BTreeMap::from([("docs/page.md".to_owned(), page.to_owned())]);
    let found = broken("docs/page.md", &pages);
    assert_eq!(found, (4, vec!["docs/page.md: #e".to_owned(), "docs/page.md: gone.md".to_owned()]));
    assert_eq!(anchors(page), BTreeSet::from(["a-b-c-d", "a-b-c-d-1"].map(String::from)));
    let words = ["src/lib.rs,", "src/*/mod.rs", "tests/any/qp.rs::name", "docs/images/."];
    assert_eq!(words.map(path), ["src/lib.rs", "src", "tests/any/qp.rs", "docs/images/"]);
}
