//! The arguments of the command, and its help.

use crate::{duration, exit};
use clap::{Args, Parser, Subcommand};
use etcd_lock::FencingToken;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// Locks and elections on etcd: run commands under them, see who holds and who waits.
///
/// Stands in one line with `etcdctl lock`, `etcdctl elect` and Go's concurrency package.
#[derive(Parser, Debug)]
#[command(name = "etcd-lock", version, after_help = exit::HELP, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) etcd: Etcd,
    /// Tell on stderr what happens to the lock.
    #[arg(short, long, global = true)]
    pub(crate) verbose: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Where etcd is and who we are: as etcdctl has it.
#[derive(Args, Debug)]
#[command(next_help_heading = "etcd (flags go before variables)")]
pub(crate) struct Etcd {
    /// Members of the cluster; name all of them.
    #[arg(long, global = true, env = "ETCDCTL_ENDPOINTS", value_name = "URL,…")]
    #[arg(value_delimiter = ',', default_value = "127.0.0.1:2379")]
    pub(crate) endpoints: Vec<String>,
    /// Trust servers that this CA vouches for; by default, those that the system trusts.
    #[arg(long, global = true, env = "ETCDCTL_CACERT", value_name = "FILE")]
    pub(crate) cacert: Option<PathBuf>,
    /// Certificate to show to etcd; with --key.
    #[arg(long, global = true, env = "ETCDCTL_CERT", value_name = "FILE")]
    pub(crate) cert: Option<PathBuf>,
    /// Its private key.
    #[arg(long, global = true, env = "ETCDCTL_KEY", value_name = "FILE")]
    pub(crate) key: Option<PathBuf>,
    /// User of etcd; a password may follow a colon, unless there is --password.
    #[arg(
        long,
        global = true,
        env = "ETCDCTL_USER",
        value_name = "NAME[:PASSWORD]"
    )]
    #[arg(hide_env_values = true)]
    pub(crate) user: Option<Secret>,
    /// Its password; the variable is not seen by others, the flag is.
    #[arg(long, global = true, env = "ETCDCTL_PASSWORD", value_name = "PASSWORD")]
    #[arg(hide_env_values = true)]
    pub(crate) password: Option<Secret>,
    /// How long to try to connect to a member.
    #[arg(long, global = true, env = "ETCDCTL_DIAL_TIMEOUT", value_name = "TIME")]
    #[arg(default_value = "2s", value_parser = duration::parse)]
    pub(crate) dial_timeout: Duration,
    /// How long `ls`, `queue` and `break` may take.
    #[arg(
        long,
        global = true,
        env = "ETCDCTL_COMMAND_TIMEOUT",
        value_name = "TIME"
    )]
    #[arg(default_value = "5s", value_parser = duration::parse)]
    pub(crate) command_timeout: Duration,
}

/// What must not be shown.
#[derive(Clone)]
pub(crate) struct Secret(pub(crate) String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(text)
    }
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    Run(Run),
    Elect(Elect),
    Observe(Observe),
    Ls(Ls),
    Queue(Queue),
    Break(Break),
}

/// Run a command under a lock.
///
/// Waits for the lock, runs CMD, releases when all that CMD has started has ended, and ends with
/// CMD's exit code. It says nothing itself if all goes well.
#[derive(Args, Debug)]
#[command(after_help = RUN)]
pub(crate) struct Run {
    /// Name of the lock, as in jobs/nightly.
    pub(crate) name: String,
    /// Give up if the turn has not come after this time.
    #[arg(long, value_name = "TIME", value_parser = duration::parse, conflicts_with = "skip")]
    pub(crate) wait: Option<Duration>,
    /// Do not wait at all: give up if anybody holds it.
    #[arg(long)]
    pub(crate) skip: bool,
    /// What others see of us in the queue [default: host and process id]
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<String>,
    #[command(flatten)]
    pub(crate) lease: Lease,
    /// The command and its arguments.
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Args, Debug)]
pub(crate) struct Lease {
    /// How long others wait after a crash.
    #[arg(long, value_name = "TIME", value_parser = duration::parse, default_value = "10s")]
    pub(crate) ttl: Duration,
    /// How long CMD may take to end when the lock is lost; at most 2/5 of the TTL [default: TTL/5]
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    pub(crate) grace: Option<Duration>,
}

/// Run a command while leading, or just lead.
///
/// Campaigns, and runs CMD once it leads, as `run` does. Without CMD it says so and leads until
/// a signal comes.
#[derive(Args, Debug)]
#[command(after_help = ELECT)]
pub(crate) struct Elect {
    /// Name of the election, as in services/billing.
    pub(crate) name: String,
    /// What others see of us when we lead, an address for example [default: host and process id]
    #[arg(long, value_name = "TEXT")]
    pub(crate) value: Option<String>,
    /// Give up if it does not lead after this time.
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    pub(crate) wait: Option<Duration>,
    #[command(flatten)]
    pub(crate) lease: Lease,
    /// Without CMD, say that it leads as a JSON object.
    #[arg(long)]
    pub(crate) json: bool,
    /// The command and its arguments.
    #[arg(last = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

/// Show who leads, now and whenever that changes.
///
/// A line for each leader, and one while nobody leads, until a signal comes.
#[derive(Args, Debug)]
#[command(after_help = OBSERVE)]
pub(crate) struct Observe {
    /// Name of the election.
    pub(crate) name: String,
    /// A JSON object for each line: name, and null or key, value, token and lease of the leader.
    #[arg(long)]
    pub(crate) json: bool,
}

/// List the locks that are held, with holder and number of waiters.
///
/// Elections and the locks of other clients are listed, too.
#[derive(Args, Debug)]
#[command(after_help = LS)]
pub(crate) struct Ls {
    /// Names that begin like this; all, if there is none. Needs to be read by the user.
    #[arg(default_value = "")]
    pub(crate) prefix: String,
    /// A JSON object for each line: name, holder, token, waiters.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Show who holds a lock and who waits for it, in order.
#[derive(Args, Debug)]
#[command(after_help = QUEUE)]
pub(crate) struct Queue {
    /// Name of the lock.
    pub(crate) name: String,
    /// A JSON object for each line.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Take a lock away from its holder, if it still is that hold.
///
/// The next one holds at once, and the old one hears of it only afterwards. Stop its process
/// instead, if you can.
#[derive(Args, Debug)]
#[command(after_help = BREAK)]
pub(crate) struct Break {
    /// Name of the lock.
    pub(crate) name: String,
    /// The token of the hold that is meant, as `queue` shows it.
    #[arg(long, value_name = "TOKEN")]
    pub(crate) if_token: FencingToken,
}

const RUN: &str = "\
CMD's environment:
  ETCD_LOCK_NAME   the lock's name
  ETCD_LOCK_KEY    our key in etcd
  ETCD_LOCK_TOKEN  the fencing token: larger for every next holder; take it to what CMD writes

CMD and all it starts are a process group of their own. INT, TERM, HUP, QUIT, USR1 and USR2 are
handed on to it. If etcd is not heard of in time, the group gets TERM, and KILL after --grace,
before etcd can let anybody else hold. If the key is deleted or the lease revoked by hand, somebody
else may hold already: KILL at once. The same if this command crashes; if it is stopped for longer
than the lock is certain, TERM and KILL come in time. What has left the group, as daemons do, is
not waited for, but killed on a loss, on Linux. What runs as another user cannot be killed.

At a terminal, CMD has it if both stdin and stdout are there. A job that is stopped (Ctrl-Z) is
not renewed: it is killed when its time is over.

Exit codes:
  that of CMD, if the lock was held all the time; 128 + N if signal N ended it
  123  lost: CMD was stopped, and somebody else may hold it now
  124  not had: busy (--skip), or no turn in time (--wait)
  125  wrong usage, or etcd cannot be reached or refuses
  126  CMD was found and cannot be run
  127  CMD was not found
  128 + N  signal N ended the wait

Example:
  etcd-lock run --wait 30s jobs/nightly -- ./report.sh --all";

const ELECT: &str = "\
CMD's environment, its group, losses, the terminal and exit codes are as with `run`.

Examples:
  etcd-lock elect services/billing --value 10.0.0.7:8080 -- ./billing
  etcd-lock elect services/billing";

const OBSERVE: &str = "\
Exit codes:
  125  wrong usage, or etcd cannot be reached or refuses
  128 + N  signal N ended it

Example:
  etcd-lock observe services/billing";

const LS: &str = "\
Exit codes:
  0    done, even if there are none
  125  wrong usage, or etcd cannot be reached or refuses

Example:
  etcd-lock ls jobs/";

const QUEUE: &str = "\
Exit codes:
  0    done, even if nobody holds it
  125  wrong usage, or etcd cannot be reached or refuses

Example:
  etcd-lock queue jobs/nightly";

const BREAK: &str = "\
Exit codes:
  0    that hold is broken
  124  that hold is over; nothing was done
  125  wrong usage, or etcd cannot be reached or refuses

Example:
  etcd-lock break jobs/nightly --if-token 4711";
