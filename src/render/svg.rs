//! Panels with axes, lines, points and bars as SVG: figures for papers and pages, light and dark, without scripts.

use std::fmt::Write;

/// Okabe and Ito's colours: told apart with any colour vision.
const NAMED: [&str; 8] = ["#0072b2", "#d55e00", "#009e73", "#b5518f", "#56a0d3", "#c28a00", "#6b6f76", "#8a6d3b"];
/// Viridis without its ends, for values with an order.
const ORDERED: [[f64; 3]; 5] =
    [[72.0, 40.0, 120.0], [49.0, 104.0, 142.0], [31.0, 158.0, 137.0], [95.0, 183.0, 67.0], [168.0, 177.0, 28.0]];

/// The colour of the `at`th of `count` values: names are told apart, numbers are on a scale.
pub(super) fn colour(at: usize, count: usize, ordered: bool) -> String {
    if !ordered || count < 3 {
        return NAMED[at % NAMED.len()].to_owned();
    }
    let place = at as f64 / (count - 1) as f64 * (ORDERED.len() - 1) as f64;
    let low = (0..ORDERED.len() - 2).rev().find(|stop| place >= *stop as f64).unwrap_or(0);
    let part = place - low as f64;
    let channel = |index: usize| ORDERED[low][index] * (1.0 - part) + ORDERED[low + 1][index] * part;
    format!("rgb({:.0},{:.0},{:.0})", channel(0), channel(1), channel(2))
}

/// What is drawn into a panel.
pub(super) enum Mark {
    /// A line through points.
    Line(Vec<(f64, f64)>),
    /// A dashed line through points.
    Dashed(Vec<(f64, f64)>),
    /// Points.
    Points(Vec<(f64, f64)>),
    /// A bar of this height.
    Bar(f64, f64),
}

/// One picture of a figure.
pub(super) struct Panel {
    /// Above it.
    pub(super) title: String,
    /// Beside the title.
    pub(super) unit: &'static str,
    /// Below it, at these places.
    pub(super) ticks: Vec<(f64, String)>,
    /// The lowest and the highest place.
    pub(super) x: (f64, f64),
    /// With their colours.
    pub(super) marks: Vec<(Mark, String)>,
}

/// Panels side by side, `columns` in a row, under a title and a legend.
pub(super) struct Figure {
    /// Above everything.
    pub(super) title: String,
    /// Colours and what they stand for.
    pub(super) legend: Vec<(String, String)>,
    /// In reading order.
    pub(super) panels: Vec<Panel>,
    /// Panels in a row.
    pub(super) columns: usize,
    /// Width and height of one panel.
    pub(super) size: (f64, f64),
}

const STYLE: &str = "text{font:12px system-ui,-apple-system,'Segoe UI',Roboto,'Liberation Sans',Arial,sans-serif;fill:#1d2228}\
.t{font-size:15px;font-weight:600}.h{font-weight:600}.s{fill:#5d6671;font-size:11px}.g{stroke:#e3e6ea}.l{fill:none;stroke-width:1.6;\
stroke-linejoin:round}.d{stroke-dasharray:5 3;stroke-width:1.3}\
@media (prefers-color-scheme:dark){text{fill:#e4e8ed}.s{fill:#98a2ae}.g{stroke:#39414b}}";

impl Figure {
    /// The figure as a document.
    pub(super) fn document(&self) -> String {
        let (width, height) = self.size;
        let columns = self.columns.clamp(1, self.panels.len().max(1));
        let lines = self.panels.len().div_ceil(columns);
        let head = if self.legend.is_empty() { 36.0 } else { 58.0 };
        let (all, tall) = (width * columns as f64, head + height * lines as f64);
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {all:.0} {tall:.0}\" width=\"{all:.0}\" height=\"{tall:.0}\" \
             role=\"img\">\n<title>{title}</title>\n<style>{STYLE}</style>\n<text class=\"t\" x=\"10\" y=\"22\">{title}</text>\n",
            title = escaped(&self.title),
        );
        let mut x = 10.0;
        for (colour, name) in &self.legend {
            let _ = writeln!(
                out,
                "<rect x=\"{x:.0}\" y=\"38\" width=\"10\" height=\"10\" rx=\"2\" fill=\"{colour}\"/><text class=\"s\" x=\"{:.0}\" y=\"47\">{}</text>",
                x + 15.0,
                escaped(name)
            );
            x += 34.0 + 6.4 * name.chars().count() as f64;
        }
        for (at, panel) in self.panels.iter().enumerate() {
            let (left, top) = ((at % columns) as f64 * width, head + (at / columns) as f64 * height);
            let _ = writeln!(out, "<g transform=\"translate({left:.0} {top:.0})\">");
            panel.draw(&mut out, width, height);
            out.push_str("</g>\n");
        }
        out.push_str("</svg>\n");
        out
    }
}

impl Panel {
    fn draw(&self, out: &mut String, width: f64, height: f64) {
        let (left, right, top, bottom) = (58.0, width - 12.0, 26.0, height - 34.0);
        let values = || {
            self.marks.iter().flat_map(|(mark, _)| match mark {
                Mark::Line(points) | Mark::Dashed(points) | Mark::Points(points) => {
                    points.iter().map(|point| point.1).collect()
                }
                Mark::Bar(_, value) => vec![*value],
            })
        };
        // Memory starts at zero, so that heights compare.
        let high = values().fold(0.0, f64::max);
        let low = values().fold(0.0, f64::min);
        let span = if high > low { (high - low) * 1.06 } else { 1.0 };
        let low = if low < 0.0 { high - span } else { low };
        let x = |place: f64| left + (place - self.x.0) / (self.x.1 - self.x.0).max(f64::MIN_POSITIVE) * (right - left);
        let y = |value: f64| bottom - (value - low) / span * (bottom - top);
        let _ = writeln!(
            out,
            "<text class=\"h\" x=\"10\" y=\"14\">{} <tspan class=\"s\" font-weight=\"400\">{}</tspan></text>",
            escaped(&self.title),
            self.unit
        );
        for (value, text) in ticks(low, low + span) {
            let at = y(value);
            let _ = writeln!(
                out,
                "<path class=\"g\" d=\"M{left:.1} {at:.1}H{right:.1}\"/><text class=\"s\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{text}</text>",
                left - 6.0,
                at + 4.0
            );
        }
        for (place, text) in &self.ticks {
            let _ = writeln!(
                out,
                "<text class=\"s\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                x(*place),
                bottom + 17.0,
                escaped(text)
            );
        }
        for (mark, colour) in &self.marks {
            match mark {
                Mark::Line(points) | Mark::Dashed(points) => {
                    let class = if matches!(mark, Mark::Dashed(_)) { "l d" } else { "l" };
                    let _ = write!(out, "<path class=\"{class}\" stroke=\"{colour}\" d=\"");
                    for (at, point) in points.iter().enumerate() {
                        let _ = write!(out, "{}{:.1} {:.1}", if at == 0 { "M" } else { "L" }, x(point.0), y(point.1));
                    }
                    out.push_str("\"/>\n");
                }
                Mark::Points(points) => {
                    for point in points {
                        let _ = writeln!(
                            out,
                            "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\" fill=\"{colour}\"/>",
                            x(point.0),
                            y(point.1)
                        );
                    }
                }
                Mark::Bar(place, value) => {
                    let (one, other) = (y(0.0), y(*value));
                    let half = (x(self.x.0 + 1.0) - x(self.x.0)) * 0.38;
                    let _ = writeln!(
                        out,
                        "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" rx=\"1.5\" fill=\"{colour}\"/>",
                        x(*place) - half,
                        one.min(other),
                        half * 2.0,
                        (one - other).abs().max(0.5)
                    );
                }
            }
        }
    }
}

/// Round values between two bounds, about five of them, with their texts.
fn ticks(low: f64, high: f64) -> Vec<(f64, String)> {
    let rough = (high - low) / 5.0;
    let power = 10.0_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0].into_iter().map(|part| part * power).find(|step| *step >= rough).unwrap_or(10.0 * power);
    if !(step.is_finite() && step > 0.0) {
        return Vec::new();
    }
    let decimals = if step >= 1.0 {
        0
    } else if step >= 0.1 {
        1
    } else {
        2
    };
    #[expect(clippy::cast_possible_truncation, reason = "a handful")]
    let (first, last) = ((low / step).ceil() as i64, (high / step).floor() as i64);
    (first..=last)
        .map(|at| at as f64 * step)
        .map(|value| (value, grouped(&format!("{:.*}", decimals, if value.abs() < step / 2.0 { 0.0 } else { value }))))
        .collect()
}

/// Thousands apart: 1,234,567.
fn grouped(text: &str) -> String {
    let (sign, digits) = text.strip_prefix('-').map_or(("", text), |digits| ("−", digits));
    let (whole, rest) = digits.split_at(digits.find('.').unwrap_or(digits.len()));
    let mut out = sign.to_owned();
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out + rest
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_inside() {
        let texts = |low, high| ticks(low, high).into_iter().map(|(_, text)| text).collect::<Vec<_>>().join(" ");
        assert_eq!(texts(0.0, 450.0), "0 100 200 300 400");
        assert_eq!(texts(0.0, 12_000.0), "0 5,000 10,000");
        assert_eq!(texts(-30.0, 70.0), "−20 0 20 40 60");
        assert_eq!(texts(0.0, 1.0), "0.0 0.2 0.4 0.6 0.8 1.0");
        assert_eq!(texts(0.0, f64::INFINITY), "");
    }

    #[test]
    fn texts_are_only_texts() {
        let figure = Figure {
            title: "</title><script>alert(1)</script>".to_owned(),
            legend: vec![("red".to_owned(), "a & \"b\"\u{7}".to_owned())],
            panels: Vec::new(),
            columns: 1,
            size: (100.0, 100.0),
        };
        let document = figure.document();
        assert!(!document.contains("<script>"));
        assert!(document.contains("a &amp; &quot;b&quot; </text>"));
    }
}
