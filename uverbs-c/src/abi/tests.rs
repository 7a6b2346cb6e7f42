//! The layouts are those of the installed header.

use std::fmt::Write as _;
use std::process::Command;

use super::{attr, objects, requests};

#[test]
fn layouts_are_those_of_the_installed_header() {
    let header = "/usr/include/infiniband/verbs.h";
    if !std::path::Path::new(header).exists() {
        println!("skipped: there is no {header} (package libibverbs-dev)");
        return;
    }
    let mut source = String::from(
        "#include <infiniband/sa.h>\n#include <infiniband/verbs.h>\n#include <rdma/ib_user_sa.h>\n#include <stddef.h>\n#include <stdio.h>\nint main(void) {\n",
    );
    let mut wanted = String::new();
    for layout in [attr::LAYOUTS, objects::LAYOUTS, requests::LAYOUTS].concat() {
        let name = layout.name;
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
    let directory = std::env::temp_dir().join(format!("uverbs-c-layouts-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let (file, program) = (directory.join("layouts.c"), directory.join("layouts"));
    std::fs::write(&file, source).unwrap();
    let compiled = Command::new("cc").arg(&file).arg("-o").arg(&program).status().expect("a C compiler");
    assert!(compiled.success(), "{} does not compile", file.display());
    let printed = Command::new(&program).output().unwrap().stdout;
    std::fs::remove_dir_all(&directory).unwrap();
    assert_eq!(String::from_utf8(printed).unwrap(), wanted);
}
