//! Counts per second.

use std::time::Duration;

use uverbs::Rates;

const SECOND: u64 = 1_000_000_000;

fn rates(seconds: u64) -> Rates<1> {
    Rates::new(Duration::from_secs(seconds))
}

#[test]
fn one_moment_has_no_rate_and_two_have() {
    let mut rates = rates(10);
    assert_eq!((rates.per_second(), rates.span()), (None, Duration::ZERO));
    rates.update_at(5 * SECOND, [7]);
    assert_eq!(rates.per_second(), None);
    rates.update_at(7 * SECOND, [107]);
    assert_eq!((rates.per_second(), rates.span()), (Some([50.0]), Duration::from_secs(2)));
}

#[test]
fn values_of_the_same_moment_or_an_earlier_one_change_nothing() {
    let mut rates = rates(10);
    rates.update_at(SECOND, [0]);
    rates.update_at(SECOND, [1_000_000]);
    assert_eq!(rates.per_second(), None, "nothing is divided by zero");
    rates.update_at(2 * SECOND, [10]);
    rates.update_at(2 * SECOND, [10]);
    rates.update_at(SECOND, [0]);
    assert_eq!(rates.per_second(), Some([10.0]));
}

#[test]
fn a_counter_that_stands_still_has_the_rate_zero() {
    let mut rates = rates(10);
    (1..100).for_each(|second| rates.update_at(second * SECOND, [42]));
    assert_eq!(rates.per_second(), Some([0.0]));
}

#[test]
fn a_counter_that_is_set_back_has_no_rate_wherever_it_was() {
    for before in [1, 1 << 32, 1 << 63, u64::MAX - 4] {
        let mut rates = rates(10);
        rates.update_at(SECOND, [before]);
        rates.update_at(2 * SECOND, [0]);
        assert_eq!((rates.per_second(), rates.span()), (None, Duration::ZERO), "{before}");
        rates.update_at(3 * SECOND, [10]);
        assert_eq!(rates.per_second(), Some([10.0]), "{before}");
    }
}

#[test]
fn a_counter_that_goes_back_is_another_one() {
    let mut rates = Rates::<2>::new(Duration::from_secs(10));
    rates.update_at(SECOND, [1000, 1]);
    rates.update_at(2 * SECOND, [2000, 2]);
    rates.update_at(3 * SECOND, [10, 3]);
    assert_eq!(rates.per_second(), None);
    rates.update_at(4 * SECOND, [30, 4]);
    assert_eq!(rates.per_second(), Some([20.0, 1.0]));
}

#[test]
fn only_the_window_counts() {
    let mut rates = rates(32);
    // A thousand per second for a long time, and then nothing.
    (0..1000).for_each(|second| rates.update_at(second * SECOND, [second * 1000]));
    assert_eq!(rates.per_second(), Some([1000.0]));
    assert!(rates.span() >= Duration::from_secs(32) && rates.span() <= Duration::from_secs(33));
    (1000..1016).for_each(|second| rates.update_at(second * SECOND, [999_000]));
    let [half] = rates.per_second().unwrap();
    assert!((half - 500.0).abs() <= 40.0, "{half}");
    (1016..1040).for_each(|second| rates.update_at(second * SECOND, [999_000]));
    assert_eq!(rates.per_second(), Some([0.0]));
}

#[test]
fn updates_as_fast_as_can_be_need_no_more_memory_and_lose_no_time() {
    let mut rates = rates(1);
    let step = 1000;
    // Five seconds, a million times a second, ten counts a microsecond.
    (0..5_000_000).for_each(|i| rates.update_at(i * step, [i * 10]));
    let [rate] = rates.per_second().unwrap();
    assert!((rate - 1e7).abs() < 1.0, "{rate}");
    assert!(rates.span() >= Duration::from_secs(1) && rates.span() <= Duration::from_millis(1064));
}

#[test]
fn a_window_of_nothing_is_of_the_last_two() {
    let mut rates = Rates::<1>::new(Duration::ZERO);
    for (second, value) in [(1, 0), (2, 10), (3, 30)] {
        rates.update_at(second * SECOND, [value]);
    }
    assert_eq!((rates.per_second(), rates.span()), (Some([20.0]), Duration::from_secs(1)));
}
