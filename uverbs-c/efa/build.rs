//! Options for the linker.

#[path = "../beside/link.rs"]
mod link;

fn main() {
    link::link("libefa.so.1", "efa.map");
}
