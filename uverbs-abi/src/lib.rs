//! Layouts and numbers of the Linux kernel's uverbs ABI.
#![no_std]
#![forbid(unsafe_code)]
