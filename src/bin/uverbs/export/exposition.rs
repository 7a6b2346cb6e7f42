//! What Prometheus reads: the classic text form, and OpenMetrics 1.0.
//!
//! Both are written from the same families. Where they differ, OpenMetrics names a family of counters without `_total`, tells units, escapes
//! quotes in help texts and says where it ends; the classic form has none of that.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write;

/// A form of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Version 0.0.4: what everything reads that knows Prometheus.
    Text,
    /// Version 1.0.0.
    OpenMetrics,
}

impl Form {
    /// What Content-Type says. Prometheus 3 takes nothing else.
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// What a family's values do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// They only grow, until they begin again.
    Counter,
    Gauge,
}

impl Kind {
    /// How the names of its series end.
    fn suffix(self) -> &'static str {
        match self {
            Self::Counter => "_total",
            Self::Gauge => "",
        }
    }
}

/// A family, apart from its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Metric<'a> {
    /// Without `_total`.
    pub(super) name: Cow<'a, str>,
    pub(super) kind: Kind,
    /// The end of the name.
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

/// A number. Whole ones are written in full, though Prometheus keeps 53 bits of them.
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

/// Names and values; the names are valid ones.
pub(super) type Labels<'a> = &'a [(&'static str, &'a str)];

#[derive(Clone, Debug)]
struct Family {
    kind: Kind,
    unit: Option<&'static str>,
    help: String,
    /// Labels as they are written, and the number.
    samples: Vec<(String, Number)>,
}

/// Families by their names, each in one piece, as both forms want it.
#[derive(Clone, Debug, Default)]
pub(super) struct Families(BTreeMap<String, Family>);

impl Families {
    /// Adds a value. The first value of a family says what the family is.
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

    /// Adds all that others have.
    pub(super) fn merge(&mut self, others: Self) {
        for (name, family) in others.0 {
            match self.0.get_mut(&name) {
                Some(ours) => ours.samples.extend(family.samples),
                None => drop(self.0.insert(name, family)),
            }
        }
    }

    /// Leaves one of each value of a family that several devices have told the same of.
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
            // A string takes anything.
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
            // Of these there are many.
            [name, total, labels, " "].into_iter().for_each(|part| text.push_str(part));
            match number {
                Number::Whole(number) => writeln!(text, "{number}")?,
                Number::Real(number) => writeln!(text, "{number:?}")?,
            }
        }
        Ok(())
    }
}

/// `{device="mlx5_0",port="1"}`; nothing of no labels.
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

/// Appends a text with the escapes that both forms have. Lines end with a newline alone, and some parsers end the text at NUL: neither form has an
/// escape for these two characters, so the replacement character stands for them.
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
