//! What the linker is told.

#[path = "../beside/link.rs"]
mod link;

fn main() {
    link::link("libefa.so.1", "efa.map");
}
