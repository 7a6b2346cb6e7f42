//! The built library has the names and versions that programs look for.

use std::collections::BTreeSet;
use std::process::Command;

use object::elf::{FileHeader64, SHN_UNDEF, VER_NDX_GLOBAL};
use object::read::elf::{FileHeader, Sym};
use object::{Endianness, LittleEndian};

/// The shared library. Cargo builds none for a test, so it is built here, beside the test.
fn library() -> Vec<u8> {
    let test = std::env::current_exe().expect("a path");
    // target/PROFILE/deps/TEST
    let target = test.ancestors().nth(3).expect("a target directory");
    let built = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--profile", "dropin", "--package", "uverbs-c", "--target-dir"])
        .arg(target)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status();
    assert!(built.expect("cargo").success());
    std::fs::read(target.join("dropin/libibverbs.so")).expect("a library")
}

#[test]
fn every_name_of_the_list_is_exported_in_its_version_and_no_other() {
    let bytes = library();
    let endian = LittleEndian;
    let header = FileHeader64::<LittleEndian>::parse(&*bytes).expect("an ELF file");
    let sections = header.sections(endian, &*bytes).expect("sections");
    let symbols = sections.symbols(endian, &*bytes, object::elf::SHT_DYNSYM).expect("symbols");
    let versions = sections.versions(endian, &*bytes).expect("versions").expect("a version table");
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
    let listed = include_str!("../exports.list").lines().map(str::to_owned).collect::<BTreeSet<_>>();
    let missing: Vec<_> = listed.difference(&found).collect();
    let unknown: Vec<_> = found.difference(&listed).collect();
    assert!(missing.is_empty() && unknown.is_empty(), "missing {missing:#?}, not in the list {unknown:#?}");
    assert!(found.len() > 200);
}

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
    // Nothing beyond what every program has.
    for needed in texts(i64::from(object::elf::DT_NEEDED)) {
        assert!(
            ["libc.so", "libgcc_s.so", "ld-linux", "libm.so"].iter().any(|known| needed.starts_with(known)),
            "{needed}"
        );
    }
}
