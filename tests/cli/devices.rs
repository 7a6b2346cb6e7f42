//! How subcommands take their device: as a word or as an option, with a list of the devices if it is missing or unknown.

use std::process::{Command, Output};

use serde_json::Value;

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_uverbs")).args(arguments).output().expect("the program starts")
}

/// Arguments of every subcommand that works on a device, without the device, and so that it ends soon.
const SUBCOMMANDS: &[&[&str]] = &[
    &["devices"],
    &["devices", "--gids"],
    &["info"],
    &["verify"],
    &["stat"],
    &["watch", "--count", "1", "--interval", "10ms"],
    &["export", "--once", "-"],
    &["ping", "--iters", "2"],
    &["bench", "read", "--samples", "10"],
];

#[test]
fn devices_are_listed_with_the_state_of_their_ports() {
    let output = run(&["devices", "soft0"]);
    let table = String::from_utf8(output.stdout).expect("UTF-8");
    let mut lines = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let head = lines.next().expect("a head");
    assert_eq!(head[..7], ["NAME", "DRIVER", "NODE", "PORT", "STATE", "SPEED", "MTU"]);
    let row = lines.next().expect("a row");
    assert_eq!(row[..5], ["soft0", "soft", "(embedded)", "1", "ACTIVE"], "{table}");
    assert_eq!((row[6], lines.next()), ("Gb/s", None), "{table}");
    assert!(output.stderr.is_empty());

    let list: Value =
        serde_json::from_slice(&run(&["devices", "--json", "-d", "soft0"]).stdout).expect("JSON");
    let port = &list[0]["port_states"][0];
    assert_eq!((&port["port"], &port["state"]), (&1.into(), &"ACTIVE".into()), "{list}");
    assert_eq!(port["link_layer"], "Ethernet");
    assert!(port["mtu"].as_u64() >= Some(256) && port["gigabits_per_second"].as_f64() > Some(1.0), "{list}");
}

#[test]
fn addresses_are_listed_as_show_gids_does() {
    let table = String::from_utf8(run(&["devices", "--gids", "soft0"]).stdout).expect("UTF-8");
    assert!(table.starts_with("DEVICE  PORT  INDEX  GID "), "{table}");
    let list: Value = serde_json::from_slice(&run(&["devices", "--gids", "--json"]).stdout).expect("JSON");
    let rows = list.as_array().expect("an array");
    let soft: Vec<_> = rows.iter().filter(|row| row["device"] == "soft0").collect();
    assert_eq!(soft.len() + 1, table.lines().count(), "{table}");
    let first = soft.first().expect("an address");
    assert_eq!((&first["port"], &first["index"], &first["version"]), (&1.into(), &0.into(), &"v2".into()));
    assert_eq!(first["gid"].as_str().map(str::len), Some(39));
    assert_eq!(run(&["devices", "--gids", "nope"]).status.code(), Some(3));
}

#[test]
fn a_device_is_a_word_or_an_option() {
    for arguments in SUBCOMMANDS {
        for device in [&["soft0"][..], &["--device", "soft0"], &["-d", "soft0"], &["--device=soft0"]] {
            for arguments in [[*arguments, device].concat(), {
                // Before the other options.
                let (name, rest) = arguments.split_at(if arguments[0] == "bench" { 2 } else { 1 });
                [name, device, rest].concat()
            }] {
                let output = run(&arguments);
                let stderr = String::from_utf8_lossy(&output.stderr);
                assert!(output.status.success() && stderr.is_empty(), "{arguments:?}: {stderr}");
            }
        }
    }
}

#[test]
fn a_device_that_is_missing_or_unknown_is_an_error_that_lists_the_devices() {
    for arguments in SUBCOMMANDS {
        for device in [&["nope"][..], &["--device", "nope"]] {
            let arguments = [*arguments, device].concat();
            let output = run(&arguments);
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(3), "{arguments:?}: {stderr}");
            assert!(stderr.contains("no device nope; there is "), "{arguments:?}: {stderr}");
            assert!(stderr.contains("soft0 (embedded)"), "{arguments:?}: {stderr}");
        }
        // These are about all devices.
        if ["devices", "stat", "export"].contains(&arguments[0]) {
            continue;
        }
        let output = run(arguments);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
        let wanted = "which device? Add its name (DEV or --device DEV); there is ";
        assert!(stderr.contains(wanted) && stderr.contains("soft0 (embedded)"), "{arguments:?}: {stderr}");
    }
}

#[test]
fn a_device_that_is_named_twice_is_refused() {
    for arguments in [&["info"][..], &["verify"], &["stat"], &["watch"], &["bench", "read"]] {
        let output = run(&[arguments, &["soft0", "--device", "soft0"]].concat());
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
        assert!(stderr.contains("cannot be used with '--device"), "{arguments:?}: {stderr}");
    }
}

#[test]
fn the_host_of_a_ping_follows_its_device() {
    // No host has this name (RFC 6761, 6.4), so the error shows which word was taken for the host.
    for (arguments, code, wanted) in [
        (&["soft0", "host.invalid"][..], 1, "host.invalid"),
        (&["--device", "soft0", "host.invalid"], 1, "host.invalid"),
        (&["host.invalid", "-d", "soft0"], 1, "host.invalid"),
        (&["host.invalid"], 3, "no device host.invalid; there is "),
        (&["host.invalid", "soft0"], 3, "no device host.invalid; there is "),
        (&["--device", "soft0", "soft0", "host.invalid"], 2, "--device names the device already"),
        (&["soft0", "host.invalid", "--loopback"], 2, "--loopback: both sides are in this process"),
    ] {
        let arguments = [&["ping", "--timeout", "1s"], arguments].concat();
        let output = run(&arguments);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {stderr}");
        assert!(stderr.contains(wanted), "{arguments:?}: {stderr}");
    }
}
