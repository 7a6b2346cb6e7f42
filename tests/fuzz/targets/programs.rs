#![no_main]

use uverbs_random::alone::{self, How};
use uverbs_random::generate::{self, Lean};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let program = generate::from_bytes(data, Lean::Any);
    if let Some((at, what)) = alone::wrong(&program, How::Alone) {
        panic!("step {}: {what}\n{program}", at + 1);
    }
});
