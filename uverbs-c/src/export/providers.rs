//! What the libraries of drivers that go with this one (`../../mlx5/`) jump to.

use super::one;
use crate::convert::{no, nothing, unsupported, unsupported_minus_one, unsupported_object};
use crate::providers::mlx5;

one! {
    uverbs_mlx5_export_sizes => mlx5::export_sizes;
    uverbs_mlx5_query_device => mlx5::query_device;
    uverbs_no => no;
    uverbs_nothing => nothing;
    uverbs_unsupported => unsupported;
    uverbs_unsupported_minus_one => unsupported_minus_one;
    uverbs_unsupported_object => unsupported_object;
}
