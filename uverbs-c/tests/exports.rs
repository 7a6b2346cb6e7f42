//! Checks that the built libraries have the names and versions that programs need.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;

#[path = "../../tests/common/skips.rs"]
mod skips;

use skips::skipped;

use object::elf::{FileHeader64, SHN_UNDEF, VER_NDX_GLOBAL};
use object::read::elf::{FileHeader, Sym};
use object::{Endianness, LittleEndian};

/// The directory of the libraries. Cargo does not build them for a test, so they are built here, beside the test.
fn built() -> PathBuf {
    let test = std::env::current_exe().expect("a path");
    // target/PROFILE/deps/TEST
    let target = test.ancestors().nth(3).expect("a target directory");
    let built = Command::new(env!("CARGO"))
        .args([
            "build",
            "--quiet",
            "--profile",
            "dropin",
            "--package",
            "uverbs-c",
            "--package",
            "uverbs-c-mlx5",
            "--package",
            "uverbs-c-efa",
        ])
        .arg("--target-dir")
        .arg(target)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status();
    assert!(built.expect("cargo").success());
    target.join("dropin")
}

/// The shared library.
fn library() -> Vec<u8> {
    std::fs::read(built().join("libibverbs.so")).expect("a library")
}

/// The names and versions that a library exports, "version name".
fn exported(bytes: &[u8]) -> BTreeSet<String> {
    let endian = LittleEndian;
    let header = FileHeader64::<LittleEndian>::parse(bytes).expect("an ELF file");
    let sections = header.sections(endian, bytes).expect("sections");
    let symbols = sections.symbols(endian, bytes, object::elf::SHT_DYNSYM).expect("symbols");
    let versions = sections.versions(endian, bytes).expect("versions").expect("a version table");
    let mut found = BTreeSet::new();
    for (index, symbol) in symbols.enumerate() {
        let name = symbols.symbol_name(endian, symbol).expect("a name");
        let version = versions.version_index(endian, index);
        let is_version_itself = symbol.st_shndx(endian) == object::elf::SHN_ABS;
        if symbol.st_shndx(endian) == SHN_UNDEF || index.0 == 0 || is_version_itself {
            continue;
        }
        assert_ne!(version.index(), VER_NDX_GLOBAL, "{} has no version", String::from_utf8_lossy(name));
        let version = versions.version(version).expect("a version").expect("a version of its own");
        found.insert(format!(
            "{} {}",
            String::from_utf8_lossy(version.name()),
            String::from_utf8_lossy(name)
        ));
    }
    found
}

/// What a program puts in front of the C library (recorders, fake devices, tracers) sees these calls, as it sees those of libibverbs.
#[test]
fn the_kernel_is_asked_by_the_c_librarys_functions() {
    let bytes = library();
    let endian = LittleEndian;
    let header = FileHeader64::<LittleEndian>::parse(bytes.as_slice()).expect("an ELF file");
    let sections = header.sections(endian, bytes.as_slice()).expect("sections");
    let symbols = sections.symbols(endian, bytes.as_slice(), object::elf::SHT_DYNSYM).expect("symbols");
    let imported: BTreeSet<_> = symbols
        .iter()
        .filter(|symbol| symbol.st_shndx(endian) == SHN_UNDEF)
        .map(|symbol| symbols.symbol_name(endian, symbol).expect("a name"))
        .collect();
    for name in ["ioctl", "open64", "mmap64", "read", "close"] {
        assert!(imported.contains(name.as_bytes()), "{name}");
    }
}

/// The names and versions of a linker's map, in the same form.
fn mapped(map: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut version = "";
    for line in map.lines() {
        let line = line.trim();
        if let Some(begun) = line.strip_suffix(" {") {
            version = begun;
        } else if let Some(name) = line.strip_suffix(';').filter(|name| *name != "*" && !name.contains('}')) {
            names.insert(format!("{version} {name}"));
        }
    }
    names
}

/// Asserts that a library exports exactly the names and versions in its map, and at least `least` of them.
fn exports_the_map(bytes: &[u8], map: &str, least: usize) {
    let (found, mapped) = (exported(bytes), mapped(map));
    let missing: Vec<_> = mapped.difference(&found).collect();
    let unknown: Vec<_> = found.difference(&mapped).collect();
    assert!(missing.is_empty() && unknown.is_empty(), "missing {missing:#?}, not in the map {unknown:#?}");
    assert!(found.len() >= least);
}

const MAP: &str = include_str!("../ibverbs.map");

#[test]
fn every_name_of_the_map_is_exported_in_its_version_and_no_other() {
    exports_the_map(&library(), MAP, 500);
}

/// Names in the maps of rdma-core that it never defines: they are inline in the header, or were removed.
const NEVER_DEFINED: [&str; 2] = ["ibv_query_device_ex", "ibv_cmd_query_device"];

/// releases.list: version, name, first and last release of rdma-core whose `libibverbs.map.in` has it.
#[test]
fn every_name_of_every_release_is_there() {
    let exported = exported(&library());
    let is_there = |version: &str, name: &str| exported.contains(&format!("{version} {name}"));
    let mut releases = BTreeMap::<u32, usize>::new();
    for line in include_str!("releases.list").lines() {
        let row: Vec<_> = line.split(' ').collect();
        let [version, name, first, last] = row[..] else { panic!("not a row: {line}") };
        for release in first.parse::<u32>().expect("a release")..=last.parse().expect("a release") {
            *releases.entry(release).or_default() += 1;
        }
        // The interface from before 2007, whose names also exist in version 1.1, is left out.
        let is_twin = version == "IBVERBS_1.0" && is_there("IBVERBS_1.1", name);
        assert!(is_twin || NEVER_DEFINED.contains(&name) || is_there(version, name), "{line} is missing");
    }
    assert!(releases.keys().copied().eq(34..=65), "{releases:?}");
    assert!(releases.values().all(|names| *names > 175), "{releases:?}");
}

/// debian.list: the names that programs and libraries of three releases of Debian import, found by `tests/vm/dropin/releases/imports`.
#[test]
fn every_name_that_debian_imports_is_there() {
    let exported = exported(&library());
    let mut suites = BTreeSet::new();
    for line in include_str!("debian.list").lines() {
        let mut words = line.split(' ');
        let (version, name) = (words.next().expect("a version"), words.next().expect("a name"));
        suites.extend(words);
        assert!(exported.contains(&format!("{version} {name}")), "{line} is missing");
    }
    assert!(suites.into_iter().eq(["bookworm", "sid", "trixie"]));
}

/// Asserts that a library has the names of its map and of a list: version, name, and the releases of Debian whose library has it (rdma-core
/// 44, 56 and 65).
fn exports_the_list(library: &str, map: &str, list: &str) {
    let bytes = std::fs::read(built().join(library)).expect("a library");
    let exported = exported(&bytes);
    let mut listed = 0;
    for line in list.lines() {
        let mut words = line.split(' ');
        let (version, name) = (words.next().expect("a version"), words.next().expect("a name"));
        assert!(exported.contains(&format!("{version} {name}")), "{line} is missing");
        listed += 1;
    }
    // No other name either: a program that looks for a name that a release lacks must not find it.
    assert_eq!(exported.len(), listed);
    exports_the_map(&bytes, map, listed);
}

#[test]
fn every_name_of_libmlx5_is_there() {
    let list = include_str!("mlx5.list");
    assert!(list.lines().count() > 100);
    exports_the_list("libmlx5.so", include_str!("../mlx5/mlx5.map"), list);
}

#[test]
fn every_name_of_libefa_is_there() {
    let list = include_str!("efa.list");
    assert!(list.lines().count() > 10);
    exports_the_list("libefa.so", include_str!("../efa/efa.map"), list);
}

/// Names were added to private versions of old releases. Each private version has all names, so that none is missing in a release that
/// was not checked.
#[test]
fn all_private_versions_have_the_same_names() {
    let exported = exported(&library());
    let names = |version: u32| -> BTreeSet<&str> {
        let names =
            exported.iter().filter_map(|name| name.strip_prefix(&format!("IBVERBS_PRIVATE_{version} ")));
        let own = format!("verbs_register_driver_{version}");
        assert!(names.clone().any(|name| name == own));
        names.filter(|name| *name != own).collect()
    };
    for version in [34, 57, 59, 64] {
        assert_eq!(names(version), names(65));
    }
}

/// A compiler that links with GNU ld, if there is one.
fn compiler() -> Option<Command> {
    let mut cc = Command::new("cc");
    cc.arg("-fuse-ld=bfd");
    let version = Command::new("cc").args(["-fuse-ld=bfd", "-Wl,--version"]).output();
    if version.is_ok_and(|said| said.status.success() && said.stdout.starts_with(b"GNU ld")) {
        return Some(cc);
    }
    skipped("linking the archive: there is no C compiler with GNU ld (packages gcc, binutils)");
    None
}

/// A directory for linked programs, removed at the end.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("uverbs-c-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a directory");
        Self(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn gnu_ld_makes_the_same_library_from_the_archive() {
    let Some(mut cc) = compiler() else { return };
    let directory = Directory::new("gnu-ld");
    let made = directory.0.join("libibverbs.so.1");
    let map = concat!("-Wl,--version-script=", env!("CARGO_MANIFEST_DIR"), "/ibverbs.map");
    cc.args(["-shared", "-o"]).arg(&made).arg("-Wl,--whole-archive").arg(built().join("libibverbs.a"));
    cc.args([
        "-Wl,--no-whole-archive",
        "-Wl,-soname,libibverbs.so.1",
        "-Wl,-z,nodelete",
        map,
        "-Wl,--gc-sections",
        "-lgcc_s",
        "-lc",
    ]);
    assert!(cc.status().expect("cc").success());
    exports_the_map(&std::fs::read(made).expect("a library"), MAP, 500);
}

#[test]
fn programs_can_be_linked_with_the_archive() {
    let header = "/usr/include/infiniband/verbs.h";
    if !std::path::Path::new(header).exists() {
        skipped(format_args!(
            "linking programs with the archive: there is no {header} (package libibverbs-dev)"
        ));
        return;
    }
    let archive = built().join("libibverbs.a");
    let directory = Directory::new("archive");
    let (source, program) = (directory.0.join("program.c"), directory.0.join("program"));
    std::fs::write(&source, PROGRAM).expect("a file");
    // Into a program with shared libraries, into static programs, and into one that names its drivers.
    let ways: [&[&str]; 4] =
        [&[], &["-static"], &["-static-pie"], &["-static", "-DRDMA_STATIC_PROVIDERS=mlx5,rxe"]];
    for way in ways {
        let Some(mut cc) = compiler() else { return };
        let linked = cc.args(way).arg(&source).arg("-o").arg(&program).arg(&archive).output().expect("cc");
        assert!(linked.status.success(), "{way:?}: {}", String::from_utf8_lossy(&linked.stderr));
        let said = Command::new(&program).output().expect("a program");
        assert_eq!((said.status.code(), &*said.stdout), (Some(0), &b"no device: 22\n"[..]), "{way:?}");
    }
}

/// A program that lists devices, and also runs if there are none.
const PROGRAM: &str = r#"
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
int main(void)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    ibv_free_device_list(list);
    printf("no device: %d\n", ibv_open_device(NULL) ? 0 : errno);
    return 0;
}
"#;

#[test]
fn the_library_is_called_as_programs_look_for_it() {
    let bytes = library();
    let header = FileHeader64::<Endianness>::parse(&*bytes).expect("an ELF file");
    let endian = header.endian().expect("an order of bytes");
    let sections = header.sections(endian, &*bytes).expect("sections");
    let (entries, link) = sections.dynamic(endian, &*bytes).expect("entries").expect("a dynamic section");
    let strings = sections.strings(endian, &*bytes, link).expect("strings");
    let texts = |tag: i64| -> Vec<String> {
        let found = entries.iter().filter(|entry| entry.d_tag.get(endian) as i64 == tag);
        found
            .map(|entry| {
                let text = strings.get(entry.d_val.get(endian) as u32).expect("a text");
                String::from_utf8_lossy(text).into_owned()
            })
            .collect()
    };
    assert_eq!(texts(i64::from(object::elf::DT_SONAME)), ["libibverbs.so.1"]);
    // Only libraries that every process has loaded anyway.
    for needed in texts(i64::from(object::elf::DT_NEEDED)) {
        assert!(["libc.so", "ld-linux"].iter().any(|known| needed.starts_with(known)), "{needed}");
    }
}
