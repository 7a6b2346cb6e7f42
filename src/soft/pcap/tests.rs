//! Captures made by hand.
