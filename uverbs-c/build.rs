//! What the linker is told: the library's name, the versions of its symbols, that it needs no libgcc_s, and what the archive has for musl.

use std::path::Path;
use std::process::Command;

#[path = "beside/lld.rs"]
mod lld;

fn main() {
    let of = |name| std::env::var(name).unwrap_or_default();
    let directory = of("CARGO_MANIFEST_DIR");
    println!("cargo::rerun-if-changed=ibverbs.map");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libibverbs.so.1");
    // What is open goes on when the library is closed, as with libibverbs, which stays for the drivers' libraries.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // Functions with the same code are there once, which leaves out 6 kB. Nothing here compares addresses of functions.
    println!("cargo::rustc-cdylib-link-arg=-Wl,--icf=all");
    println!("cargo::rustc-cdylib-link-arg=-Wl,--version-script={directory}/ibverbs.map");
    lld::ask_for_it();

    if of("CARGO_CFG_TARGET_ENV") == "musl" {
        // The standard library asks for an unwinder, and rustc leaves its own out of archives. A compiler for glibc with musl's
        // headers and libraries, as Debian's musl-gcc, has none that links: its libgcc_eh asks glibc.
        let sysroot =
            Command::new(of("RUSTC")).args(["--print", "sysroot"]).output().expect("rustc runs").stdout;
        let sysroot = String::from_utf8(sysroot).expect("a path in UTF-8");
        let directory =
            Path::new(sysroot.trim()).join("lib/rustlib").join(of("TARGET")).join("lib/self-contained");
        // A distribution that is built with musl has another compiler, and a Rust that keeps none.
        if directory.join("libunwind.a").exists() {
            println!("cargo::rustc-link-search=native={}", directory.display());
            println!("cargo::rustc-link-lib=static=unwind");
        }
    }
    if of("CARGO_CFG_TARGET_OS") == "linux" && of("CARGO_CFG_TARGET_ENV") == "gnu" {
        // The standard library asks for libgcc_s, for unwinding. What the linker finds first under that name is this script,
        // by which it takes the static library instead: else every process looks for the shared one and maps it, with ten
        // system calls.
        let out = of("OUT_DIR");
        let script = Path::new(&out).join("libgcc_s.so");
        std::fs::write(script, "INPUT(-lgcc_eh -lgcc)\n").expect("the build's own directory can be written");
        println!("cargo::rustc-link-search=native={out}");
    }
}
