//! The linker that comes with rustc, for targets where rustc uses the system's: x86_64 before 1.90, and other processors.

use std::path::Path;
use std::process::Command;

/// rustc passes a version script of its own to the linker, besides ours. lld accepts both; GNU ld refuses the second ("anonymous version
/// tag cannot be combined with other version tags").
pub(crate) fn ask_for_it() {
    let of = |name| std::env::var(name).unwrap_or_default();
    if of("CARGO_CFG_TARGET_OS") != "linux" {
        return;
    }
    let sysroot = Command::new(of("RUSTC")).args(["--print", "sysroot"]).output().expect("rustc runs").stdout;
    let sysroot = String::from_utf8(sysroot).expect("a path in UTF-8");
    let directory = Path::new(sysroot.trim()).join("lib/rustlib").join(of("HOST")).join("bin/gcc-ld");
    if directory.join("ld.lld").exists() {
        println!("cargo::rustc-cdylib-link-arg=-B{}", directory.display());
    } else {
        println!(
            "cargo::warning=this Rust brings no lld ({}), so the system's is taken; GNU ld cannot link this library",
            directory.display()
        );
    }
    println!("cargo::rustc-cdylib-link-arg=-fuse-ld=lld");
}
