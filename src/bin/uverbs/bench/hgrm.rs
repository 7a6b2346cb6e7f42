//! HdrHistogram's percentile distribution, which its plotters read.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use super::tally::Tally;

/// The number of lines each time the rest up to 100 % halves.
const STEPS: u32 = 5;

/// The file for one of several measurements: for `volatile-1`, `f.hgrm` becomes `f-volatile-1.hgrm`.
pub(super) fn path(path: &Path, measurement: &str) -> PathBuf {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let mut name = format!("{stem}-{measurement}");
    if let Some(extension) = path.extension() {
        name = format!("{name}.{}", extension.to_string_lossy());
    }
    path.with_file_name(name)
}

/// The distribution, in ns.
pub(super) fn text(tally: &Tally) -> String {
    let histogram = tally.histogram();
    let mut text =
        format!("{:>12} {:>14} {:>10} {:>14}\n\n", "Value", "Percentile", "TotalCount", "1/(1-Percentile)");
    let mut total = 0;
    // Writing to a string does not fail.
    for point in histogram.iter_quantiles(STEPS) {
        total += point.count_since_last_iteration();
        let (value, share) = (point.value_iterated_to() as f64, point.quantile_iterated_to());
        let _ = write!(text, "{value:12.3} {share:.12} {total:10}");
        let _ = match share < 1.0 {
            true => writeln!(text, " {:14.2}", 1.0 / (1.0 - share)),
            false => writeln!(text),
        };
    }
    let (mean, stdev) = (tally.mean(), tally.stdev());
    let _ = writeln!(text, "#[Mean    = {mean:12.3}, StdDeviation   = {stdev:12.3}]");
    let _ = writeln!(text, "#[Max     = {:12.3}, Total count    = {:12}]", tally.max() as f64, tally.count());
    let sub = (2 * 10_u64.pow(histogram.sigfig().into())).next_power_of_two();
    let buckets = histogram.buckets();
    let _ = writeln!(text, "#[Buckets = {buckets:12}, SubBuckets     = {sub:12}]");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_distribution_reaches_all_of_them() {
        let mut tally = Tally::new().unwrap();
        (1..=1000).for_each(|time| tally.record(time));
        let text = text(&tally);
        let rows: Vec<Vec<f64>> = text
            .lines()
            .skip(2)
            .take_while(|line| !line.starts_with('#'))
            .map(|line| line.split_whitespace().map(|word| word.parse().unwrap()).collect())
            .collect();
        assert!(rows.len() > 20, "{text}");
        assert!(rows.is_sorted_by(|a, b| a[0] <= b[0] && a[1] <= b[1] && a[2] <= b[2]), "{text}");
        assert_eq!(rows.last().unwrap()[1..], [1.0, 1000.0]);
        for row in &rows {
            assert!(row.len() == 3 || (row[3] - 1.0 / (1.0 - row[1])).abs() < 0.01 * row[3], "{row:?}");
        }
        assert!(text.ends_with("]\n") && text.contains("#[Mean    =      500.500,"), "{text}");
    }
}
