//! Compares layouts and numbers with the C headers of this machine.
//!
//! The tables in `golden/` contain sizes, offsets and values (`golden.rs`). Here a C compiler prints those of the installed headers.
//! Headers differ: older ones lack names, and stable kernels may get newer headers at any time. A name that the headers lack is reported
//! and is not a failure, and neither is a struct of which they have another version. A name with another number is a failure.
//! `UVERBS_ABI_INCLUDE` names a directory of headers that is used before the system's (the kernel's own, or `kernel-headers` of
//! rdma-core).

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use uverbs_abi::layout::{self, StructInfo};

#[path = "../../tests/common/skips.rs"]
mod skips;
use skips::skipped;

const KERNEL: &[&str] = &[
    "linux/in.h",
    "linux/in6.h",
    "linux/netlink.h",
    "rdma/ib_user_verbs.h",
    "rdma/ib_user_ioctl_verbs.h",
    "rdma/ib_user_ioctl_cmds.h",
    "rdma/rdma_user_ioctl_cmds.h",
    "rdma/rdma_netlink.h",
    "rdma/rdma_user_cm.h",
    "rdma/rdma_user_rxe.h",
    "rdma/siw-abi.h",
    "rdma/efa-abi.h",
    "rdma/erdma-abi.h",
    "rdma/mana-abi.h",
    "rdma/mlx5-abi.h",
    "rdma/mlx5_user_ioctl_cmds.h",
    "rdma/mlx5_user_ioctl_verbs.h",
];

/// Layouts that the device itself reads, and values that the kernel shares with libibverbs without a uapi name.
const LIBRARY: &[&str] = &["infiniband/verbs.h", "infiniband/mlx5dv.h"];

/// Layouts that EFA reads: no system installs this header, which is in `providers/efa` of rdma-core.
const EFA: &[&str] = &["stdint.h", "efa_io_defs.h"];

fn include_dirs() -> Vec<PathBuf> {
    let preferred = std::env::var_os("UVERBS_ABI_INCLUDE").map(PathBuf::from);
    preferred.into_iter().chain([PathBuf::from("/usr/include")]).collect()
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

/// The text without comments of C.
fn code(mut text: &str) -> String {
    let mut code = String::new();
    while let Some((before, comment)) = text.split_once("/*") {
        code += before;
        text = comment.split_once("*/").map_or("", |(_, after)| after);
    }
    code + text
}

/// A set of headers that can be included together.
struct Headers {
    includes: &'static [&'static str],
    text: String,
    words: BTreeSet<String>,
}

impl Headers {
    /// Reads the headers. The error names the one that is missing.
    fn read(includes: &'static [&'static str]) -> Result<Self, String> {
        let mut text = String::new();
        for include in includes {
            let paths: Vec<_> = include_dirs().iter().map(|dir| dir.join(include)).collect();
            let path = paths.iter().find(|path| path.exists());
            let path = path.ok_or_else(|| format!("{include} is not installed"))?;
            let header = std::fs::read_to_string(path).map_err(|e| format!("{include}: {e}"))?;
            text += &code(&header).replace("  {", " {");
        }
        let words = words(&text).map(str::to_owned).collect();
        Ok(Self { includes, text, words })
    }

    /// The members of a struct, if the headers define it; none if a macro defines it as another struct.
    fn members(&self, name: &str) -> Option<BTreeSet<&str>> {
        let Some(start) = self.text.find(&format!("struct {name} {{")) else {
            return self.text.contains(&format!("#define {name} ")).then(BTreeSet::new);
        };
        let body = &self.text[start..];
        let body = &body[..body.find("\n}").expect("the end of a struct")];
        // The text before a semicolon, without the length of an array. An array without a length takes no room.
        let takes_room = |member: &&str| !member.contains("[]") && !member.contains("FLEX_ARRAY");
        let members = body.split(';').filter(takes_room);
        let members = members.filter_map(|member| words(member.split('[').next()?).last());
        Some(members.collect())
    }
}

/// One check: a description, an expression in C, and the value in the crate.
struct Check {
    name: String,
    expression: String,
    expected: u64,
    /// Whether another version of the same struct may have another value.
    may_differ: bool,
}

/// The checks of a struct for the members that the headers have, and whether they have another version of it; `None` if they lack the
/// struct.
fn struct_checks(headers: &Headers, layout: &StructInfo) -> Option<(Vec<Check>, bool)> {
    // The struct's name in C, and the path of the member, if only a member is meant.
    let (name, part) = layout.c_name.split_once('.').unwrap_or((layout.c_name, ""));
    let members = headers.members(name)?;
    let knows = |path: &str| members.is_empty() || path.split('.').all(|word| members.contains(word));
    if !part.is_empty() && !knows(part) {
        return None;
    }
    let fields = || layout.fields.iter().filter(|field| !field.c_name.is_empty());
    let ours: BTreeSet<_> =
        fields().flat_map(|field| field.c_name.split('.')).chain(part.split('.')).collect();
    let is_other =
        !fields().all(|field| knows(field.c_name)) || members.iter().any(|member| !ours.contains(member));

    let dot = if part.is_empty() { "" } else { "." };
    let whole = if part.is_empty() { "(*p)".to_owned() } else { format!("p->{part}") };
    // Compiled, never run: only types and addresses of a null pointer's members are used.
    let of = |e: String| format!("({{ struct {name} *p = 0; (void)p; (unsigned long long)({e}); }})");
    let mut checks = vec![Check {
        name: layout.c_name.to_owned(),
        expression: of(format!("sizeof({whole})")),
        expected: layout.size as u64,
        may_differ: is_other,
    }];
    for field in fields().filter(|field| knows(field.c_name)) {
        let path = format!("{part}{dot}{}", field.c_name);
        let base = if part.is_empty() {
            "0".to_owned()
        } else {
            format!("__builtin_offsetof(struct {name}, {part})")
        };
        // A field that is reserved in one version has a name in another.
        let may_differ = is_other && field.c_name.contains("reserved");
        checks.push(Check {
            name: format!("{path} of {name}: offset"),
            expression: of(format!("__builtin_offsetof(struct {name}, {path}) - {base}")),
            expected: field.offset as u64,
            may_differ,
        });
        checks.push(Check {
            name: format!("{path} of {name}: size"),
            expression: of(format!("sizeof(p->{path})")),
            expected: field.size as u64,
            may_differ,
        });
    }
    Some((checks, is_other))
}

/// Compiles and runs a program that prints the expressions. Returns the values, or the reason why there are none.
fn run(headers: &Headers, checks: &[Check]) -> Result<Vec<u64>, String> {
    let mut program = String::from("int printf(const char *, ...);\n");
    for include in headers.includes {
        writeln!(program, "#include <{include}>").expect("a string");
    }
    program += "int main(void) {\n";
    for check in checks {
        writeln!(program, "printf(\"%llu\\n\", (unsigned long long)({}));", check.expression)
            .expect("a string");
    }
    program += "return 0; }\n";

    let dir = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let stem = headers.includes[0].replace(['/', '.'], "_");
    let (source, binary) = (dir.join(format!("{stem}.c")), dir.join(stem));
    std::fs::write(&source, program).expect("the target directory is writable");
    let mut cc = Command::new("cc");
    for dir in include_dirs() {
        cc.arg("-I").arg(dir);
    }
    let output = match cc.args(["-w", "-o"]).args([&binary, &source]).output() {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            return Err("there is no cc".to_owned());
        }
        result => result.expect("cc can be started"),
    };
    assert!(output.status.success(), "cc: {}", String::from_utf8_lossy(&output.stderr));
    let output = Command::new(&binary).output().expect("the program runs");
    let text = String::from_utf8(output.stdout).expect("text");
    Ok(text.lines().map(|line| line.parse().expect("a number")).collect())
}

#[test]
fn structs_and_numbers_are_those_of_the_c_headers() {
    let (mut sets, mut absent) = (Vec::new(), Vec::new());
    for includes in [KERNEL, LIBRARY, EFA] {
        match Headers::read(includes) {
            Ok(headers) => sets.push((headers, Vec::new())),
            Err(reason) => absent.push(reason),
        }
    }
    let (mut lacking, mut other) = (Vec::new(), Vec::new());
    for layout in layout::structs() {
        let found =
            sets.iter_mut().find_map(|(headers, checks)| Some((struct_checks(headers, layout)?, checks)));
        let Some(((more, is_other), checks)) = found else {
            lacking.push(layout.c_name);
            continue;
        };
        checks.extend(more);
        other.extend(is_other.then_some(layout.c_name));
    }
    for number in layout::numbers().filter(|number| !number.c_name.is_empty()) {
        let knows = |headers: &Headers| {
            let names = words(number.c_name).filter(|word| !word.starts_with(|c: char| c.is_ascii_digit()));
            names.into_iter().all(|name| headers.words.contains(name))
        };
        match sets.iter_mut().find(|(headers, _)| knows(headers)) {
            None => lacking.push(number.c_name),
            Some((_, checks)) => checks.push(Check {
                name: number.c_name.to_owned(),
                expression: number.c_name.to_owned(),
                expected: number.value,
                may_differ: false,
            }),
        }
    }
    let mut wrong = Vec::new();
    for (headers, checks) in &sets {
        let values = match run(headers, checks) {
            Ok(values) => values,
            Err(reason) => {
                absent.push(reason);
                continue;
            }
        };
        assert_eq!(values.len(), checks.len());
        let differing = checks.iter().zip(values).filter(|(check, value)| check.expected != *value);
        for (check, value) in differing {
            let text = format!("{}: {:#x} here, {value:#x} in C", check.name, check.expected);
            if check.may_differ { println!("{text}, of another version") } else { wrong.push(text) }
        }
        println!("checked: {} values against {}", checks.len(), headers.includes[0]);
    }
    absent.dedup();
    for reason in absent {
        skipped(format_args!("layouts against C headers: {reason}"));
    }
    if !sets.is_empty() && !lacking.is_empty() {
        println!("these headers lack: {}", lacking.join(" "));
        skipped(format_args!(
            "{} names that the C headers of this machine lack (--nocapture names them)",
            lacking.len()
        ));
    }
    println!("of these they have other members: {}", other.join(" "));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
