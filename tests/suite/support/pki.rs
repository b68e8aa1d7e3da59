//! Certificates for etcd and its clients, signed by a CA that lives as long as the test.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
};
use tempfile::TempDir;

/// A CA and the directory of what it has signed.
#[derive(Clone)]
pub struct Pki(Arc<(TempDir, Issuer<'static, KeyPair>)>);

/// Files of a certificate and its key.
pub struct Signed {
    pub cert: PathBuf,
    pub key: PathBuf,
}

impl Pki {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory for certificates");
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let subject = &mut params.distinguished_name;
        subject.push(DnType::CommonName, "a CA of a test");
        let key = KeyPair::generate().unwrap();
        let ca = params.self_signed(&key).unwrap();
        fs::write(dir.path().join("ca.pem"), ca.pem()).unwrap();
        Self(Arc::new((dir, Issuer::new(params, key))))
    }

    /// The CA's certificate.
    pub fn ca(&self) -> PathBuf {
        self.0.0.path().join("ca.pem")
    }

    /// A certificate for a server at that address and nowhere else, or for a client of that name.
    pub fn sign(&self, whom: &str) -> Signed {
        let (dir, ca) = &*self.0;
        let mut params = CertificateParams::new([whom.to_owned()]).unwrap();
        let subject = &mut params.distinguished_name;
        subject.push(DnType::CommonName, whom);
        let both = [
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        params.extended_key_usages = both.into();
        let key = KeyPair::generate().unwrap();
        let cert = params.signed_by(&key, ca).unwrap();
        let signed = Signed {
            cert: dir.path().join(format!("{whom}.pem")),
            key: dir.path().join(format!("{whom}-key.pem")),
        };
        fs::write(&signed.cert, cert.pem()).unwrap();
        fs::write(&signed.key, key.serialize_pem()).unwrap();
        signed
    }
}
