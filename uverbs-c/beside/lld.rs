//! The linker that rustc brings, where rustc itself takes the system's: on x86_64 before 1.90, and on other processors.

use std::path::Path;
use std::process::Command;

/// rustc gives the linker a script of versions of its own beside ours. lld takes both, GNU ld refuses the second ("anonymous version tag cannot be combined with
/// other version tags").
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
