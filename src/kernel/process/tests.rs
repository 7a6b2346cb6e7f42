use super::*;

#[test]
fn what_one_thread_takes_is_the_processs() {
    let (one, other) = (Owner::new().unwrap(), Owner::new().unwrap());
    assert!(!one.is_here() && one.is_free_or_here() && one.is_made_here());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert!(one.take() && one.is_here() && one.is_free_or_here()));
        }
    });
    assert!(one.origin().is_here() && one.origin().check("op").is_ok());
    assert!(!other.origin().is_here() && other.origin().check("op").is_err());
}

#[test]
fn shared_words_are_used_once_and_a_page_goes_with_its_last_word() {
    let current = Local::<SharedPage>::new(|_| None);
    let words: Vec<_> = (0..2 * WORDS_OF_PAGE + 1).map(|_| Shared::new(&current).unwrap()).collect();
    let mut addresses: Vec<_> = words.iter().map(|shared| shared.word().as_ptr().addr()).collect();
    addresses.sort_unstable();
    addresses.dedup();
    assert_eq!(addresses.len(), words.len(), "each has its own");
    assert!(words.iter().all(|shared| shared.word().swap(1, Ordering::Relaxed) == 0));
    let pages = [0, WORDS_OF_PAGE, 2 * WORDS_OF_PAGE].map(|at| Arc::downgrade(&words[at].page));
    let is_mapped = || pages.each_ref().map(|page| page.upgrade().is_some());
    drop(words);
    assert_eq!(is_mapped(), [false, false, true], "the next words are those of the last page");
    let next = Shared::new(&current).unwrap();
    assert_eq!(next.word().load(Ordering::Relaxed), 0);
    drop(current);
    assert_eq!(is_mapped(), [false, false, true]);
    drop(next);
    assert_eq!(is_mapped(), [false; 3]);
}

#[test]
fn a_gate_is_open_until_it_is_closed_and_its_word_is_used_again() {
    let gates = [Gate::open(), Gate::open()];
    let [one, other] = [0, 1].map(|at| gates[at].passage());
    assert_eq!((one.word(), other.word(), Passage::default().word()), (u32::MAX, u32::MAX, 0));
    gates[0].close();
    assert!(!one.is_open() && other.is_open());
    drop(gates);
    assert!(!one.is_open() && !other.is_open());
    let again: Vec<_> = (0..PAGE).map(|_| Gate::open()).collect();
    assert!(again.iter().all(|gate| gate.passage().is_open()) && one.is_open());
    let mut words: Vec<_> = again.iter().map(|gate| gate.passage().0.as_ptr().addr()).collect();
    words.sort_unstable();
    words.dedup();
    assert_eq!(words.len(), again.len(), "each has its own");
    let here = Origin::new().unwrap();
    assert!(here.is_here() && !words.contains(&here.0.as_ptr().addr()), "and the process has its");
    assert!(Gate(Passage::default()).passage().0.as_ptr() == NOWHERE.as_ptr());
    assert_eq!(NOWHERE.load(Ordering::Relaxed), 0);
}

#[test]
fn a_local_value_is_one_for_all_threads() {
    let local = Local::<u32>::new(|old| *old);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| *local.lock() += 1);
        }
    });
    assert_eq!(*local.lock(), 4);
}

#[test]
fn all_threads_are_in_one_process() {
    let here = Origin::new().unwrap();
    let pages = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| Origin::here().0.as_ptr().addr())).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    assert_eq!(pages, [here.0.as_ptr().addr(); 4]);
}
