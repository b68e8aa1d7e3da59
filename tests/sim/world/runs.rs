//! Runs of many seeds.
//!
//! `SIM_SEED=7 cargo nextest run --test sim part_0` runs one seed; `SIM_SEEDS=2000` that many, from
//! 1 on or from `SIM_SEED` on (with `--cargo-profile sim`, several times as fast). One that goes
//! wrong leaves its whole story in a file.

use super::World;
use crate::support::env;
use std::path::Path;

/// Runs from the first seed on that are made unless asked otherwise.
const USUALLY: u64 = 16;

/// The tests among which they are divided, so that more of them run at once.
const PARTS: u64 = 8;

/// How much of a story is shown.
const LINES: usize = 60;

fn part(part: u64) {
    let first = env("SIM_SEED").unwrap_or(1);
    let usually = if env("SIM_SEED").is_some() {
        1
    } else {
        USUALLY
    };
    let seeds = env("SIM_SEEDS").unwrap_or(usually);
    for seed in (first + part..first + seeds).step_by(usize::try_from(PARTS).unwrap()) {
        let (story, wrong) = World::run(seed);
        if let Some(wrong) = wrong {
            let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("sim-{seed}"));
            std::fs::write(&file, &story).unwrap();
            let lines: Vec<_> = story.lines().collect();
            let end = lines[lines.len().saturating_sub(LINES)..].join("\n");
            let file = file.display();
            panic!("seed {seed}: {wrong}\n{end}\nThe whole story is in {file}");
        }
    }
}

macro_rules! parts {
    ($($name:ident $part:literal)*) => {
        $(#[test]
        fn $name() {
            part($part);
        })*
    };
}

mod the_promises_hold_whatever_happens {
    use super::part;

    parts! {
        part_0 0 part_1 1 part_2 2 part_3 3 part_4 4 part_5 5 part_6 6 part_7 7
    }
}

/// Also a claim about the library: nothing in it is left to chance but what `fastrand` says.
#[test]
fn a_seed_tells_the_same_story_again() {
    for seed in 1..=5 {
        let (first, again) = (World::run(seed), World::run(seed));
        let differ = first.0.lines().zip(again.0.lines()).find(|(a, b)| a != b);
        assert_eq!(differ, None, "seed {seed}");
        assert_eq!(first, again, "seed {seed}");
    }
}
