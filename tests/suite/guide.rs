//! The guide and the crate's page name tests and examples for what they claim: each of them exists. The SQL that they
//! show is that of the examples, which run it.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

const CHAPTERS: [(&str, &str); 9] = [
    ("faults", include_str!("../../src/guide/faults.md")),
    ("fencing", include_str!("../../src/guide/fencing.md")),
    ("migrating", include_str!("../../src/guide/migrating.md")),
    ("need", include_str!("../../src/guide/need.md")),
    ("operating", include_str!("../../src/guide/operating.md")),
    ("ttl", include_str!("../../src/guide/ttl.md")),
    ("watching", include_str!("../../src/guide/watching.md")),
    ("the index", include_str!("../../src/guide/mod.rs")),
    ("the crate's page", include_str!("../../src/lib.rs")),
];

/// What stands between single backticks, code blocks aside.
fn in_backticks(text: &str) -> impl Iterator<Item = &str> {
    let prose = text.split("```").step_by(2);
    prose.flat_map(|prose| prose.split('`').skip(1).step_by(2))
}

/// Whether it looks like the path of a test: lower-case words with `::` between them. Paths of crates do, too.
fn is_test_path(code: &str) -> bool {
    const CRATES: [&str; 4] = ["crate::", "etcd_lock::", "etcd_client::", "tokio::"];
    let is_lower = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_:".contains(c);
    code.contains("::")
        && code.chars().all(is_lower)
        && !CRATES.iter().any(|name| code.starts_with(name))
}

/// All tests of this suite, as it lists them itself.
fn tests() -> BTreeSet<String> {
    let mut list = Command::new(std::env::current_exe().unwrap());
    let list = list
        .args(["--list", "--format", "terse"])
        .output()
        .unwrap()
        .stdout;
    let list = String::from_utf8(list).unwrap();
    let names = list.lines().filter_map(|line| line.strip_suffix(": test"));
    names.map(str::to_owned).collect()
}

/// Those of the command and of TLS are built with them only.
fn can_exist(name: &&str) -> bool {
    (cfg!(feature = "cli") || !name.starts_with("command::"))
        && (cfg!(feature = "tls") || !name.starts_with("transport::"))
}

#[test]
fn every_test_that_the_guide_names_exists() {
    let tests = tests();
    assert!(tests.contains("guide::every_test_that_the_guide_names_exists"));
    for (chapter, text) in CHAPTERS {
        let named = in_backticks(text).filter(|code| is_test_path(code));
        let named = named.filter(can_exist);
        let gone: Vec<_> = named.filter(|name| !tests.contains(*name)).collect();
        assert!(gone.is_empty(), "{chapter} names {gone:?}");
    }
}

#[test]
fn every_failure_from_the_field_has_its_test() {
    let (tests, simulated) = (tests(), include_str!("../sim/scripted.rs"));
    let page = include_str!("main.rs")
        .split("# Failures from the field")
        .nth(1);
    let page = page.unwrap().split("\n\n").next().unwrap();
    for number in 1..=55 {
        let (from, to) = (
            format!("\n//! {number}. "),
            format!("\n//! {}. ", number + 1),
        );
        let entry = page.split(&from).nth(1).expect(&from);
        let entry = entry.split(&to).next().unwrap();
        let named: Vec<_> = in_backticks(entry)
            .filter(|code| is_test_path(code))
            .collect();
        assert!(!named.is_empty(), "{number} names no test");
        for name in named.into_iter().filter(can_exist) {
            let exists = match name.strip_prefix("sim::scripted::") {
                Some(name) => simulated.contains(&format!("fn {name}()")),
                None => tests.contains(name),
            };
            assert!(exists, "{number} names {name}");
        }
    }
}

#[test]
fn every_example_that_the_guide_names_exists() {
    for (chapter, text) in CHAPTERS {
        let named = in_backticks(text).filter(|code| code.starts_with("examples/"));
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let gone: Vec<_> = named.filter(|name| !root.join(name).exists()).collect();
        assert!(gone.is_empty(), "{chapter} names {gone:?}");
    }
}

#[test]
fn what_is_said_to_be_tested_or_shown_names_a_test_or_an_example() {
    for (chapter, text) in CHAPTERS {
        for (word, is_named) in [
            ("(Tested", is_test_path as fn(&str) -> bool),
            ("(Shown", |code| code.starts_with("examples/")),
        ] {
            for claim in text.split(word).skip(1) {
                let claim = claim.split(')').next().unwrap_or_default();
                let named = in_backticks(claim).any(is_named);
                assert!(named, "{chapter}: {word}{claim}) names nothing");
            }
        }
    }
}

#[test]
fn every_number_in_the_table_of_faults_has_its_tests() {
    let (table, tests) = CHAPTERS[0].1.split_once("# The tests").unwrap();
    let listed = |n: usize| tests.contains(&format!("\n{n}. `"));
    let used = |n: usize| table.contains(&format!("<sup>{n}</sup>"));
    let count = (1..100).take_while(|n| listed(*n)).count();
    assert!(count > 0);
    let unused: Vec<_> = (1..=count).filter(|n| !used(*n)).collect();
    assert!(unused.is_empty(), "nothing refers to {unused:?}");
    let unknown: Vec<_> = (count + 1..100).filter(|n| used(*n)).collect();
    assert!(unknown.is_empty(), "no tests for {unknown:?}");
}

/// Without line breaks and indents, of SQL and of string literals alike.
fn in_one_line(text: &str) -> String {
    let words = text.split(|c: char| c.is_whitespace() || c == '\\');
    let words: Vec<_> = words.filter(|word| !word.is_empty()).collect();
    words.join(" ")
}

/// The statements of all SQL blocks, without comments, and without the mere frame of a transaction.
fn statements(text: &str) -> Vec<String> {
    let text = text.replace("\n//! ", "\n");
    let blocks = text.split("```sql\n").skip(1);
    let sql = blocks.filter_map(|block| block.split("```").next());
    let lines = sql.flat_map(str::lines);
    let lines = lines.filter_map(|line| line.split("--").next());
    let sql = lines.collect::<Vec<_>>().join("\n");
    let statements = sql.split(';').map(in_one_line);
    statements
        .filter(|sql| !["", "BEGIN", "COMMIT"].contains(&sql.as_str()))
        .collect()
}

#[test]
fn the_sql_of_the_guide_is_that_of_the_examples() {
    let examples = in_one_line(concat!(
        include_str!("../../examples/patterns/batch.rs"),
        include_str!("../../examples/patterns/withdrawal.rs"),
        include_str!("../../examples/patterns/writer.rs"),
    ));
    let (mut found, mut strange) = (0, Vec::new());
    for (chapter, text) in CHAPTERS {
        for sql in statements(text) {
            found += 1;
            if !examples.contains(&sql) {
                strange.push((chapter, sql));
            }
        }
    }
    assert!(found >= 7, "{found}");
    assert!(strange.is_empty(), "{strange:#?}");
}
