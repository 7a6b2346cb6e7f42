//! Every struct and number of the crate against the C headers of this machine.
//!
//! A C program prints sizes, offsets and values; the C compiler is the judge, not a copy of the header. Names
//! that the installed headers are too old for are listed in `golden/newer.txt` and reported as skipped; any
//! other name that the headers do not have is an error. `UVERBS_ABI_INCLUDE` names a directory of headers to
//! prefer to the system's (the kernel's own, or `kernel-headers` of rdma-core).

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use uverbs_abi::layout::{self, StructInfo};

/// A set of headers that can be included together.
struct Headers {
    includes: &'static [&'static str],
    text: String,
    words: BTreeSet<String>,
}

const KERNEL: &[&str] = &[
    "linux/in.h",
    "linux/in6.h",
    "linux/netlink.h",
    "rdma/ib_user_verbs.h",
    "rdma/ib_user_ioctl_verbs.h",
    "rdma/ib_user_ioctl_cmds.h",
    "rdma/rdma_user_ioctl_cmds.h",
    "rdma/rdma_netlink.h",
    "rdma/rdma_user_rxe.h",
    "rdma/siw-abi.h",
    "rdma/mlx5-abi.h",
    "rdma/mlx5_user_ioctl_cmds.h",
    "rdma/mlx5_user_ioctl_verbs.h",
];

/// What the device itself reads, and values that the kernel shares with libibverbs without a uapi name.
const LIBRARY: &[&str] = &["infiniband/verbs.h", "infiniband/mlx5dv.h"];

fn include_dirs() -> Vec<PathBuf> {
    let preferred = std::env::var_os("UVERBS_ABI_INCLUDE").map(PathBuf::from);
    preferred.into_iter().chain([PathBuf::from("/usr/include")]).collect()
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

impl Headers {
    /// Reads the headers, or names the one that is missing.
    fn read(includes: &'static [&'static str]) -> Result<Self, String> {
        let mut text = String::new();
        for include in includes {
            let paths: Vec<_> = include_dirs().iter().map(|dir| dir.join(include)).collect();
            let path = paths.iter().find(|path| path.exists());
            let path = path.ok_or_else(|| format!("{include} is not installed"))?;
            let header = std::fs::read_to_string(path).map_err(|e| format!("{include}: {e}"))?;
            text += &header.replace("  {", " {");
        }
        let words = text.split(|c| !is_word(c)).map(str::to_owned).collect();
        Ok(Self { includes, text, words })
    }

    /// True if every name in a C expression occurs in the headers.
    fn know(&self, expression: &str) -> bool {
        let words = expression.split(|c| !is_word(c));
        let mut names = words.filter(|word| word.starts_with(|c: char| c.is_alphabetic() || c == '_'));
        names.all(|name| self.words.contains(name))
    }

    /// True if the struct is defined with all the members that the crate gives it.
    fn know_struct(&self, layout: &StructInfo) -> bool {
        let (name, part) = split(layout);
        let Some(start) = self.text.find(&format!("struct {name} {{")) else {
            // Defined by a macro, as another struct.
            return self.text.contains(&format!("#define {name} "));
        };
        let body = &self.text[start..];
        let body = &body[..body.find("\n}").expect("the end of a struct")];
        let members: BTreeSet<&str> = body.split(|c| !is_word(c)).collect();
        let fields = layout.fields.iter().map(|field| field.c_name);
        fields.chain([part]).all(|path| path.split('.').all(|word| word.is_empty() || members.contains(word)))
    }
}

/// The struct's name in C, and the path of the member that is meant, if not the whole.
fn split(layout: &StructInfo) -> (&str, &str) {
    layout.c_name.split_once('.').unwrap_or((layout.c_name, ""))
}

/// One check: what it is about, an expression in C, the value that the crate has.
struct Check {
    name: String,
    expression: String,
    expected: u64,
}

fn struct_checks(layout: &StructInfo) -> Vec<Check> {
    let (name, part) = split(layout);
    let dot = if part.is_empty() { "" } else { "." };
    let whole = if part.is_empty() { "(*p)".to_owned() } else { format!("p->{part}") };
    // Compiled, never run: only types and addresses of a null pointer's members are asked for.
    let of = |e: String| format!("({{ struct {name} *p = 0; (void)p; (unsigned long long)({e}); }})");
    let mut checks = vec![Check {
        name: layout.c_name.to_owned(),
        expression: of(format!("sizeof({whole})")),
        expected: layout.size as u64,
    }];
    for field in layout.fields.iter().filter(|field| !field.c_name.is_empty()) {
        let path = format!("{part}{dot}{}", field.c_name);
        let base = if part.is_empty() { "0".to_owned() } else { format!("offsetof(struct {name}, {part})") };
        checks.push(Check {
            name: format!("{path} of {name}: offset"),
            expression: of(format!("offsetof(struct {name}, {path}) - {base}")),
            expected: field.offset as u64,
        });
        checks.push(Check {
            name: format!("{path} of {name}: size"),
            expression: of(format!("sizeof(p->{path})")),
            expected: field.size as u64,
        });
    }
    checks
}

/// Compiles and runs a program that prints the expressions; returns the values, or why there are none.
fn run(headers: &Headers, checks: &[Check]) -> Result<Vec<u64>, String> {
    let mut program = String::from("#include <stdio.h>\n#include <stddef.h>\n");
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

fn newer() -> BTreeSet<&'static str> {
    include_str!("golden/newer.txt").lines().filter(|line| !line.starts_with('#')).collect()
}

#[test]
fn structs_and_numbers_are_those_of_the_c_headers() {
    let kernel = match Headers::read(KERNEL) {
        Ok(headers) => headers,
        Err(reason) => return println!("skipped: {reason}"),
    };
    let library = Headers::read(LIBRARY);
    let newer = newer();
    let (mut by_kernel, mut by_library) = (Vec::new(), Vec::new());
    let (mut too_new, mut elsewhere, mut unknown) = (Vec::new(), Vec::new(), Vec::new());

    // Structs and numbers alike: a name, whether a set of headers knows it, and what to check.
    let mut sort = |name: &'static str, know: &dyn Fn(&Headers) -> bool, checks: Vec<Check>| match &library {
        _ if know(&kernel) => by_kernel.extend(checks),
        Ok(library) if know(library) => by_library.extend(checks),
        _ if newer.contains(name) => too_new.push(name),
        Err(_) if name.starts_with("IBV_") || name.to_lowercase().starts_with("mlx5_") => {
            elsewhere.push(name)
        }
        _ => unknown.push(name),
    };
    for layout in layout::structs() {
        sort(layout.c_name, &|headers| headers.know_struct(layout), struct_checks(layout));
    }
    for number in layout::numbers().filter(|number| !number.c_name.is_empty()) {
        let check = Check {
            name: number.c_name.to_owned(),
            expression: number.c_name.to_owned(),
            expected: number.value,
        };
        sort(number.c_name, &|headers| headers.know(number.c_name), vec![check]);
    }
    assert!(unknown.is_empty(), "not in the headers, nor in golden/newer.txt: {unknown:#?}");

    let mut sets = vec![(&kernel, by_kernel)];
    match &library {
        Ok(library) => sets.push((library, by_library)),
        Err(reason) => println!("skipped: {reason}: {elsewhere:?}"),
    }
    let mut wrong = Vec::new();
    for (headers, checks) in sets {
        let values = match run(headers, &checks) {
            Ok(values) => values,
            Err(reason) => return println!("skipped: {reason}"),
        };
        assert_eq!(values.len(), checks.len());
        let differing = checks.iter().zip(values).filter(|(check, value)| check.expected != *value);
        wrong
            .extend(differing.map(|(check, value)| {
                format!("{}: {:#x} here, {value:#x} in C", check.name, check.expected)
            }));
        println!("checked: {} values against {}", checks.len(), headers.includes[0]);
    }
    if !too_new.is_empty() {
        println!("skipped: {} names newer than these headers: {}", too_new.len(), too_new.join(" "));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The list may not hide anything: each of its names is one that the crate has.
#[test]
fn newer_names_are_names_of_the_crate() {
    let numbers = layout::numbers().map(|number| number.c_name);
    let names: BTreeSet<_> = numbers.chain(layout::structs().map(|layout| layout.c_name)).collect();
    let stale: Vec<_> = newer().into_iter().filter(|name| !names.contains(name)).collect();
    assert!(stale.is_empty(), "in golden/newer.txt only: {stale:?}");
}
