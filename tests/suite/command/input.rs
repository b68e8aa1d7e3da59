//! - What cannot work is told in one line, with the code 125, and nothing is run.
//! - An etcd that is not there, or wants a user, too.
//! - A password is never shown.

use super::tool::{code, complaint, finish, output, program};
use crate::support::{Etcd, etcdctl, soon_nothing};

#[tokio::test]
async fn what_cannot_work_is_told_in_one_line() {
    let etcd = Etcd::start().await;
    let good = etcd.endpoint();
    let run = ["run", "a", "--", "echo", "it ran"];
    let with = |args: &[&'static str]| [args, &run[..]].concat();
    for (endpoint, args, advice) in [
        (&*good, vec![], "requires a subcommand"),
        (&good, vec!["run"], "<NAME> <CMD>..."),
        (&good, vec!["run", "a"], "<CMD>..."),
        (&good, vec!["run", "a", "--"], "<CMD>..."),
        (&good, vec!["run", "", "--", "true"], "give the lock a name"),
        (&good, vec!["run", "a/", "--", "true"], "leave the last '/'"),
        (&good, vec!["queue", "a/"], "leave the last '/'"),
        (
            &good,
            vec!["run", "a", "true"],
            "unexpected argument 'true'",
        ),
        (&good, vec!["break", "a"], "--if-token"),
        (&good, vec!["break", "a", "--if-token", "x"], "'x'"),
        (
            &good,
            vec!["run", "--wait", "long", "a", "--", "true"],
            "as in 10s",
        ),
        (
            &good,
            vec!["run", "--ttl", "0", "a", "--", "true"],
            "give 1 s or more",
        ),
        (
            &good,
            vec!["run", "--grace", "5s", "a", "--", "true"],
            "give at most 4s",
        ),
        (
            &good,
            vec!["run", "--wait", "1s", "--skip", "a", "--", "true"],
            "cannot be used with",
        ),
        (
            &good,
            with(&["--cacert", "/nowhere"]),
            "cannot read /nowhere",
        ),
        (&good, with(&["--cert", "/etc/passwd"]), "--cert and --key"),
        (
            &good,
            with(&["--cacert", "/etc/passwd"]),
            "begin --endpoints with https://",
        ),
        (
            &good,
            with(&["--user", "anna"]),
            "a user without a password",
        ),
        (&good, with(&["--password", "secret"]), "give --user"),
        (&good, with(&["--user", "anna:secret"]), "leave --user away"),
        ("", with(&[]), "name at least one member"),
        ("http://[", with(&[]), "give --endpoints as in"),
        ("127.0.0.1:", with(&[]), "has no port"),
    ] {
        let ran = output(endpoint, &args).await;
        let said = complaint(&ran);
        assert!(said.contains(advice), "{args:?}: {said}");
        assert!(!said.contains("secret"), "{said}");
        assert_eq!(code(&ran), 125, "{args:?}: {said}");
        assert!(ran.stdout.is_empty(), "{ran:?}");
    }
    soon_nothing(&etcd.client().await).await;
}

#[tokio::test]
async fn an_etcd_that_is_not_there_is_told() {
    let ran = |args| async move { output("http://127.0.0.1:1", args).await };
    let (observe, run, ls) = tokio::join!(
        ran(&["observe", "a"]),
        ran(&["run", "a", "--", "true"]),
        ran(&["--command-timeout", "1s", "ls"]),
    );
    for ran in [observe, run, ls] {
        assert_eq!(code(&ran), 125);
        let said = complaint(&ran);
        assert!(
            said.contains("is etcd running at --endpoints?")
                || said.contains("is it running at --endpoints?"),
            "{said}"
        );
    }
}

#[tokio::test]
async fn a_user_is_asked_for_and_passwords_are_not_shown() {
    let etcd = Etcd::start().await;
    for args in [
        &["user", "add", "root:a:secret"][..],
        &["user", "grant-role", "root", "root"],
        &["auth", "enable"],
    ] {
        let done = etcdctl(&etcd.endpoint(), args).await;
        assert!(done.status.success(), "{done:?}");
    }
    let run = ["run", "-v", "a", "--", "true"];
    let nobody = output(&etcd.endpoint(), &["run", "a", "--", "true"]).await;
    assert_eq!(code(&nobody), 125);
    let said = complaint(&nobody);
    assert!(said.ends_with("give --user and --password"), "{said}");
    let nobody = output(&etcd.endpoint(), &["ls"]).await;
    assert!(complaint(&nobody).ends_with("give --user and --password"));

    for (user, password, expected) in [
        ("root:a:secret", None, 0),
        ("root", Some("a:secret"), 0),
        ("root", Some("another secret"), 125),
        ("root:other:secret", None, 125),
    ] {
        let mut command = program(&etcd.endpoint(), &run);
        command.env("ETCDCTL_USER", user);
        if let Some(password) = password {
            command.env("ETCDCTL_PASSWORD", password);
        }
        let ran = finish(command).await;
        let said = String::from_utf8_lossy(&ran.stderr);
        assert_eq!(code(&ran), expected, "{said}");
        assert!(!said.contains("secret"), "{said}");
        let advice = ["session opened", "check --user and --password"][usize::from(expected != 0)];
        assert!(said.contains(advice), "{said}");
    }
    // Flags go before variables.
    let mut command = program(&etcd.endpoint(), &["--user", "root:a:secret", "ls"]);
    command.env("ETCDCTL_USER", "other:secret");
    assert_eq!(code(&finish(command).await), 0);
}
