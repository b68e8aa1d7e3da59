//! What the command and its guard say to each other: a line each, over a pair of sockets.

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::str::FromStr;

/// From the command to its guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// The lock is held until this uptime, in nanoseconds.
    Until(u64),
    /// Hand this signal on.
    Signal(i32),
    /// Somebody else may hold: kill at once.
    Kill,
}

/// From the guard to the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Report {
    /// CMD has this process id, which is that of its group, too.
    Started(i32),
    /// CMD was stopped, as by Ctrl-Z.
    Stopped,
    /// CMD has ended with this exit code, and its group is gone.
    Ended(u8),
    /// The same, after the guard had to end it.
    Stricken(u8),
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Until(nanos) => writeln!(f, "until {nanos}"),
            Self::Signal(signal) => writeln!(f, "signal {signal}"),
            Self::Kill => writeln!(f, "kill 0"),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Started(pid) => writeln!(f, "started {pid}"),
            Self::Stopped => writeln!(f, "stopped 0"),
            Self::Ended(code) => writeln!(f, "ended {code}"),
            Self::Stricken(code) => writeln!(f, "stricken {code}"),
        }
    }
}

fn split(line: &str) -> io::Result<(&str, &str)> {
    line.split_once(' ').ok_or_else(|| garbled(line))
}

fn number<T: FromStr>(text: &str) -> io::Result<T> {
    text.parse().map_err(|_| garbled(text))
}

fn garbled(text: &str) -> io::Error {
    io::Error::other(format!("{text:?} is no word between command and guard"))
}

impl FromStr for Order {
    type Err = io::Error;

    fn from_str(line: &str) -> io::Result<Self> {
        Ok(match split(line)? {
            ("until", nanos) => Self::Until(number(nanos)?),
            ("signal", signal) => Self::Signal(number(signal)?),
            ("kill", _) => Self::Kill,
            _ => return Err(garbled(line)),
        })
    }
}

impl FromStr for Report {
    type Err = io::Error;

    fn from_str(line: &str) -> io::Result<Self> {
        Ok(match split(line)? {
            ("started", pid) => Self::Started(number(pid)?),
            ("stopped", _) => Self::Stopped,
            ("ended", code) => Self::Ended(number(code)?),
            ("stricken", code) => Self::Stricken(number(code)?),
            _ => return Err(garbled(line)),
        })
    }
}

/// Hands an open file over; the guard's own stdin is the socket.
pub(crate) fn send_file(socket: impl AsFd, file: impl AsFd) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut files = SendAncillaryBuffer::new(&mut space);
    let file = [file.as_fd()];
    files.push(SendAncillaryMessage::ScmRights(&file));
    sendmsg(
        socket,
        &[IoSlice::new(b"f")],
        &mut files,
        SendFlags::empty(),
    )?;
    Ok(())
}

pub(crate) fn receive_file(socket: impl AsFd) -> io::Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut files = RecvAncillaryBuffer::new(&mut space);
    #[cfg(target_os = "linux")]
    let flags = RecvFlags::CMSG_CLOEXEC;
    #[cfg(not(target_os = "linux"))]
    let flags = RecvFlags::empty();
    let mut byte = [0];
    recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut files, flags)?;
    let file = files.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    file.ok_or_else(|| io::Error::other("the command has not handed over its stdin"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_come_back_as_they_were_said() {
        for order in [Order::Until(u64::MAX), Order::Signal(15), Order::Kill] {
            let line = order.to_string();
            assert_eq!(line.trim_end().parse::<Order>().unwrap(), order);
        }
        for report in [
            Report::Started(7),
            Report::Stopped,
            Report::Ended(255),
            Report::Stricken(137),
        ] {
            let line = report.to_string();
            assert_eq!(line.trim_end().parse::<Report>().unwrap(), report);
        }
        assert!("kill".parse::<Order>().is_err());
        assert!("ended 256".parse::<Report>().is_err());
    }
}
