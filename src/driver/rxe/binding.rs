//! What bindings to C are told about rxe.

use crate::driver::seam::{Facts, Written, walk};

/// rxe, and the soft device.
#[derive(Debug)]
pub enum Rxe {}

impl Facts for Rxe {
    type Walk = walk::InPlace;

    const WRITTEN: Written = Written::AsBegun;
}
