//! The command `etcd-lock`, as a shell meets it: the real program on a real etcd.

mod codes;
mod crashes;
mod documented;
mod elections;
mod input;
mod losing;
mod signals;
mod tls;
mod tool;
mod views;
mod waiting;
