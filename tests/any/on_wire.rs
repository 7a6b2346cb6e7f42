//! Behaviours on a soft device on a wire: this program again, in a process of its own, whose device has an address.

use std::process::Command;

/// Modules of which all tests hold there, and that take no more than seconds.
const MODULES: [&str; 6] = ["connected::", "drain::", "orders::", "shared_receives::", "windows::", "xrc::"];

#[test]
fn behaviours_hold_on_the_wire() {
    if std::env::var_os("UVERBS_TEST_DEVICE").is_some() {
        // This is such a process, or the tests are about another device.
        return;
    }
    let program = std::env::current_exe().expect("this program");
    let listed = Command::new(&program).args(["--list", "--format", "terse"]).output().expect("a list");
    let listed = String::from_utf8(listed.stdout).expect("names");
    let names = listed.lines().filter_map(|line| line.strip_suffix(": test"));
    let names: Vec<_> = names.filter(|name| MODULES.iter().any(|module| name.starts_with(module))).collect();
    assert!(MODULES.iter().all(|module| names.iter().any(|name| name.starts_with(module))), "{names:?}");
    let ran = Command::new(&program)
        .arg("--exact")
        .args(&names)
        .env("UVERBS_TEST_DEVICE", "soft@127.44.0.1")
        .output()
        .expect("the tests run");
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success(), "{said}{}", String::from_utf8_lossy(&ran.stderr));
    let count = format!("test result: ok. {} passed", names.len());
    assert!(said.contains(&count), "{said}");
}
