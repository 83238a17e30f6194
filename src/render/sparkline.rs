//! A curve in one line of text.

const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// One character for each value, from zero to the largest; of more than `width` values each character shows the largest of its
/// part. A value that is not finite, or below zero, is as low as zero.
pub fn sparkline(values: &[f64], width: usize) -> String {
    let top = values.iter().copied().filter(|value| value.is_finite()).fold(0.0, f64::max);
    let columns = values.len().min(width.max(1));
    let height = |column: usize| {
        let part = &values[column * values.len() / columns..(column + 1) * values.len() / columns];
        let most = part.iter().copied().filter(|value| value.is_finite()).fold(0.0, f64::max);
        // Of a curve of nothing every part is as low as it gets.
        (1..HEIGHTS.len())
            .rev()
            .find(|step| top > 0.0 && most / top > (*step as f64) / HEIGHTS.len() as f64)
            .unwrap_or(0)
    };
    (0..columns).map(|column| HEIGHTS[height(column)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heights_follow_the_values() {
        assert_eq!(sparkline(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0], 20), "▁▁▂▃▄▅▆▇█");
        assert_eq!(sparkline(&[8.0, 8.0], 20), "██");
        assert_eq!(sparkline(&[0.0, 9.0, 0.0, 0.0], 2), "█▁", "no peak is lost");
        assert_eq!(sparkline(&[], 20), "");
        assert_eq!(sparkline(&[0.0, f64::NAN, -1.0], 20), "▁▁▁");
    }
}
