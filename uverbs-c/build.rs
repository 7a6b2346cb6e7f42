//! Options for the linker: the library's name, the versions of its symbols, that it does not need libgcc_s, and the contents of the
//! archive for musl.

use std::path::Path;
use std::process::Command;

#[path = "beside/lld.rs"]
mod lld;

fn main() {
    let of = |name| std::env::var(name).unwrap_or_default();
    let directory = of("CARGO_MANIFEST_DIR");
    println!("cargo::rerun-if-changed=ibverbs.map");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libibverbs.so.1");
    // Open objects stay usable when the library is closed, as with libibverbs, which stays loaded for its drivers' libraries.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // Functions with the same code are merged, which saves 6 kB. Nothing here compares addresses of functions.
    println!("cargo::rustc-cdylib-link-arg=-Wl,--icf=all");
    println!("cargo::rustc-cdylib-link-arg=-Wl,--version-script={directory}/ibverbs.map");
    lld::ask_for_it();

    if of("CARGO_CFG_TARGET_ENV") == "musl" {
        // The standard library needs an unwinder, and rustc does not put its own into archives. A compiler for glibc with musl's headers
        // and libraries, such as Debian's musl-gcc, has none that can be linked: its libgcc_eh needs glibc.
        let sysroot =
            Command::new(of("RUSTC")).args(["--print", "sysroot"]).output().expect("rustc runs").stdout;
        let sysroot = String::from_utf8(sysroot).expect("a path in UTF-8");
        let directory =
            Path::new(sysroot.trim()).join("lib/rustlib").join(of("TARGET")).join("lib/self-contained");
        // A distribution that is built with musl has another compiler, and its Rust contains no unwinder.
        if directory.join("libunwind.a").exists() {
            println!("cargo::rustc-link-search=native={}", directory.display());
            println!("cargo::rustc-link-lib=static=unwind");
        }
    }
    if of("CARGO_CFG_TARGET_OS") == "linux" && of("CARGO_CFG_TARGET_ENV") == "gnu" {
        // The standard library needs libgcc_s for unwinding. The linker finds this script first under that name, and then uses the static
        // library instead. Otherwise every process would search for the shared library and map it, with ten system calls.
        let out = of("OUT_DIR");
        let script = Path::new(&out).join("libgcc_s.so");
        std::fs::write(script, "INPUT(-lgcc_eh -lgcc)\n").expect("the build's own directory can be written");
        println!("cargo::rustc-link-search=native={out}");
    }
}
