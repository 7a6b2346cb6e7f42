//! What bindings to C are told about mlx5.

use crate::driver::seam::{Facts, Written, walk};

/// mlx5.
#[derive(Debug)]
pub enum Mlx5 {}

impl Facts for Mlx5 {
    type Walk = walk::Unread;

    const WRITTEN: Written = Written::Whole;
    const IS_LIKE_LIBMLX5: bool = true;
}
