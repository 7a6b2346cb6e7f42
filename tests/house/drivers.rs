//! Checks which code names a driver.

use std::collections::BTreeSet;

use super::{assert_none, sources};

/// The places that may name drivers: their own directories; discovery, which knows their numbers; the device that has rxe's rings and
/// mlx5's payload; the modules with what only mlx5 and efa offer, the root that declares them, and the program that shows it.
const DRIVERS: &[&str] = &[
    "src/driver/",
    "src/device/mod.rs",
    "src/device/netlink/",
    "src/device/sysfs.rs",
    "src/soft/",
    "src/mlx5/",
    "src/efa/",
    "src/lib.rs",
    // Output for people, and measurements.
    "src/bin/uverbs/info/",
    "src/bin/uverbs/bench/",
    "src/bin/uverbs/verify/",
    // Counters in rows, for devices that have them.
    "src/bin/uverbs/rules/rig.rs",
    // Names for a linker, in a table, and the C interfaces of drivers' libraries.
    "uverbs-c/src/export/archive.rs",
    "uverbs-c/src/export/providers.rs",
    "uverbs-c/src/providers/",
    "uverbs-c/mlx5/",
    "uverbs-c/efa/",
];

/// The list of drivers, and the plans of all drivers.
const LISTS: &[&str] = &["src/driver/flow.rs", "src/driver/mod.rs", "src/driver/plans.rs"];

/// The files outside their folders that name drivers, where others may not. `mod.rs` has the list. The other files of the library are about
/// parts that drivers share with the soft device, or that one driver has in addition.
const OUTSIDE: [(&str, &[&str]); 6] = [
    (
        "mlx5",
        &[
            "src/driver/cursor.rs",
            "src/driver/flow.rs",
            "src/driver/mod.rs",
            "src/driver/others.rs",
            "src/driver/request.rs",
            "src/driver/rq.rs",
            "src/driver/seam/facts.rs",
            "src/driver/seam/flow.rs",
            "uverbs-c/src/providers/mod.rs",
        ],
    ),
    (
        "rxe",
        &[
            "src/driver/mod.rs",
            "src/driver/others.rs",
            "src/driver/plans.rs",
            "src/driver/rq.rs",
            "src/driver/seam/plan.rs",
            "uverbs-c/src/providers/rings.rs",
        ],
    ),
    ("siw", &["src/driver/mod.rs"]),
    (
        "efa",
        &[
            "src/driver/cursor.rs",
            "src/driver/mod.rs",
            "src/driver/plans.rs",
            "uverbs-c/src/providers/mod.rs",
        ],
    ),
    ("erdma", &["src/driver/mod.rs"]),
    ("mana", &["src/driver/mod.rs"]),
];

/// Files that pass on requests in the layout of one driver's rings.
const REQUESTS: &[&str] = &["src/kernel/command/doorbell.rs"];

/// A text without comments and without quoted text.
fn bare_code(text: &str) -> String {
    let (mut code, mut rest) = (String::new(), text);
    while let Some(at) = rest.find(['/', '"', '\'']) {
        let (before, from) = rest.split_at(at);
        code += before;
        let raw = before.trim_end_matches('#');
        let hashes = before.len() - raw.len();
        let (first, tail) = from.split_at(1);
        let skipped = if from.starts_with("//") {
            from.find('\n')
        } else if from.starts_with("/*") {
            from.find("*/").map(|end| end + 2)
        } else if first == "\"" && raw.ends_with('r') {
            let end = format!("\"{}", "#".repeat(hashes));
            tail.find(&end).map(|found| 1 + found + end.len())
        } else if first == "\"" {
            let mut escaped = false;
            let end = tail.find(|c| {
                let ends = c == '"' && !escaped;
                escaped = c == '\\' && !escaped;
                ends
            });
            end.map(|end| end + 2)
        } else if first == "'" && tail.starts_with('\\') {
            // The escaped character may be the quote itself.
            tail.char_indices().skip(2).find(|(_, c)| *c == '\'').map(|(end, _)| end + 2)
        } else if first == "'" && tail.chars().nth(1) == Some('\'') {
            tail.char_indices().nth(2).map(|(end, _)| end + 1)
        } else {
            code.push_str(first);
            Some(1)
        };
        // Lines keep their numbers.
        let (skipped, after) = from.split_at(skipped.unwrap_or(from.len()));
        code.extend(skipped.matches('\n'));
        rest = after;
    }
    code + rest
}

/// The words of which names consist: `Mlx5Plan` and `plan_mlx5` contain `mlx5`.
fn name_parts(line: &str) -> impl Iterator<Item = String> {
    line.split(|c: char| !c.is_alphanumeric()).flat_map(|word| {
        let is_upper = word.chars().all(|c| !c.is_lowercase());
        let mut parts: Vec<String> = Vec::new();
        for c in word.chars() {
            match parts.last_mut() {
                Some(part) if is_upper || !c.is_uppercase() => part.extend(c.to_lowercase()),
                _ => parts.push(c.to_lowercase().collect()),
            }
        }
        parts
    })
}

/// The drivers, each with a folder of its own in `src/driver`.
pub(super) const NAMES: [&str; 6] = ["mlx5", "rxe", "siw", "efa", "erdma", "mana"];

#[test]
fn drivers_are_named_where_they_are_at_home() {
    let (mut wrong, mut requests) = (Vec::new(), BTreeSet::new());
    for (name, text) in sources(&["src", "uverbs-c/src"]) {
        if DRIVERS.iter().any(|home| name.starts_with(home)) || name.ends_with("/tests.rs") {
            continue;
        }
        let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        for (i, line) in bare_code(text).lines().enumerate() {
            let found = name_parts(line).find(|part| NAMES.contains(&part.as_str()));
            if found.is_some() && REQUESTS.contains(&name.as_str()) {
                requests.insert(name.clone());
            } else if found.is_some() {
                wrong.push(format!("{name}:{}: {}", i + 1, line.trim()));
            }
        }
    }
    assert_none("drivers that are named outside their rooms", &wrong);
    let listed: BTreeSet<_> = REQUESTS.iter().map(ToString::to_string).collect();
    assert_eq!(requests, listed, "files with requests of one driver");
}

#[test]
fn a_driver_is_its_folder() {
    let homes = ["src/driver/", "uverbs-c/src/providers/"];
    let mut found = NAMES.map(|name| (name, BTreeSet::new()));
    for (file, text) in sources(&["src", "uverbs-c/src"]) {
        let Some(inside) = homes.iter().find_map(|home| file.strip_prefix(home)) else { continue };
        let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        for (name, files) in &mut found {
            let is_named = || bare_code(text).lines().any(|line| name_parts(line).any(|part| part == *name));
            if !inside.starts_with(&format!("{name}/")) && !inside.contains("tests") && is_named() {
                files.insert(file.clone());
            }
        }
    }
    let listed = OUTSIDE.map(|(name, files)| (name, files.iter().map(ToString::to_string).collect()));
    assert_eq!(found, listed, "files outside a driver's folder that name it");
}

/// Code that handles one variant of an enum and ignores the others: a rest pattern, `matches!`, `if let Self::A`, `let Sends::A`, `==
/// Self::A`.
fn leaves_out_variants(line: &str) -> bool {
    let names_variant = |pattern: &str| {
        let path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
        pattern.starts_with(char::is_uppercase)
            && pattern[..pattern.find(|c| !path(c)).unwrap_or(pattern.len())].contains("::")
    };
    ["_ =>", "_ if ", "matches!(", "== Self::", "!= Self::"].iter().any(|rest| line.contains(rest))
        || line.match_indices("let ").any(|(at, found)| names_variant(&line[at + found.len()..]))
}

/// A new driver lacks what it does not say that it has: no match on drivers or on plans gives the drivers that it does not name anything
/// but a refusal.
#[test]
fn drivers_that_are_not_named_are_refused() {
    let mut found = Vec::new();
    for (name, text) in sources(&["src/driver"]) {
        if !LISTS.contains(&name.as_str()) {
            continue;
        }
        let lines = bare_code(&text);
        let refuses = |line: &str| ["lacks(", "lacking(", "refused("].iter().any(|call| line.contains(call));
        let lines = lines.lines().filter(|line| leaves_out_variants(line) && !refuses(line));
        found.extend(lines.map(|line| line.trim().to_owned()));
    }
    // Numbers of unknown drivers.
    assert_eq!(found, ["_ => Self::Other,"]);
}

#[test]
fn variants_left_out_are_found() {
    let lines = [
        "_ => {}",
        "(Self::A, _) if x => 1",
        "_ if x => 1,",
        "if let Self::A(a) = self {",
        "let Sends::A(a) = b else {",
    ];
    let found: Vec<_> = lines.iter().map(|line| leaves_out_variants(line)).collect();
    assert_eq!(found, [true, false, true, true, true]);
    let lines =
        ["let Some(a) = b else {", "let a = Self::new();", "Self::A(_) => {}", "if let Ok(a) = A::b() {"];
    assert!(!lines.iter().any(|line| leaves_out_variants(line)));
}

#[test]
fn names_are_found_in_code_only() {
    let text =
        "a // rxe\nlet x = \"rxe \\\" rxe\"; '\"'; r#\"rxe \" \"#; f::<'a>('\\'') /* rxe\n*/ * MLX5 / b";
    assert_eq!(bare_code(text).lines().count(), text.lines().count());
    let found: Vec<_> = name_parts(&bare_code(text)).filter(|part| part == "rxe" || part == "mlx5").collect();
    assert_eq!(found, ["mlx5"]);
    let parts: Vec<_> = name_parts("Mlx5Plan::plan_mlx5 default DRIVER_RXE OfRxe").collect();
    assert_eq!(parts, ["mlx5", "plan", "plan", "mlx5", "default", "driver", "rxe", "of", "rxe"]);
}
