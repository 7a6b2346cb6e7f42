//! What the libraries of drivers offer that go with this one, for programs that call them: those only pass on (`../mlx5/`, `../efa/`).

pub(crate) mod efa;
pub(crate) mod mlx5;

pub(crate) use self::efa::{CqPart, QpPart};
