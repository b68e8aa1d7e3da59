//! - The exit code is the child's; there are four of our own.
//! - The child has the token, the key and the name, and our stdin.
//! - Nothing is said and nothing is left if all goes well.

use etcd_lock::FencingToken;

use super::tool::{code, complaint, output, program, stdout};
use crate::support::{Etcd, Puppet, keys, mutex, session, soon_nothing};

#[tokio::test]
async fn the_exit_code_is_the_childs_and_nothing_is_said_or_left() {
    let etcd = Etcd::start().await;
    for (script, expected) in [
        ("exit 0", 0),
        ("exit 7", 7),
        ("exit 255", 255),
        ("kill -KILL $$", 137),
        ("kill -TERM $$", 143),
    ] {
        let ran = output(&etcd.endpoint(), &["run", "a", "--", "sh", "-c", script]).await;
        assert_eq!(code(&ran), expected, "{script}: {ran:?}");
        assert!(ran.stdout.is_empty() && ran.stderr.is_empty(), "{ran:?}");
    }
    soon_nothing(&etcd.client().await).await;
}

#[tokio::test]
async fn a_ttl_below_what_etcd_grants_does_no_harm() {
    let etcd = Etcd::start().await;
    let args = ["run", "-v", "--ttl", "1s", "a", "--", "true"];
    let ran = output(&etcd.endpoint(), &args).await;
    assert_eq!(code(&ran), 0, "{ran:?}");
    // Of 2 s, then, and the grace as it was.
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(said.contains("ttl=2s margin=400ms"), "{said}");
    soon_nothing(&etcd.client().await).await;
}

#[tokio::test]
async fn a_command_that_cannot_be_run_is_told_with_the_codes_of_env() {
    let etcd = Etcd::start().await;
    for (program, expected) in [("no-such-command", 127), ("/", 126), ("/etc/passwd", 126)] {
        let ran = output(&etcd.endpoint(), &["run", "a", "--", program]).await;
        assert_eq!(code(&ran), expected, "{ran:?}");
        let said = complaint(&ran);
        assert!(said.contains(program), "{said}");
    }
    soon_nothing(&etcd.client().await).await;
}

#[tokio::test]
async fn the_child_has_token_key_name_and_our_stdin() {
    let etcd = Etcd::start().await;
    let client = etcd.client().await;
    let script =
        "echo $ETCD_LOCK_NAME; echo $ETCD_LOCK_KEY; echo $ETCD_LOCK_TOKEN; cat; sleep 1000";
    let inner = format!(
        "echo from stdin | \"{}\" run jobs/nightly -- sh -c '{script}'",
        env!("CARGO_BIN_EXE_etcd-lock")
    );
    let mut shell = std::process::Command::new("sh");
    shell
        .args(["-c", &inner])
        .env("ETCDCTL_ENDPOINTS", etcd.endpoint());
    let mut puppet = Puppet::spawn(&shell);
    assert_eq!(puppet.line().await, "jobs/nightly");
    let key = puppet.line().await;
    assert_eq!(keys(&client, "").await, [&*key]);
    let token: FencingToken = puppet.line().await.parse().unwrap();
    let session = session(client.clone(), 60).await;
    let line = mutex(&session, "jobs/nightly").queue().await.unwrap();
    assert_eq!((&line[0].key, line[0].token), (&key, token));
    assert_eq!(puppet.line().await, "from stdin");
    puppet.process.kill();
    session.close().await.unwrap();
    soon_nothing(&client).await;
}

#[tokio::test]
async fn help_names_flags_variables_and_exit_codes() {
    let help = super::tool::finish(program("", &["run", "--help"])).await;
    assert_eq!(code(&help), 0);
    for word in [
        "--wait",
        "--skip",
        "--ttl",
        "--grace",
        "--label",
        "--cacert",
        "ETCDCTL_PASSWORD",
        "ETCD_LOCK_TOKEN",
        "123 ",
        "124 ",
        "125 ",
        "126 ",
        "127 ",
        "Example:",
    ] {
        assert!(stdout(&help).contains(word), "{word}");
    }
}
