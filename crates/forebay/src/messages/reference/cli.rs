//! `docs/reference/cli.md`: every command with its arguments, as clap knows them.

use std::fmt::Write as _;

use clap::{Arg, ArgAction, Command, CommandFactory};

use super::markdown::{anchor, block, list, paragraph, prose, sentence, table};
use crate::cli::Cli;
use crate::config::schema::split_default;

const HEADS: [&str; 3] = ["argument", "default", "meaning"];

pub(super) fn page() -> String {
    let mut root = Cli::command();
    root.build();
    let mut page = String::from("# Command line\n");
    paragraph(
        &mut page,
        "Forebay is one program with a command for each task. `forebay COMMAND --help` prints what this page has about that \
         command. `forebay man` prints all of it as a manual page. [Exit codes](errors.md#exit-codes) say how a command ended.",
    );
    paragraph(
        &mut page,
        "A size is a number of bytes such as `512`, `8KiB` or `1.5GiB`. A time has a unit: `500ms`, `30s`, `2min`. Every \
         command takes `--help` and `--version`. With the variable `FOREBAY_LOG=debug` a command logs more.",
    );
    let mut commands = Vec::new();
    leaves(&root, &mut commands);
    let row = |command: &&Command| {
        let name = name(command);
        [format!("[`{name}`](#{})", anchor(&name)), sentence(&about(command))]
    };
    table(&mut page, ["command", "task"], &commands.iter().map(row).collect::<Vec<_>>());
    let shared = shared(&commands);
    let names: Vec<&str> = shared.iter().map(|(name, _)| *name).collect();
    for command in commands {
        describe(command, &names, &mut page);
    }
    for (heading, these) in &shared {
        let _ = write!(page, "\n## {}\n", shared_title(heading));
        table(&mut page, HEADS, &rows(these));
    }
    page
}

/// The commands that do something, below `command`.
fn leaves<'a>(command: &'a Command, found: &mut Vec<&'a Command>) {
    let is_shown = |it: &&Command| it.get_name() != "help" && !it.is_hide_set();
    let mut children = command.get_subcommands().filter(is_shown).peekable();
    if children.peek().is_none() {
        found.push(command);
    }
    children.for_each(|child| leaves(child, found));
}

fn name(command: &Command) -> String {
    command.get_bin_name().unwrap_or(command.get_name()).to_owned()
}

fn about(command: &Command) -> String {
    command.get_about().map(ToString::to_string).unwrap_or_default()
}

/// A command. The options under the headings of `shared` are described elsewhere.
fn describe(command: &Command, shared: &[&str], page: &mut String) {
    let _ = write!(page, "\n## {}\n", name(command));
    paragraph(page, &sentence(&about(command)));
    let usage = command.clone().render_usage().to_string();
    block(page, "", usage.trim_start_matches("Usage: "));
    for (heading, these) in groups(command) {
        match heading {
            Some(heading) if shared.contains(&heading) => {
                let title = shared_title(heading);
                let link = format!("[{}](#{})", title.to_lowercase(), anchor(&title));
                paragraph(page, &format!("It also takes the {link}."));
                continue;
            }
            Some(heading) => {
                let _ = write!(page, "\n**{heading}**\n");
            }
            None => {}
        }
        table(page, HEADS, &rows(&these));
    }
    if let Some(text) = command.get_after_help() {
        after(&text.to_string(), page);
    }
}

/// The arguments of a command under their headings, in the order of its help.
fn groups(command: &Command) -> Vec<(Option<&str>, Vec<&Arg>)> {
    let mut groups: Vec<(Option<&str>, Vec<&Arg>)> = Vec::new();
    for argument in command.get_arguments() {
        if argument.is_hide_set() || ["help", "version"].contains(&argument.get_id().as_str()) {
            continue;
        }
        let heading = argument.get_help_heading();
        match groups.iter_mut().find(|(known, _)| *known == heading) {
            Some((_, these)) => these.push(argument),
            None => groups.push((heading, vec![argument])),
        }
    }
    groups
}

/// Headings that several commands have, with the same options.
fn shared<'a>(commands: &[&'a Command]) -> Vec<(&'a str, Vec<&'a Arg>)> {
    let mut known: Vec<(&str, Vec<&Arg>, usize)> = Vec::new();
    for (heading, these) in commands.iter().flat_map(|command| groups(command)) {
        let Some(heading) = heading else { continue };
        match known.iter_mut().find(|(name, ..)| *name == heading) {
            Some((_, first, count)) => {
                assert_eq!(rows(first), rows(&these), "a heading has the same options everywhere");
                *count += 1;
            }
            None => known.push((heading, these, 1)),
        }
    }
    let several = known.into_iter().filter(|(.., count)| *count > 1);
    several.map(|(name, these, _)| (name, these)).collect()
}

fn shared_title(heading: &str) -> String {
    match heading {
        "Trace" => "Options for reading a trace".to_owned(),
        "Latencies" => "Options for latencies".to_owned(),
        other => format!("{other} options"),
    }
}

fn rows(arguments: &[&Arg]) -> Vec<[String; 3]> {
    arguments.iter().map(|it| row(it)).collect()
}

fn row(argument: &Arg) -> [String; 3] {
    let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    let (help, default) = split_default(&help);
    let is_switch = matches!(argument.get_action(), ArgAction::SetTrue);
    let given = argument.get_default_values().iter().map(|value| value.to_string_lossy());
    let given: Vec<String> = given.map(|value| format!("`{value}`")).collect();
    let default = match default {
        Some(words) if words.contains(' ') || words == "all" => prose(words),
        Some("none") if !spelled(argument).contains("none") => "none".to_owned(),
        Some(value) => format!("`{value}`"),
        None if argument.is_required_set() => "required".to_owned(),
        None if is_switch => String::new(),
        None => given.join(", "),
    };
    [spelled(argument), default, sentence(help)]
}

/// How an argument is written on a command line.
fn spelled(argument: &Arg) -> String {
    let values = argument.get_value_names().unwrap_or_default();
    let values = values.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(" ");
    let takes_value = matches!(argument.get_action(), ArgAction::Set | ArgAction::Append);
    let is_optional = argument.get_num_args().is_some_and(|count| count.min_values() == 0);
    if argument.is_positional() {
        return format!("`{values}`");
    }
    let short = argument.get_short().map(|short| format!("`-{short}`, ")).unwrap_or_default();
    let long = argument.get_long().expect("an option has a long name");
    let aliases = argument.get_visible_aliases().unwrap_or_default();
    let aliases: String = aliases.iter().map(|alias| format!(", `--{alias}`")).collect();
    match (takes_value, is_optional) {
        (false, _) => format!("{short}`--{long}`{aliases}"),
        (true, true) => format!("{short}`--{long}[={values}]`{aliases}"),
        (true, false) => format!("{short}`--{long} {values}`{aliases}"),
    }
}

/// What stands below the options: prose, and lines that are set in by two columns as they are.
fn after(text: &str, page: &mut String) {
    let lines: Vec<&str> = text.lines().collect();
    let is_set_in = |line: &&str| line.starts_with("  ");
    let mut at = 0;
    while at < lines.len() {
        let is_block = is_set_in(&lines[at]);
        // An empty line ends a paragraph, and stays within what is set in.
        let goes_on = |end: usize| match lines.get(end) {
            None => false,
            Some(&"") => is_block && lines.get(end + 1).is_some_and(is_set_in),
            Some(line) => is_set_in(line) == is_block,
        };
        let end = (at..).find(|end| !goes_on(*end)).expect("the text ends");
        let points = lines[at..end].iter().map(|line| line.strip_prefix("  - "));
        let points: Option<Vec<&str>> = points.collect();
        match (is_block, points) {
            (true, Some(points)) => list(page, points.into_iter().map(prose)),
            (true, None) => {
                let shown = lines[at..end].iter().map(|line| line.get(2..).unwrap_or_default());
                block(page, "", &shown.collect::<Vec<_>>().join("\n"));
            }
            (false, _) => paragraph(page, &prose(&lines[at..end].join(" "))),
        }
        at = end + lines[end..].iter().take_while(|line| line.is_empty()).count();
    }
}
