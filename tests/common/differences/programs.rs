//! Where programs of chance (`tests/random`) end otherwise on a device of the kernel's than on the soft device.

/// A version of the kernel.
pub type Version = (u32, u32);

const ALWAYS: Version = (0, 0);
const NEVER: Version = (u32::MAX, 0);

/// A step, with `*` for anything, its ends, and why they differ.
#[derive(Debug)]
pub struct Row {
    pub step: &'static str,
    pub soft: &'static str,
    pub device: &'static str,
    pub from: Version,
    pub below: Version,
    /// The program is the same behind it: what follows is compared.
    pub goes_on: bool,
    /// The kernel's function, and what it does.
    pub why: &'static str,
}

const fn row(step: &'static str, soft: &'static str, device: &'static str, why: &'static str) -> Row {
    Row { step, soft, device, from: ALWAYS, below: NEVER, goes_on: false, why }
}

pub const ON_RXE: &[Row] = &[row(
    "qp * raw* *",
    "ok*",
    "Unsupported EOPNOTSUPP",
    "rxe has no raw packets (`rxe_qp_chk_init`, rxe_qp.c)",
)];

pub const ON_MLX5: &[Row] = &[];
