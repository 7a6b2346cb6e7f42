//! What the linker is told: the library's name, and the versions of its symbols.

fn main() {
    let directory = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    println!("cargo::rerun-if-changed=ibverbs.map");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libibverbs.so.1");
    println!("cargo::rustc-cdylib-link-arg=-Wl,--version-script={directory}/ibverbs.map");
}
