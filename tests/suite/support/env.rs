//! What is asked of a test by the environment.

/// A number, such as that of a seed.
pub fn env(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().expect("a number"))
}
