//! Units: memory is bytes in code and MiB in reports; a MiB is 2^20 bytes. Durations are whole seconds.

/// Bytes in one MiB.
pub const MIB: u64 = 1 << 20;

/// Bytes as MiB. Exact for every size below 8 PiB, because the divisor is a power of two.
pub fn mib(bytes: u64) -> f64 {
    bytes as f64 / MIB as f64
}

/// Why a text is not a size or a duration, as the end of a sentence about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    /// Not a number followed by a unit.
    #[error("is not a number with a unit")]
    Malformed,
    /// A number, and nothing that says of what.
    #[error("has no unit")]
    NoUnit,
    /// The unit is none of those known.
    #[error("has an unknown unit")]
    UnknownUnit,
    /// Does not fit.
    #[error("is too large")]
    TooLarge,
}

/// The units of memory, largest first within a family. One letter means the binary unit, as in Slurm.
const MEMORY: [(&str, u64); 14] = [
    ("tib", 1 << 40),
    ("gib", 1 << 30),
    ("mib", 1 << 20),
    ("kib", 1 << 10),
    ("t", 1 << 40),
    ("g", 1 << 30),
    ("m", 1 << 20),
    ("k", 1 << 10),
    ("tb", 1_000_000_000_000),
    ("gb", 1_000_000_000),
    ("mb", 1_000_000),
    ("kb", 1_000),
    ("b", 1),
    ("bytes", 1),
];

/// The units of time, in seconds.
const TIME: [(&str, u64); 4] = [("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)];

/// Bytes from `80GiB`, `1.5 GiB`, `512M`, `40GB` or `1048576`. Fractions of a byte are dropped.
///
/// # Errors
/// [`UnitError`] when the text is no size.
pub fn parse_bytes(text: &str) -> Result<u64, UnitError> {
    let text = text.trim();
    let (number, unit) = split_unit(text);
    let factor = if unit.is_empty() {
        1
    } else {
        let unit = unit.to_ascii_lowercase();
        MEMORY.iter().find(|(name, _)| *name == unit).ok_or(UnitError::UnknownUnit)?.1
    };
    scaled(number, factor)
}

/// A size in its largest binary unit that shows it exactly: `80 GiB`, `1.5 GiB`, `8519680 B`.
pub fn format_bytes(bytes: u64) -> String {
    for (unit, factor) in [("TiB", 1_u64 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)] {
        // Halves and quarters read well; anything finer is left to the next smaller unit.
        if bytes >= factor && bytes.is_multiple_of(factor / 4) {
            let quarters = ["", ".25", ".5", ".75"][usize::try_from(bytes % factor / (factor / 4)).unwrap_or(0)];
            return format!("{}{quarters} {unit}", bytes / factor);
        }
    }
    format!("{bytes} B")
}

/// Seconds from `90s`, `10m`, `1h30m`, `2d`, or Slurm's `MM:SS`, `HH:MM:SS`, `D-HH`, `D-HH:MM` and `D-HH:MM:SS`.
///
/// A bare number is refused: Slurm would take it for minutes, everybody else for seconds.
///
/// # Errors
/// [`UnitError`] when the text is no duration.
pub fn parse_duration(text: &str) -> Result<u64, UnitError> {
    let text = text.trim();
    if text.contains([':', '-']) { clock(text) } else { with_units(text) }
}

/// A duration as Slurm reads it: `00:10:00`, `1-02:00:00`.
pub fn format_slurm_time(seconds: u64) -> String {
    let (days, hours, minutes, seconds) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60);
    let clock = format!("{hours:02}:{minutes:02}:{seconds:02}");
    if days > 0 { format!("{days}-{clock}") } else { clock }
}

/// A duration as a person reads it: `1h30m`, `45s`.
pub fn format_duration(seconds: u64) -> String {
    let mut rest = seconds;
    let mut text = String::new();
    for (unit, factor) in TIME {
        if rest >= factor {
            text.push_str(&(rest / factor).to_string());
            text.push_str(unit);
            rest %= factor;
        }
    }
    if text.is_empty() { "0s".to_owned() } else { text }
}

fn split_unit(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_').unwrap_or(text.len());
    (&text[..end], text[end..].trim_start())
}

/// `number * factor` in whole units, without the rounding of floating point.
fn scaled(number: &str, factor: u64) -> Result<u64, UnitError> {
    let digits: String = number.chars().filter(|c| *c != '_').collect();
    let (whole, fraction) = digits.split_once('.').unwrap_or((&digits, ""));
    if whole.is_empty() || fraction.contains('.') || (number.ends_with('.')) {
        return Err(UnitError::Malformed);
    }
    // More digits than these are below a byte of the largest unit.
    let fraction = &fraction[..fraction.len().min(15)];
    let whole = whole.parse::<u64>().map_err(|_| UnitError::TooLarge)?;
    let part = if fraction.is_empty() {
        0
    } else {
        let numerator = fraction.parse::<u128>().map_err(|_| UnitError::Malformed)?;
        let places = u32::try_from(fraction.len()).map_err(|_| UnitError::Malformed)?;
        u64::try_from(numerator * u128::from(factor) / 10_u128.pow(places)).map_err(|_| UnitError::TooLarge)?
    };
    whole.checked_mul(factor).and_then(|bytes| bytes.checked_add(part)).ok_or(UnitError::TooLarge)
}

fn with_units(text: &str) -> Result<u64, UnitError> {
    let mut rest = text;
    let mut total = 0_u64;
    if rest.is_empty() {
        return Err(UnitError::Malformed);
    }
    while !rest.is_empty() {
        let (number, tail) = split_unit(rest);
        if number.is_empty() {
            return Err(UnitError::Malformed);
        }
        let end = tail.find(|c: char| !c.is_alphabetic()).unwrap_or(tail.len());
        let unit = tail[..end].to_ascii_lowercase();
        let factor = match unit.as_str() {
            "" => return Err(UnitError::NoUnit),
            "sec" | "second" | "seconds" => 1,
            "min" | "minute" | "minutes" => 60,
            "hour" | "hours" => 3_600,
            "day" | "days" => 86_400,
            unit => TIME.iter().find(|(name, _)| *name == unit).ok_or(UnitError::UnknownUnit)?.1,
        };
        total = total.checked_add(scaled(number, factor)?).ok_or(UnitError::TooLarge)?;
        rest = tail[end..].trim_start();
    }
    Ok(total)
}

fn clock(text: &str) -> Result<u64, UnitError> {
    let (days, rest) = match text.split_once('-') {
        Some((days, rest)) => (Some(number(days)?), rest),
        None => (None, text),
    };
    let parts = rest.split(':').map(number).collect::<Result<Vec<_>, _>>()?;
    // After days Slurm counts from hours, without them a pair is minutes and seconds.
    let [hours, minutes, seconds] = match (days, parts.as_slice()) {
        (_, [hours, minutes, seconds]) => [*hours, *minutes, *seconds],
        (Some(_), [hours, minutes]) => [*hours, *minutes, 0],
        (Some(_), [hours]) => [*hours, 0, 0],
        (None, [minutes, seconds]) => [0, *minutes, *seconds],
        _ => return Err(UnitError::Malformed),
    };
    [(days.unwrap_or(0), 86_400), (hours, 3_600), (minutes, 60), (seconds, 1)].into_iter().try_fold(
        0_u64,
        |total, (count, factor)| {
            count.checked_mul(factor).and_then(|more| total.checked_add(more)).ok_or(UnitError::TooLarge)
        },
    )
}

fn number(text: &str) -> Result<u64, UnitError> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(UnitError::Malformed);
    }
    text.parse().map_err(|_| UnitError::TooLarge)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sizes() {
        for (text, bytes) in [
            ("80GiB", 80 << 30),
            ("1.5 GiB", 3 << 29),
            ("512M", 512 << 20),
            ("40GB", 40_000_000_000),
            ("8519680", 8_519_680),
            ("1_024 kib", 1 << 20),
            ("0.1KiB", 102),
        ] {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
        for (text, error) in [
            ("", UnitError::Malformed),
            ("GiB", UnitError::Malformed),
            ("nonsense", UnitError::UnknownUnit),
            ("-1GiB", UnitError::UnknownUnit),
            ("1GiB and more", UnitError::UnknownUnit),
            ("1.2.3G", UnitError::Malformed),
            ("5 parsecs", UnitError::UnknownUnit),
            ("99999999999TiB", UnitError::TooLarge),
        ] {
            assert_eq!(parse_bytes(text), Err(error), "{text}");
        }
    }

    #[test]
    fn durations() {
        for (text, seconds) in [
            ("00:10:00", 600),
            ("10:00", 600),
            ("1-02:00:00", 93_600),
            ("1-02", 93_600),
            ("1-02:30", 95_400),
            ("90s", 90),
            ("10m", 600),
            ("1h30m", 5_400),
            ("1.5h", 5_400),
            ("2 days", 172_800),
        ] {
            assert_eq!(parse_duration(text), Ok(seconds), "{text}");
        }
        for (text, error) in [
            ("10", UnitError::NoUnit),
            ("", UnitError::Malformed),
            ("1:2:3:4", UnitError::Malformed),
            ("soon", UnitError::Malformed),
            ("3 fortnights", UnitError::UnknownUnit),
            ("-5m", UnitError::Malformed),
            ("99999999999999999999d", UnitError::TooLarge),
        ] {
            assert_eq!(parse_duration(text), Err(error), "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(value in 0_u64..1 << 62) {
            prop_assert_eq!(parse_bytes(&format_bytes(value)), Ok(value));
            prop_assert_eq!(parse_duration(&format_slurm_time(value)), Ok(value));
            prop_assert_eq!(parse_duration(&format_duration(value)), Ok(value));
        }

        #[test]
        fn any_text_is_an_answer(text in "\\PC*") {
            let _ = (parse_bytes(&text), parse_duration(&text));
        }
    }
}
