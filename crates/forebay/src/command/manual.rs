//! `forebay man`: the manual page.
//!
//! The page has the command, then a section for each of its subcommands, which have no pages of their
//! own. `clap_mangen` writes what it knows of a command. The text below the options, with the
//! examples, is written here: an example can be pasted only if no line of it is filled or hyphenated.

use anyhow::{Context, Result};
use clap::{Command, CommandFactory};
use clap_mangen::Man;

use crate::cli::Cli;

/// Spaces before an example, a table or a list in the text below the options.
const INDENT: &str = "  ";

/// The whole page.
pub(super) fn page() -> Result<String> {
    let mut command = Cli::command();
    command.build();
    let man = Man::new(command.clone());
    let mut page = rendered(|out| man.render_title(out))?;
    // Paths and options are not to be cut, nor pulled apart.
    page += ".nh\n.ad l\n";
    page += &rendered(|out| {
        man.render_name_section(out)?;
        man.render_synopsis_section(out)?;
        man.render_description_section(out)?;
        man.render_options_section(out)
    })?;
    page += &below_options(&command, ".SH");
    page += &rendered(|out| man.render_version_section(out))?;
    subcommands(&command, &mut page)?;
    Ok(page)
}

fn subcommands(command: &Command, page: &mut String) -> Result<()> {
    let is_shown = |it: &&Command| it.get_name() != "help" && !it.is_hide_set();
    for child in command.get_subcommands().filter(is_shown) {
        let name = child.get_bin_name().unwrap_or(child.get_name()).to_uppercase();
        *page += &format!(".SH \"{name}\"\n");
        let man = Man::new(child.clone());
        let sections = rendered(|out| {
            man.render_synopsis_section(out)?;
            man.render_description_section(out)?;
            man.render_options_section(out)
        })?;
        // They are parts of the section of the subcommand.
        *page += format!("\n{sections}").replace("\n.SH ", "\n.SS ").trim_start();
        *page += &below_options(child, ".SS");
        subcommands(child, page)?;
    }
    Ok(())
}

fn rendered(render: impl FnOnce(&mut Vec<u8>) -> std::io::Result<()>) -> Result<String> {
    let mut out = Vec::new();
    render(&mut out)?;
    String::from_utf8(out).context("the manual page is not UTF-8")
}

/// The text below the options, under a heading.
fn below_options(command: &Command, heading: &str) -> String {
    let Some(text) = command.get_after_help().map(ToString::to_string) else {
        return String::new();
    };
    let text = text.trim_end();
    let (title, text) = match text.split_once('\n') {
        Some(("Example:" | "Examples:", examples)) => ("EXAMPLES", examples),
        _ => ("NOTES", text),
    };
    format!("{heading} {title}\n{}", set(text))
}

/// Prose is filled; what is indented stays as it is.
fn set(text: &str) -> String {
    let (mut out, mut is_as_typed) = (String::new(), false);
    for line in text.lines() {
        let typed = line.strip_prefix(INDENT);
        if typed.is_some() != is_as_typed && !line.is_empty() {
            is_as_typed = typed.is_some();
            out += if is_as_typed { ".nf\n" } else { ".fi\n" };
        }
        out += &match typed.unwrap_or(line) {
            "" if is_as_typed => "\n".to_owned(),
            "" => ".PP\n".to_owned(),
            line => escaped(line) + "\n",
        };
    }
    if is_as_typed { out + ".fi\n" } else { out }
}

/// A line as roff prints it letter by letter.
fn escaped(line: &str) -> String {
    let mut out = String::new();
    // At the beginning of a line they are a request.
    if line.starts_with(['.', '\'']) {
        out += "\\&";
    }
    for letter in line.chars() {
        match letter {
            '\\' => out += "\\e",
            '-' => out += "\\-",
            '\'' => out += "\\(aq",
            '`' => out += "\\(ga",
            '^' => out += "\\(ha",
            '~' => out += "\\(ti",
            letter => out.push(letter),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_stay_as_they_are_and_prose_is_filled() {
        let set = set("Prose of a-b.\n\n  forebay x --a '.' \\\n      ~/b\n\n  .c\nMore:\n  1\n");
        let expect = "Prose of a\\-b.\n.PP\n.nf\nforebay x \\-\\-a \\(aq.\\(aq \\e\n    \\(ti/b\n\n\\&.c\n.fi\n\
                      More:\n.nf\n1\n.fi\n";
        assert_eq!(set, expect);
    }

    #[test]
    fn each_subcommand_has_its_synopsis_and_its_examples() {
        let page = page().unwrap();
        let count = |what: &str| page.matches(what).count();
        assert_eq!(count("\n.SS SYNOPSIS\n"), count("\n.SH \"FOREBAY "), "{page}");
        assert_eq!(count("\n.nf\n"), count("\n.fi\n"), "{page}");
        assert!(page.contains("\nforebay run file:/san/db.raw \\-\\-ram 256MiB"), "{page}");
    }
}
