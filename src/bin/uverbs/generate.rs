//! `uverbs completions` and `uverbs man`: made from the command line's own definition.

use std::path::PathBuf;

use clap_complete::Shell;

use crate::Outcome;
use crate::failure::Failure;
use crate::output::Output;

/// The name that the program is installed under.
const NAME: &str = "uverbs";

/// Options of `uverbs completions`.
#[derive(Debug, clap::Args)]
pub(crate) struct Completions {
    /// The shell.
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(&self, mut command: clap::Command) -> Outcome {
        let mut text = Vec::new();
        clap_complete::generate(self.shell, &mut command, NAME, &mut text);
        printed(&text)
    }
}

/// Options of `uverbs man`.
#[derive(Debug, clap::Args)]
pub(crate) struct Man {
    /// The subcommand of the page, such as `stat` or `bench read`. Default: the page of the program.
    #[arg(value_name = "SUBCOMMAND")]
    subcommand: Vec<String>,
    /// Write the pages of the program and of all subcommands to this directory: uverbs.1, uverbs-stat.1, ...
    #[arg(long, value_name = "DIR", conflicts_with = "subcommand")]
    dir: Option<PathBuf>,
}

impl Man {
    pub(crate) fn run(&self, command: clap::Command) -> Outcome {
        let mut command = command.name(NAME).disable_help_subcommand(true);
        command.build();
        if let Some(dir) = &self.dir {
            let written = clap_mangen::generate_to(command, dir);
            return written.map_err(|error| Failure::File(dir.display().to_string(), error));
        }
        let mut page = &command;
        for name in &self.subcommand {
            page = page.find_subcommand(name).ok_or_else(|| {
                let there: Vec<_> = page.get_subcommands().map(clap::Command::get_name).collect();
                let name = name.escape_debug();
                Failure::Usage(format!("no subcommand {name}; there is {}", there.join(", ")))
            })?;
        }
        let mut text = Vec::new();
        let rendered = clap_mangen::Man::new(page.clone()).render(&mut text);
        rendered.map_err(Failure::Output)?;
        printed(&text)
    }
}

fn printed(text: &[u8]) -> Outcome {
    Output::new().text(String::from_utf8_lossy(text))
}
