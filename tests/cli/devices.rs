//! How subcommands take their device: as a word or as an option, with a list of the devices if it is missing or unknown.

use std::process::{Command, Output};

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_uverbs")).args(arguments).output().expect("the program starts")
}

/// Arguments of every subcommand that works on a device, without the device, and so that it ends soon.
const SUBCOMMANDS: &[&[&str]] = &[
    &["info"],
    &["stat"],
    &["watch", "--count", "1", "--interval", "10ms"],
    &["export", "--once", "-"],
    &["ping", "--iters", "2"],
    &["bench", "read", "--samples", "10"],
];

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
        // These two are about all devices.
        if ["stat", "export"].contains(&arguments[0]) {
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
    for arguments in [&["info"][..], &["stat"], &["watch"], &["bench", "read"]] {
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
