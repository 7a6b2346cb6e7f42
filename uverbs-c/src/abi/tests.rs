//! The layouts are those of the installed header, or of the one in the directory that `UVERBS_C_HEADERS` names.

use std::fmt::Write as _;
use std::process::Command;

use super::{attr, objects, requests};

#[path = "../../../tests/common/skips.rs"]
mod skips;
use skips::skipped;

/// Structures that rdma-core has had since a version that Debian 12 does not have.
const NEWER: [&str; 5] = [
    "ibv_mr_init_attr",
    "ibv_comp_cntr",
    "ibv_comp_cntr_init_attr",
    "ibv_comp_cntr_caps",
    "ibv_qp_attach_comp_cntr_attr",
];

#[test]
fn layouts_are_those_of_the_installed_header() {
    let directory = std::env::var("UVERBS_C_HEADERS").unwrap_or_else(|_| "/usr/include".into());
    let header = format!("{directory}/infiniband/verbs.h");
    let Ok(known) = std::fs::read_to_string(&header) else {
        skipped(format_args!("layouts: there is no {header} (package libibverbs-dev)"));
        return;
    };
    let mut source = String::from(
        "#include <infiniband/sa.h>\n#include <infiniband/verbs.h>\n#include <rdma/ib_user_sa.h>\n#include <stddef.h>\n#include <stdio.h>\nint main(void) {\n",
    );
    let mut wanted = String::new();
    for layout in [attr::LAYOUTS, objects::LAYOUTS, requests::LAYOUTS].concat() {
        let name = layout.name;
        if NEWER.contains(&name) && !known.contains(&format!("struct {name} {{")) {
            skipped(format_args!("layout of {name}: {header} is older"));
            continue;
        }
        if name != "ibv_qp_ex" && name != "ibv_port_attr" {
            // These two grow at their end, so that theirs may be shorter or longer.
            writeln!(source, "printf(\"{name} %zu\\n\", sizeof(struct {name}));").unwrap();
            writeln!(wanted, "{name} {}", layout.size).unwrap();
        }
        for (offset, field) in layout.fields {
            let field = if name == "ibv_async_event" { field } else { field.trim_end_matches('_') };
            if ["active_speed_ex", "wr_flush", "_rest"].contains(&field) {
                continue;
            }
            writeln!(source, "printf(\"{name}.{field} %zu\\n\", offsetof(struct {name}, {field}));").unwrap();
            writeln!(wanted, "{name}.{field} {offset}").unwrap();
        }
    }
    source.push_str("return 0; }\n");
    let include = format!("-I{directory}");
    let directory = std::env::temp_dir().join(format!("uverbs-c-layouts-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let (file, program) = (directory.join("layouts.c"), directory.join("layouts"));
    std::fs::write(&file, source).unwrap();
    let compiled =
        Command::new("cc").arg(include).arg(&file).arg("-o").arg(&program).status().expect("a C compiler");
    assert!(compiled.success(), "{} does not compile", file.display());
    let printed = Command::new(&program).output().unwrap().stdout;
    std::fs::remove_dir_all(&directory).unwrap();
    assert_eq!(String::from_utf8(printed).unwrap(), wanted);
}
