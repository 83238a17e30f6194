//! Straight lines by least squares.

/// A straight line through points, and how well it fits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fit {
    /// How many points it goes through.
    pub points: usize,
    /// Change of y per unit of x.
    pub slope: f64,
    /// y where x is zero.
    pub intercept: f64,
    /// Standard deviation of the residuals; not known for two points, through which every line goes.
    pub residual: Option<f64>,
    /// Standard error of the slope; not known for two points.
    pub slope_error: Option<f64>,
    /// The farthest that a point lies from the line, in units of y.
    pub largest_deviation: f64,
}

impl Fit {
    /// y on the line.
    pub fn at(&self, x: f64) -> f64 {
        self.intercept + self.slope * x
    }
}

/// The line with the smallest sum of squared vertical distances; none where the points have fewer than two x, or are not finite.
pub fn fit(points: &[(f64, f64)]) -> Option<Fit> {
    let count = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (mean_x, mean_y) = (mean(|point| point.0), mean(|point| point.1));
    // Distances from the means: squares of large numbers would swallow the differences.
    let spread: f64 = points.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
    let together: f64 = points.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
    if points.len() < 2 || spread <= 0.0 {
        return None;
    }
    let slope = together / spread;
    let intercept = mean_y - slope * mean_x;
    let off = || points.iter().map(|(x, y)| y - mean_y - slope * (x - mean_x));
    let residual = (points.len() > 2).then(|| (off().map(|off| off.powi(2)).sum::<f64>() / (count - 2.0)).sqrt());
    let fit = Fit {
        points: points.len(),
        slope,
        intercept,
        residual,
        slope_error: residual.map(|residual| residual / spread.sqrt()),
        largest_deviation: off().map(f64::abs).fold(0.0, f64::max),
    };
    let numbers = [fit.slope, fit.intercept, fit.residual.unwrap_or_default(), fit.largest_deviation];
    numbers.iter().all(|number| number.is_finite()).then_some(fit)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Digits that agree, as the NIST counts them.
    fn digits(found: f64, certified: f64) -> f64 {
        -((found - certified).abs() / certified.abs()).max(1e-16).log10()
    }

    #[test]
    fn norris_has_its_certified_values() {
        let text = include_str!("../../tests/data/nist/norris.txt");
        let numbers = |line: &str| -> (f64, f64) {
            let (y, x) = line.split_once(' ').unwrap();
            (x.parse().unwrap(), y.parse().unwrap())
        };
        let points: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).map(numbers).collect();
        assert_eq!(points.len(), 36);
        let fit = fit(&points).unwrap();
        for (found, certified) in [
            (fit.slope, 1.002_116_818_020_45),
            (fit.intercept, -0.262_323_073_774_029),
            (fit.residual.unwrap(), 0.884_796_396_144_373),
            (fit.slope_error.unwrap(), 0.429_796_848_199_937e-3),
        ] {
            assert!(digits(found, certified) > 11.0, "{found} is not {certified}");
        }
    }

    #[test]
    fn points_that_make_no_line() {
        assert_eq!(fit(&[]), None);
        assert_eq!(fit(&[(1.0, 2.0)]), None);
        assert_eq!(fit(&[(1.0, 2.0), (1.0, 3.0)]), None);
        assert_eq!(fit(&[(1.0, 2.0), (2.0, f64::NAN)]), None);
        assert_eq!(fit(&[(1.0, 2.0), (2.0, f64::INFINITY), (3.0, 0.0)]), None);
        let two = fit(&[(1.0, 2.0), (3.0, 6.0)]).unwrap();
        assert_eq!((two.slope, two.intercept, two.residual, two.slope_error), (2.0, 0.0, None, None));
        assert_eq!(fit(&[(1.0, f64::MAX), (2.0, -f64::MAX)]), None);
    }

    #[test]
    fn the_farthest_point_is_known() {
        let bent = fit(&[(0.0, 0.0), (1.0, 3.0), (2.0, 0.0)]).unwrap();
        assert_eq!((bent.slope, bent.intercept, bent.largest_deviation), (0.0, 1.0, 2.0));
        assert_eq!(bent.residual, Some(6.0_f64.sqrt()));
    }

    proptest! {
        #[test]
        fn points_on_a_line_give_the_line(slope in -1e3..1e3_f64, intercept in -1e6..1e6_f64, xs in prop::collection::btree_set(0_u32..10_000, 2..20)) {
            let points: Vec<(f64, f64)> = xs.into_iter().map(f64::from).map(|x| (x, intercept + slope * x)).collect();
            let fit = fit(&points).unwrap();
            prop_assert!((fit.slope - slope).abs() < 1e-6, "{}", fit.slope);
            prop_assert!(points.iter().all(|(x, y)| (fit.at(*x) - y).abs() < 1e-4));
        }
    }
}
