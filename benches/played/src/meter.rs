//! Measures what a program does between two calls of `getppid`, which nothing else calls there: the first call begins, and returns 0. The
//! second ends, and returns the instructions, or the cycles if the environment has `PLAYED_CLOCK`. The next three return the
//! system calls, the calls of the allocator, and the locked instructions, which wait for all stores before them.
//!
//! Instructions: the processor traps after every one (the trap flag), and a handler counts it, as in `tests/vm/beside/count.h`. Those of
//! this library do not count: a command, which elsewhere is a system call, counts as many as the C library's function has. Cycles are those
//! of the time stamp counter, which runs at one rate whatever the rate of the processor.
//!
//! # Safety
//! The trap flag changes nothing but that a signal is raised after each instruction. The handler accesses only its own statics, which no
//! other thread uses, and what the kernel passes to it. Both counters of the processor exist on every x86-64.

#![allow(unsafe_code)]

use std::arch::asm;
use std::arch::x86_64::{_mm_lfence, _rdtsc};
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

use nix::libc;

/// What was counted.
struct Counted {
    turn: Cell<u32>,
    instructions: Cell<u32>,
    calls: Cell<u32>,
    allocations: Cell<u32>,
    locked: Cell<u32>,
    begun: Cell<u64>,
    /// Where the instructions of this library are.
    own: Cell<(usize, usize)>,
}

// SAFETY: the programs have one thread, and the handler runs in it.
unsafe impl Sync for Counted {}

static COUNTED: Counted = Counted {
    turn: Cell::new(0),
    instructions: Cell::new(0),
    calls: Cell::new(0),
    allocations: Cell::new(0),
    locked: Cell::new(0),
    begun: Cell::new(0),
    own: Cell::new((0, 0)),
};

/// Instructions of `ioctl` and of `write` in the C library (glibc 2.36).
pub(crate) const IOCTL: u32 = 21;
pub(crate) const WRITE: u32 = 7;

const TRAP_FLAG: u64 = 0x100;

fn add(cell: &Cell<u32>, count: bool) {
    cell.set(cell.get() + u32::from(count));
}

/// Counts the instruction before which the processor trapped.
extern "C" fn on_step(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes the context of the interrupted program.
    let at =
        unsafe { (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs[libc::REG_RIP as usize] } as usize;
    let (begin, end) = COUNTED.own.get();
    if (begin..end).contains(&at) {
        return;
    }
    // SAFETY: the next instruction of the program. If it is shorter, the bytes after it are in the same function, or are padding.
    let code = unsafe { (at as *const [u8; 3]).read() };
    add(&COUNTED.instructions, true);
    add(&COUNTED.calls, code[..2] == [0x0f, 0x05]);
    add(&COUNTED.locked, is_locked(code));
    let allocator = [
        libc::malloc as *const () as usize,
        libc::calloc as *const () as usize,
        libc::realloc as *const () as usize,
        libc::free as *const () as usize,
        libc::posix_memalign as *const () as usize,
        libc::aligned_alloc as *const () as usize,
    ];
    add(&COUNTED.allocations, allocator.contains(&at));
}

/// Whether this is `lock`, the full fence, or an exchange with memory, which is locked without the prefix.
fn is_locked(code: [u8; 3]) -> bool {
    let is_exchange = |code: &[u8]| matches!(code[0], 0x86 | 0x87) && code[1] < 0xc0;
    let is_prefix = matches!(code[0], 0x40..=0x4f | 0x66);
    match code {
        [0xf0, ..] | [0x66, 0xf0, _] | [0x0f, 0xae, 0xf0] => true,
        _ => is_exchange(&code) || is_prefix && is_exchange(&code[1..]),
    }
}

/// The addresses of this library's instructions.
fn own() -> Option<(usize, usize)> {
    let here = on_step as *const () as usize;
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    maps.lines().find_map(|line| {
        let (begin, end) = line.split_once(' ')?.0.split_once('-')?;
        let [begin, end] = [begin, end].map(|text| usize::from_str_radix(text, 16).unwrap_or_default());
        (begin..end).contains(&here).then_some((begin, end))
    })
}

fn is_clock() -> bool {
    static IS_CLOCK: OnceLock<bool> = OnceLock::new();
    *IS_CLOCK.get_or_init(|| {
        let is_clock = std::env::var_os("PLAYED_CLOCK").is_some();
        if !is_clock {
            COUNTED
                .own
                .set(own().unwrap_or_else(|| crate::fail("/proc/self/maps does not have this library")));
            // SAFETY: a handler of the form that SA_SIGINFO asks for.
            let is_set = unsafe {
                let mut action: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = on_step as *const () as usize;
                action.sa_flags = libc::SA_SIGINFO;
                libc::sigaction(libc::SIGTRAP, &action, std::ptr::null_mut()) == 0
            };
            if !is_set {
                crate::fail("SIGTRAP cannot be handled");
            }
        }
        is_clock
    })
}

/// The counter after everything before is done, and before anything after begins.
#[inline(always)]
fn cycles() -> u64 {
    // SAFETY: see above.
    unsafe {
        _mm_lfence();
        let now = _rdtsc();
        _mm_lfence();
        now
    }
}

/// Does the device's part of a command that the program sends while it is measured: only the call itself counts, with so many instructions.
pub(crate) fn apart<T>(instructions: u32, work: impl FnOnce() -> T) -> T {
    if COUNTED.turn.get() != 1 {
        return work();
    }
    if is_clock() {
        let begun = cycles();
        let answer = work();
        COUNTED.begun.set(COUNTED.begun.get() + cycles() - begun);
        return answer;
    }
    // SAFETY: see above.
    unsafe { asm!("pushfq", "and qword ptr [rsp], {}", "popfq", const !TRAP_FLAG as i32) };
    let answer = work();
    add(&COUNTED.calls, true);
    COUNTED.instructions.set(COUNTED.instructions.get() + instructions);
    // SAFETY: see above.
    unsafe { asm!("pushfq", "or qword ptr [rsp], {}", "popfq", const TRAP_FLAG as i32) };
    answer
}

/// In place of libc's function, which no library calls.
#[unsafe(no_mangle)]
extern "C" fn getppid() -> libc::pid_t {
    let turn = COUNTED.turn.get();
    if turn == 1 {
        if !is_clock() {
            // SAFETY: see above.
            unsafe { asm!("pushfq", "and qword ptr [rsp], {}", "popfq", const !TRAP_FLAG as i32) };
            COUNTED.turn.set(2);
            return COUNTED.instructions.get() as libc::pid_t;
        }
        let now = cycles();
        COUNTED.turn.set(2);
        return (now - COUNTED.begun.get()) as libc::pid_t;
    }
    COUNTED.turn.set((turn + 1) % 5);
    match turn {
        0 if is_clock() => {
            COUNTED.begun.set(cycles());
            0
        }
        0 => {
            for cell in [&COUNTED.instructions, &COUNTED.calls, &COUNTED.allocations, &COUNTED.locked] {
                cell.set(0);
            }
            // SAFETY: see above.
            unsafe { asm!("pushfq", "or qword ptr [rsp], {}", "popfq", const TRAP_FLAG as i32) };
            0
        }
        2 => COUNTED.calls.get() as libc::pid_t,
        3 => COUNTED.allocations.get() as libc::pid_t,
        _ => COUNTED.locked.get() as libc::pid_t,
    }
}
