//! The linker that rustc brings, for processors on which rustc takes the system's.

use std::path::Path;
use std::process::Command;

/// rustc gives the linker a script of versions of its own beside ours. lld takes both, GNU ld refuses the second ("anonymous version tag cannot be combined with
/// other version tags"). On x86_64 rustc calls its lld anyway; elsewhere it is asked for here.
pub(crate) fn ask_for_it() {
    let of = |name| std::env::var(name).unwrap_or_default();
    if of("CARGO_CFG_TARGET_OS") != "linux" || of("CARGO_CFG_TARGET_ARCH") == "x86_64" {
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
