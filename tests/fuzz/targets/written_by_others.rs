//! Reads keys, labels, tokens and records of ticks as if somebody else had written them.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| etcd_lock::fuzzing::read(bytes));
