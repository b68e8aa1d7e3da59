//! Over TLS with a client certificate, by flags and by etcdctl's variables.

use super::tool::{code, complaint, finish, output, program, stdout};
use crate::support::{Pki, Setup, soon_nothing};

#[tokio::test]
async fn certificates_are_taken_from_flags_and_from_the_variables_of_etcdctl() {
    let pki = Pki::new();
    let etcd = Setup::default().tls(&pki).one().await;
    let endpoint = etcd.https_endpoint();
    let anna = pki.sign("anna");
    let text = |path: &std::path::Path| path.to_str().unwrap().to_owned();
    let (ca, cert, key) = (text(&pki.ca()), text(&anna.cert), text(&anna.key));
    let run = ["run", "a", "--", "sh", "-c", "echo $ETCD_LOCK_NAME"];

    let flags = ["--cacert", &*ca, "--cert", &*cert, "--key", &*key];
    let ran = output(&endpoint, &[&flags[..], &run].concat()).await;
    assert_eq!((code(&ran), stdout(&ran)), (0, "a\n"), "{ran:?}");

    let mut command = program(&endpoint, &run);
    command.envs([
        ("ETCDCTL_CACERT", &ca),
        ("ETCDCTL_CERT", &cert),
        ("ETCDCTL_KEY", &key),
    ]);
    let ran = finish(command).await;
    assert_eq!((code(&ran), stdout(&ran)), (0, "a\n"), "{ran:?}");

    // Nothing to show, and nobody to trust; each is tried for ten seconds.
    let silent = [&["--cacert", &*ca][..], &run].concat();
    let distrustful = [&["--cert", &*cert, "--key", &*key][..], &run].concat();
    let (silent, distrustful) =
        tokio::join!(output(&endpoint, &silent), output(&endpoint, &distrustful));
    for ran in [silent, distrustful] {
        assert_eq!(code(&ran), 125, "{ran:?}");
        let said = complaint(&ran);
        assert!(said.contains("certificate"), "{said}");
    }
    soon_nothing(&etcd.client().await).await;
}
