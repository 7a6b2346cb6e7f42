//! Compares every struct of the crate with a table of sizes and offsets, and every number with a table of numbers, in both directions.

use std::collections::{BTreeMap, BTreeSet};
use uverbs_abi::layout;

/// By C name: the size of a struct, or the offset and size of a field.
///
/// The number of values is part of the key: an anonymous struct is a field and a struct of the same name.
type Table = BTreeMap<(String, usize), Vec<usize>>;

fn insert(table: &mut Table, name: String, values: Vec<usize>) {
    let twice = table.insert((name.clone(), values.len()), values);
    assert!(twice.is_none(), "{name} is there twice");
}

fn golden() -> Table {
    let mut table = Table::new();
    for line in include_str!("golden/layout.txt").lines().filter(|line| !line.starts_with('#')) {
        let mut words = line.split_whitespace();
        let name = words.next().expect("a name").to_owned();
        insert(&mut table, name, words.map(|word| word.parse().expect("a number")).collect());
    }
    table
}

fn crate_side() -> Table {
    let mut table = Table::new();
    for layout in layout::structs() {
        insert(&mut table, layout.c_name.to_owned(), vec![layout.size]);
        // A field without a C name is padding: the golden table cannot have it.
        for field in layout.fields.iter().filter(|field| !field.c_name.is_empty()) {
            let name = format!("{}.{}", layout.c_name, field.c_name);
            insert(&mut table, name, vec![field.offset, field.size]);
        }
    }
    table
}

#[test]
fn layouts_are_those_of_the_golden_table() {
    let (golden, ours) = (golden(), crate_side());
    let mut wrong = Vec::new();
    for (name, values) in &ours {
        match golden.get(name) {
            None => wrong.push(format!("{}: not in the golden table", name.0)),
            Some(expected) if expected != values => {
                wrong.push(format!("{}: {values:?}, the golden table has {expected:?}", name.0));
            }
            Some(_) => {}
        }
    }
    let missing = golden.keys().filter(|name| !ours.contains_key(*name));
    wrong.extend(missing.map(|name| format!("{}: not in the crate", name.0)));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(ours.len() > 1000, "only {} entries", ours.len());
}

#[test]
fn numbers_are_those_of_the_golden_table() {
    let text = include_str!("golden/numbers.txt");
    let golden: BTreeSet<_> = text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect();
    let numbers = layout::numbers().filter(|number| !number.c_name.is_empty());
    let ours: BTreeSet<_> = numbers.map(|number| format!("{} {:#x}", number.c_name, number.value)).collect();
    let missing: Vec<_> = golden.difference(&ours).collect();
    let unknown: Vec<_> = ours.difference(&golden).collect();
    assert!(
        missing.is_empty() && unknown.is_empty(),
        "not in the crate: {missing:#?}, not in the table: {unknown:#?}"
    );
    assert!(ours.len() > 900, "only {} numbers", ours.len());
}

#[test]
fn padding_that_c_leaves_unnamed_is_listed() {
    let unnamed: Vec<_> = layout::structs()
        .flat_map(|layout| {
            let pads = layout.fields.iter().filter(|field| field.c_name.is_empty());
            pads.map(move |field| (layout.c_name, field.offset, field.size))
        })
        .collect();
    let expected = [
        ("ib_uverbs_flow_action_esp_encap", 20, 4),
        ("rxe_global_route", 23, 1),
        ("rxe_send_wr.wr.flush", 18, 6),
    ];
    assert_eq!(unnamed, expected);
}
