//! The functions of the driver libraries that belong to this one (`../mlx5/`, `../efa/`), which only jump here.

pub(crate) mod efa;
pub(crate) mod mlx5;
pub(crate) mod rings;

pub(crate) use uverbs::mlx5::MatchedFlow;
pub(crate) use uverbs::mlx5::devx::{Umem, UmemRange};

pub(crate) use self::efa::{CqPart, QpPart};
pub(crate) use self::mlx5::{Reserved, address_vector, destroy_flow_action, has_devx};
