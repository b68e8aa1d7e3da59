//! Durations as etcd people write them: `10s`, `1m30s`, `500ms`; a plain number counts seconds.

use std::time::Duration;

const UNITS: [(&str, f64); 6] = [
    ("ns", 1e-9),
    ("us", 1e-6),
    ("ms", 1e-3),
    ("s", 1.0),
    ("m", 60.0),
    ("h", 3600.0),
];

const ADVICE: &str = "give it as in 10s, 1m30s or 500ms";

pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let seconds = match text.parse::<f64>() {
        Ok(seconds) => seconds,
        Err(_) => sum(text).ok_or(ADVICE)?,
    };
    Duration::try_from_secs_f64(seconds).map_err(|_| ADVICE.to_owned())
}

/// The sum of its parts, in seconds.
fn sum(mut text: &str) -> Option<f64> {
    let mut sum = 0.0;
    if text.is_empty() {
        return None;
    }
    while !text.is_empty() {
        let number = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, rest) = text.split_at(number);
        let unit = rest.find(|c: char| c.is_ascii_digit() || c == '.');
        let (unit, rest) = rest.split_at(unit.unwrap_or(rest.len()));
        let (_, seconds) = UNITS.iter().find(|(name, _)| *name == unit)?;
        sum += number.parse::<f64>().ok()? * seconds;
        text = rest;
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_go_writes_them() {
        for (text, milliseconds) in [
            ("10s", 10_000),
            ("1m30s", 90_000),
            ("500ms", 500),
            ("1.5s", 1_500),
            ("2h", 7_200_000),
            ("30", 30_000),
            ("0", 0),
        ] {
            let read = parse(text).unwrap();
            assert_eq!(read, Duration::from_millis(milliseconds), "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_is_refused_with_advice() {
        for text in ["", "s", "10x", "-1", "-1s", "1s5", "inf", "NaN", "10 s"] {
            assert_eq!(parse(text).unwrap_err(), ADVICE, "{text:?}");
        }
    }
}
