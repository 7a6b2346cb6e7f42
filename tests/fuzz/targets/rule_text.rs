#![no_main]

#[path = "../bodies/rule_text.rs"]
mod rule_text;

libfuzzer_sys::fuzz_target!(|data: &[u8]| rule_text::run(data));
