//! Names that jump into libibverbs.so.1. A label and a jump: the assembly has no other effect.

/// Nothing here panics.
#[cfg(panic = "abort")]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

/// Names that jump to the same target.
macro_rules! names {
    ($to:ident => $($name:ident)*) => {
        $(core::arch::global_asm!(
            concat!(".globl ", stringify!($name)),
            concat!(".type ", stringify!($name), ",@function"),
            concat!(stringify!($name), ": ", jump!($to)),
            concat!(".size ", stringify!($name), ",.-", stringify!($name)),
        );)*
    };
}

#[cfg(target_arch = "x86_64")]
macro_rules! jump {
    ($to:ident) => {
        concat!("jmp qword ptr [rip + ", stringify!($to), "@GOTPCREL]")
    };
}

#[cfg(target_arch = "aarch64")]
macro_rules! jump {
    ($to:ident) => {
        concat!(
            "adrp x16, :got:",
            stringify!($to),
            "\nldr x16, [x16, :got_lo12:",
            stringify!($to),
            "]\nbr x16"
        )
    };
}
