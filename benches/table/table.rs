//! The table: a line for each thing that is measured, printed as soon as it is known.

use crate::Result;
use serde_json::json;

#[derive(Default)]
pub struct Table {
    title: &'static str,
    rows: Vec<serde_json::Value>,
}

impl Table {
    pub fn title(&mut self, title: &'static str) {
        println!("\n{title}");
        self.title = title;
    }

    /// A figure beside its rivals', each with one for every round. The `target` is what the ratios to them, in this order,
    /// are to be.
    pub fn row(
        &mut self,
        what: &str,
        unit: &str,
        ours: &[f64],
        rivals: &[(&str, &[f64])],
        target: &str,
    ) {
        print!("  {what:<44} {:>9} {unit:<5}", number(median(ours)));
        for (name, rounds) in rivals {
            let ratios: Vec<_> = ours
                .iter()
                .zip(*rounds)
                .map(|(ours, theirs)| ours / theirs)
                .collect();
            let (ratio, (low, high)) = (median(&ratios), range(&ratios));
            print!("  {ratio:>6.2} x {name} ({low:.2} to {high:.2})");
        }
        println!("  [{target}]");
        let rivals = rivals
            .iter()
            .map(|(name, rounds)| json!({ "name": name, "median": median(rounds) }));
        let rivals: Vec<_> = rivals.collect();
        self.rows.push(json!({
            "title": self.title, "what": what, "unit": unit, "ours": median(ours), "rivals": rivals
        }));
    }

    /// A figure that has no rival.
    pub fn figure(&mut self, what: &str, unit: &str, ours: f64, target: &str) {
        self.row(what, unit, &[ours], &[], target);
    }

    pub fn save(&self) -> Result<()> {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/target/bench.json");
        std::fs::write(path, serde_json::to_string_pretty(&self.rows)?)?;
        Ok(())
    }
}

fn number(value: f64) -> String {
    if value < 100.0 {
        format!("{value:.2}")
    } else {
        format!("{value:.0}")
    }
}

pub fn median(of: &[f64]) -> f64 {
    part(of, 50)
}

/// The value below which so many percent are.
pub fn part(of: &[f64], percent: usize) -> f64 {
    let mut of = of.to_vec();
    of.sort_unstable_by(f64::total_cmp);
    let at = (of.len() * percent / 100).min(of.len().saturating_sub(1));
    of.get(at).copied().unwrap_or(f64::NAN)
}

fn range(of: &[f64]) -> (f64, f64) {
    let fold = |(low, high): (f64, f64), x: &f64| (low.min(*x), high.max(*x));
    of.iter().fold((f64::MAX, f64::MIN), fold)
}
