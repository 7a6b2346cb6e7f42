//! Options for the linker of a library that uses libibverbs.so.1: its name, the versions of its symbols, and that it needs libibverbs.so.1.

use std::path::{Path, PathBuf};
use std::process::Command;

#[path = "lld.rs"]
mod lld;

pub(crate) fn link(name: &str, map: &str) {
    let of = |name| std::env::var(name).unwrap_or_default();
    let directory = of("CARGO_MANIFEST_DIR");
    println!("cargo::rerun-if-changed={map}");
    println!("cargo::rerun-if-changed=../beside");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,{name}");
    println!("cargo::rustc-cdylib-link-arg=-Wl,--version-script={directory}/{map}");
    lld::ask_for_it();
    if of("CARGO_CFG_TARGET_OS") == "linux" && of("CARGO_CFG_TARGET_ENV") != "musl" {
        let needed = empty(Path::new(&of("OUT_DIR")), &of("RUSTC"), &of("TARGET"), &of("RUSTC_LINKER"));
        println!("cargo::rustc-cdylib-link-arg=-Wl,--no-as-needed");
        println!("cargo::rustc-cdylib-link-arg={}", needed.display());
    }
}

/// An empty library with the name of libibverbs, only for the linker: cargo cannot link with a shared library of the same workspace.
fn empty(out: &Path, rustc: &str, target: &str, linker: &str) -> PathBuf {
    let (source, library) = (out.join("empty.rs"), out.join("libibverbs.so"));
    std::fs::write(&source, "").expect("the build's own directory can be written");
    let mut command = Command::new(rustc);
    command.args(["--crate-type", "cdylib", "--target", target, "-C", "panic=abort"]);
    command.args(["-C", "link-arg=-Wl,-soname,libibverbs.so.1"]);
    if !linker.is_empty() {
        command.arg("-C").arg(format!("linker={linker}"));
    }
    let status = command.arg("-o").arg(&library).arg(&source).status().expect("rustc runs");
    assert!(status.success(), "an empty library could not be linked");
    library
}
