//! What the linker is told: the library's name, the versions of its symbols, and that it needs no libgcc_s.

use std::path::Path;

fn main() {
    let of = |name| std::env::var(name).unwrap_or_default();
    let directory = of("CARGO_MANIFEST_DIR");
    println!("cargo::rerun-if-changed=ibverbs.map");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libibverbs.so.1");
    println!("cargo::rustc-cdylib-link-arg=-Wl,--version-script={directory}/ibverbs.map");

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
