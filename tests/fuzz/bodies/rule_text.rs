//! Any text is a rule or has an error with a position; a rule can be parsed from its own text, byte for byte.

use uverbs::AnyRule;

pub(crate) fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match AnyRule::parse(text, 1) {
        Ok(rule) => {
            let printed = rule.to_string();
            let back =
                AnyRule::parse(&printed, 1).unwrap_or_else(|error| panic!("{text:?}: {printed}: {error}"));
            assert_eq!(back.attr(), rule.attr(), "{text:?}: {printed}");
            assert_eq!(back.specs(), rule.specs(), "{text:?}: {printed}");
            assert_eq!(back.to_string(), printed, "{text:?}");
        }
        Err(error) => {
            assert!((1..=text.chars().count() + 1).contains(&error.column()), "{text:?}: {error}");
            assert!(!format!("{error} {error:#}").is_empty());
        }
    }
}
