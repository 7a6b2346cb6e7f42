//! The formats that Prometheus reads: the classic text format, and OpenMetrics 1.0.
//!
//! Both are written from the same families. The differences: OpenMetrics names a family of counters without `_total`, gives
//! units, escapes quotes in help texts, and marks its end. The classic format does none of these.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write;

/// A format of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Version 0.0.4, which every program reads that supports Prometheus.
    Text,
    /// Version 1.0.0.
    OpenMetrics,
}

impl Form {
    /// The value of Content-Type. Prometheus 3 accepts no other.
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// The type of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Its values only grow, until they start again.
    Counter,
    Gauge,
}

impl Kind {
    /// The suffix of the names of its series.
    fn suffix(self) -> &'static str {
        match self {
            Self::Counter => "_total",
            Self::Gauge => "",
        }
    }
}

/// A family without its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Metric<'a> {
    /// Without `_total`.
    pub(super) name: Cow<'a, str>,
    pub(super) kind: Kind,
    /// The unit, which is the end of the name.
    pub(super) unit: Option<&'static str>,
    pub(super) help: Cow<'a, str>,
}

impl Metric<'_> {
    /// The name of its series.
    pub(super) fn full_name(&self) -> String {
        format!("{}{}", self.name, self.kind.suffix())
    }
}

impl Metric<'static> {
    pub(super) const fn gauge(name: &'static str, help: &'static str) -> Self {
        Self { name: Cow::Borrowed(name), kind: Kind::Gauge, unit: None, help: Cow::Borrowed(help) }
    }

    pub(super) const fn counter(name: &'static str, help: &'static str) -> Self {
        Self { name: Cow::Borrowed(name), kind: Kind::Counter, unit: None, help: Cow::Borrowed(help) }
    }

    pub(super) const fn in_unit(mut self, unit: &'static str) -> Self {
        self.unit = Some(unit);
        self
    }
}

/// A number. Integers are written in full, although Prometheus keeps only 53 bits of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Number {
    Whole(u64),
    Real(f64),
}

impl From<u64> for Number {
    fn from(number: u64) -> Self {
        Self::Whole(number)
    }
}

impl From<f64> for Number {
    fn from(number: f64) -> Self {
        Self::Real(number)
    }
}

impl From<bool> for Number {
    fn from(is: bool) -> Self {
        Self::Whole(is.into())
    }
}

/// Names and values of labels. The names must be valid.
pub(super) type Labels<'a> = &'a [(&'static str, &'a str)];

#[derive(Clone, Debug)]
struct Family {
    kind: Kind,
    unit: Option<&'static str>,
    help: String,
    /// Labels as text, and the number.
    samples: Vec<(String, Number)>,
}

/// Families by name. Both formats require that each family is written in one piece.
#[derive(Clone, Debug, Default)]
pub(super) struct Families(BTreeMap<String, Family>);

impl Families {
    /// Adds a value. The first value of a family determines its type and help text.
    pub(super) fn add(&mut self, metric: &Metric<'_>, labels: Labels<'_>, number: impl Into<Number>) {
        let sample = (written(labels), number.into());
        match self.0.get_mut(&*metric.name) {
            Some(family) => family.samples.push(sample),
            None => {
                let (kind, unit, help) = (metric.kind, metric.unit, metric.help.clone().into_owned());
                let family = Family { kind, unit, help, samples: vec![sample] };
                self.0.insert(metric.name.clone().into_owned(), family);
            }
        }
    }

    /// Adds all families of `others`.
    pub(super) fn merge(&mut self, others: Self) {
        for (name, family) in others.0 {
            match self.0.get_mut(&name) {
                Some(ours) => ours.samples.extend(family.samples),
                None => drop(self.0.insert(name, family)),
            }
        }
    }

    /// Keeps one of several equal values of a family that several devices have exported.
    pub(super) fn unite(&mut self, metric: &Metric<'_>) {
        if let Some(family) = self.0.get_mut(&*metric.name) {
            family.samples.sort_by(|one, other| one.0.cmp(&other.0));
            family.samples.dedup_by(|one, other| one.0 == other.0);
        }
    }

    /// The whole text.
    pub(super) fn text(&self, form: Form) -> String {
        let mut text = String::new();
        for (name, family) in &self.0 {
            // Writing to a string cannot fail.
            let _ = family.write(&mut text, name, form);
        }
        if form == Form::OpenMetrics {
            text.push_str("# EOF\n");
        }
        text
    }
}

impl Family {
    fn write(&self, text: &mut String, name: &str, form: Form) -> std::fmt::Result {
        let total = self.kind.suffix();
        let of_family = if form == Form::Text { total } else { "" };
        write!(text, "# HELP {name}{of_family} ")?;
        escape(text, &self.help, form == Form::OpenMetrics);
        text.push('\n');
        let kind = match self.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        writeln!(text, "# TYPE {name}{of_family} {kind}")?;
        if let (Form::OpenMetrics, Some(unit)) = (form, self.unit) {
            writeln!(text, "# UNIT {name} {unit}")?;
        }
        for (labels, number) in &self.samples {
            // This part runs for every value.
            [name, total, labels, " "].into_iter().for_each(|part| text.push_str(part));
            match number {
                Number::Whole(number) => writeln!(text, "{number}")?,
                Number::Real(number) => writeln!(text, "{number:?}")?,
            }
        }
        Ok(())
    }
}

/// Labels as text, such as `{device="mlx5_0",port="1"}`; empty if there are none.
fn written(labels: Labels<'_>) -> String {
    let values: usize = labels.iter().map(|(name, value)| name.len() + value.len() + 4).sum();
    let mut text = String::with_capacity(values + 2);
    for (name, value) in labels {
        text.push(if text.is_empty() { '{' } else { ',' });
        text.push_str(name);
        text.push_str("=\"");
        escape(&mut text, value, true);
        text.push('"');
    }
    if !text.is_empty() {
        text.push('}');
    }
    text
}

/// Appends a text with the escapes that both formats have. Lines end with a newline alone, and some parsers stop at NUL. Neither
/// format has an escape for carriage return and NUL, so they are replaced by the replacement character.
fn escape(to: &mut String, text: &str, with_quotes: bool) {
    let mut rest = text;
    let is_special = |c: char| matches!(c, '\\' | '\n' | '\r' | '\0') || (c == '"' && with_quotes);
    while let Some(at) = rest.find(is_special) {
        let (plain, special) = rest.split_at(at);
        to.push_str(plain);
        to.push_str(match special.as_bytes().first() {
            Some(b'\\') => "\\\\",
            Some(b'\n') => "\\n",
            Some(b'"') => "\\\"",
            _ => "\u{fffd}",
        });
        rest = special.get(1..).unwrap_or_default();
    }
    to.push_str(rest);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn families() -> Families {
        let mut families = Families::default();
        let bytes = Metric::counter("x_sent_bytes", "Bytes of \"x\", \\ and\nmore.").in_unit("bytes");
        families.add(&bytes, &[("device", "a\"b\\c\nd\re"), ("port", "1")], u64::MAX);
        families.add(&Metric::gauge("up", "It is there."), &[], true);
        let mut others = Families::default();
        others.add(&bytes, &[("device", "z")], 0);
        others.add(&Metric::gauge("took_seconds", "It took.").in_unit("seconds"), &[], 0.25);
        let told = Metric::gauge("told", "All say it.");
        families.add(&told, &[("x", "1")], true);
        others.add(&told, &[("x", "1")], true);
        families.merge(others);
        families.unite(&told);
        families
    }

    #[test]
    fn the_classic_form_has_its_names_and_escapes() {
        let wanted = r#"# HELP told All say it.
# TYPE told gauge
told{x="1"} 1
# HELP took_seconds It took.
# TYPE took_seconds gauge
took_seconds 0.25
# HELP up It is there.
# TYPE up gauge
up 1
# HELP x_sent_bytes_total Bytes of "x", \\ and\nmore.
# TYPE x_sent_bytes_total counter
x_sent_bytes_total{device="a\"b\\c\nd�e",port="1"} 18446744073709551615
x_sent_bytes_total{device="z"} 0
"#;
        assert_eq!(families().text(Form::Text), wanted);
    }

    #[test]
    fn openmetrics_has_units_and_an_end() {
        let wanted = r#"# HELP told All say it.
# TYPE told gauge
told{x="1"} 1
# HELP took_seconds It took.
# TYPE took_seconds gauge
# UNIT took_seconds seconds
took_seconds 0.25
# HELP up It is there.
# TYPE up gauge
up 1
# HELP x_sent_bytes Bytes of \"x\", \\ and\nmore.
# TYPE x_sent_bytes counter
# UNIT x_sent_bytes bytes
x_sent_bytes_total{device="a\"b\\c\nd�e",port="1"} 18446744073709551615
x_sent_bytes_total{device="z"} 0
# EOF
"#;
        assert_eq!(families().text(Form::OpenMetrics), wanted);
        assert_eq!(Families::default().text(Form::OpenMetrics), "# EOF\n");
        assert_eq!(Families::default().text(Form::Text), "");
    }

    #[test]
    fn real_numbers_are_written_as_go_reads_them() {
        let mut families = Families::default();
        for number in [0.0, 1.25e10, 1e-9, f64::MAX] {
            families.add(&Metric::gauge("x", "x"), &[], number);
        }
        let text = families.text(Form::Text);
        let numbers: Vec<f64> = text
            .lines()
            .filter_map(|line| line.strip_prefix("x "))
            .map(|number| number.parse().expect("a number"))
            .collect();
        assert_eq!(numbers, [0.0, 1.25e10, 1e-9, f64::MAX]);
    }
}
