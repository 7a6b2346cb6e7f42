//! Options for the linker.

#[path = "../beside/link.rs"]
mod link;

fn main() {
    link::link("libmlx5.so.1", "mlx5.map");
}
