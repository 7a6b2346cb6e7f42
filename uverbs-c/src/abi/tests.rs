//! Compares the layouts with those of the installed header, or of the header in the directory that `UVERBS_C_HEADERS` names. `cc` compiles
//! the header, or the compiler that `UVERBS_C_COMPILER` names: a cross compiler, if this test is built for another processor and is run by
//! an emulator.

use std::fmt::Write as _;
use std::process::Command;

use super::{attr, objects, requests};

#[path = "../../../tests/common/skips.rs"]
mod skips;
use skips::skipped;

/// Structures of versions of rdma-core that are newer than that of Debian 12.
const NEWER: [&str; 5] = [
    "ibv_mr_init_attr",
    "ibv_comp_cntr",
    "ibv_comp_cntr_init_attr",
    "ibv_comp_cntr_caps",
    "ibv_qp_attach_comp_cntr_attr",
];

#[test]
fn layouts_are_those_of_the_installed_header() {
    let named = std::env::var("UVERBS_C_HEADERS").ok();
    let directory = named.clone().unwrap_or_else(|| "/usr/include".into());
    let header = format!("{directory}/infiniband/verbs.h");
    let Ok(known) = std::fs::read_to_string(&header) else {
        assert!(named.is_none(), "there is no {header}");
        skipped(format_args!("layouts: there is no {header} (package libibverbs-dev)"));
        return;
    };
    let mut source = String::from(
        "#include <infiniband/sa.h>\n#include <infiniband/verbs.h>\n#include <rdma/ib_user_sa.h>\n#include <stddef.h>\n#define IS(what, number) _Static_assert((what) == (number), #what \" is not \" #number);\n",
    );
    for layout in [attr::LAYOUTS, objects::LAYOUTS, requests::LAYOUTS].concat() {
        let name = layout.name;
        if NEWER.contains(&name) && !known.contains(&format!("struct {name} {{")) {
            skipped(format_args!("layout of {name}: {header} is older"));
            continue;
        }
        if name != "ibv_qp_ex" && name != "ibv_port_attr" {
            // These two grow at their end, so those of the header may be shorter or longer.
            writeln!(source, "IS(sizeof(struct {name}), {})", layout.size).unwrap();
        }
        for (offset, field) in layout.fields {
            let field = if name == "ibv_async_event" { field } else { field.trim_end_matches('_') };
            if ["active_speed_ex", "wr_flush", "_rest"].contains(&field) {
                continue;
            }
            writeln!(source, "IS(offsetof(struct {name}, {field}), {offset})").unwrap();
        }
    }
    assert!(source.matches("IS(sizeof").count() > 40, "most structures are missing");
    let include = format!("-I{directory}");
    let directory = std::env::temp_dir().join(format!("uverbs-c-layouts-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let file = directory.join("layouts.c");
    std::fs::write(&file, source).unwrap();
    let compiler = std::env::var("UVERBS_C_COMPILER").unwrap_or_else(|_| "cc".into());
    let compiled =
        Command::new(compiler).arg(include).arg("-fsyntax-only").arg(&file).output().expect("a C compiler");
    std::fs::remove_dir_all(&directory).unwrap();
    // The messages of the compiler name each line that is wrong.
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
}
