//! Chooses between the two formats by the Accept header (RFC 9110, 12.5.1).

/// The preference for one format: the quality of the most specific media range that contains it.
#[derive(Clone, Copy, Debug, Default)]
struct Liking {
    /// 1 for `*/*`, 2 for `type/*`, 3 for the type itself, 0 if there was none yet.
    specific: u8,
    quality: u32,
}

impl Liking {
    /// Of ranges that are equally specific, the one with the highest quality counts.
    fn hear(&mut self, specific: u8, quality: u32) {
        if (specific, quality) > (self.specific, self.quality) {
            *self = Self { specific, quality };
        }
    }
}

/// Whether the response is OpenMetrics. The client has to name it, in version 1.0.0 or without a version, with at least the
/// quality of the classic text format, which ranges such as `*/*` and `text/*` contain too. A client that only accepts everything
/// gets the classic format.
pub(super) fn wants_open_metrics<'a>(accepts: impl Iterator<Item = &'a str>) -> bool {
    let (mut open_metrics, mut text) = (Liking::default(), Liking::default());
    for range in accepts.flat_map(|value| value.split(',')) {
        let mut parts = range.split(';').map(str::trim);
        let media = parts.next().unwrap_or_default();
        let (mut version, mut quality) = ("", 1000);
        for part in parts {
            match part.split_once('=').map(|(key, value)| (key.trim(), value.trim().trim_matches('"'))) {
                Some((key, value)) if key.eq_ignore_ascii_case("q") => quality = thousandths(value),
                Some((key, value)) if key.eq_ignore_ascii_case("version") => version = value,
                _ => {}
            }
        }
        let is = |name: &str| media.eq_ignore_ascii_case(name);
        if is("application/openmetrics-text") && matches!(version, "" | "1.0.0") {
            open_metrics.hear(3, quality);
        } else if is("text/plain") && matches!(version, "" | "0.0.4") {
            text.hear(3, quality);
        } else if is("text/*") {
            text.hear(2, quality);
        } else if is("*/*") {
            text.hear(1, quality);
        }
    }
    open_metrics.quality > 0 && open_metrics.quality >= text.quality
}

/// `0.75` in thousandths. If the value is not a number, the result is 0.
fn thousandths(value: &str) -> u32 {
    let number = value.parse::<f64>().ok().filter(|number| (0.0..=1.0).contains(number));
    number.map_or(0, |number| (number * 1000.0).round() as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_is_the_one_that_is_liked_more() {
        for (accept, wanted) in [
            // The headers of Prometheus 2.42 and 3.5, and of curl.
            (
                "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
                true,
            ),
            (
                "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
                true,
            ),
            ("*/*", false),
            ("", false),
            ("text/plain", false),
            ("application/openmetrics-text", true),
            ("APPLICATION/OpenMetrics-Text; Version=\"1.0.0\"", true),
            ("application/openmetrics-text; version=0.0.1, */*", false),
            ("application/openmetrics-text; version=2.0.0", false),
            ("application/openmetrics-text;q=0", false),
            ("application/openmetrics-text;q=0.4, text/plain;q=0.5", false),
            ("application/openmetrics-text;q=0.5, text/plain;q=0.5", true),
            ("application/openmetrics-text;q=x", false),
            ("application/openmetrics-text;q=0.5, */*;q=0.1", true),
            ("application/openmetrics-text;q=0.5, */*", false),
            ("*/*, application/openmetrics-text;q=0.5", false),
            ("application/openmetrics-text;q=0.5, text/*;q=0.8", false),
            // The quality of the type itself takes precedence over that of `*/*`.
            ("application/openmetrics-text;q=0.5, text/plain;q=0.1, */*", true),
            ("application/openmetrics-text;q=0.5, text/plain;q=0, */*;q=0.9", true),
            ("application/openmetrics-text;q=0, application/*", false),
            ("application/*, text/plain;q=0.1", false),
            // A version of the classic format that does not exist.
            ("application/openmetrics-text;q=0.5, text/plain;version=1.0.0", true),
            (";;;,=,q=1", false),
        ] {
            assert_eq!(wants_open_metrics([accept].into_iter()), wanted, "{accept}");
        }
        assert!(wants_open_metrics(["text/plain;q=0.1", "application/openmetrics-text"].into_iter()));
    }
}
