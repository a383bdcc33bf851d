//! `forebay completion`: what clap makes of the command line, with the names of disks in bash, zsh and fish.
//!
//! The script asks `forebay disk list` when a name is wanted, so that it knows the disks of that moment.

use std::io::Write;

use anyhow::Result;
use clap::CommandFactory;
use clap_complete::Shell;

use crate::cli::Cli;

/// The names at the start of the lines of `forebay disk list`. A daemon that hangs is not waited for.
const DISKS: &str = r#"_forebay_disks() {
    timeout 2 forebay disk list 2>/dev/null | sed -n 's/^\([[:alnum:]_][[:alnum:]_.-]*\)  .*/\1/p'
}
"#;
const ZSH: &str = r#"_forebay_disk() {
    local -a disks
    disks=(${(f)"$(_forebay_disks)"})
    compadd -a disks
}
"#;

const FISH: &str = r#"function __forebay_disks
    timeout 2 forebay disk list 2>/dev/null | string match -r '^[[:alnum:]_][[:alnum:]_.-]*(?=  )'
end
"#;

/// Prints the script.
pub(super) fn completion(shell: Shell) -> Result<()> {
    // Into memory first: the generator does not take a closed pipe.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "forebay", &mut script);
    let script = String::from_utf8(script)?;
    let script = match shell {
        Shell::Bash => bash(&script),
        Shell::Zsh => zsh(&script),
        Shell::Fish => fish(&script),
        _ => script,
    };
    std::io::stdout().write_all(script.as_bytes())?;
    Ok(())
}

/// Puts a function of ours before that of clap.
fn bash(script: &str) -> String {
    let mut command = Cli::command();
    command.build();
    let (mut cases, mut options) = (String::new(), vec!["--control".to_owned()]);
    for (path, command) in of_a_disk(&command, &[]) {
        let words = if path.len() == 1 { format!("{} *", path[0]) } else { path.join(" ") };
        let pattern = words.replace(' ', "\\ ");
        cases += &format!("        {pattern}) depth={} ;;\n", path.len());
        let takes_value = command.get_opts().filter_map(|option| option.get_long());
        options.extend(takes_value.map(|name| format!("--{name}")));
    }
    options.sort();
    options.dedup();
    let options = options.join("|");
    let ours = format!(
        r#"{DISKS}_forebay_with_disks() {{
    _forebay "$@"
    local depth=0 cur="${{COMP_WORDS[COMP_CWORD]}}"
    case "${{COMP_WORDS[1]}} ${{COMP_WORDS[2]}}" in
{cases}    esac
    case "${{COMP_WORDS[COMP_CWORD-1]}}" in
        {options}) return ;;
    esac
    if ((depth > 0 && COMP_CWORD > depth)) && [[ "$cur" != -* ]]; then
        COMPREPLY=($(compgen -W "$(_forebay_disks)" -- "$cur"))
    fi
}}
"#
    );
    ours + &script.replace("complete -F _forebay ", "complete -F _forebay_with_disks ")
}

/// Lets clap's function ask ours for a disk.
fn zsh(script: &str) -> String {
    let ask = |line: &str| match line.trim_start_matches(['\'', ':']).starts_with("disk -- ") {
        true => line.replace(":_default'", ":_forebay_disk'"),
        false => line.to_owned(),
    };
    let script: String = script.lines().map(|line| ask(line) + "\n").collect();
    script.replacen("_forebay() {", &format!("{DISKS}{ZSH}_forebay() {{"), 1)
}

/// Adds what asks ours for a disk, after the words of each command that takes one.
fn fish(script: &str) -> String {
    let mut command = Cli::command();
    command.build();
    let ask = |(path, _): (Vec<&str>, _)| {
        let last = match path[1..].last() {
            Some(word) => format!("; and __fish_seen_subcommand_from {word}"),
            None => String::new(),
        };
        let first = path[0];
        format!(
            "complete -c forebay -n \"__fish_forebay_using_subcommand {first}{last}\" -f -a \"(__forebay_disks)\"\n"
        )
    };
    let asks: String = of_a_disk(&command, &[]).into_iter().map(ask).collect();
    format!("{FISH}\n{script}{asks}")
}

/// The commands that take the name of a disk, with the words that lead there.
fn of_a_disk<'a>(
    command: &'a clap::Command,
    path: &[&'a str],
) -> Vec<(Vec<&'a str>, &'a clap::Command)> {
    let mut found = Vec::new();
    for child in command.get_subcommands().filter(|child| child.get_name() != "help") {
        let path = [path, &[child.get_name()]].concat();
        found.extend(of_a_disk(child, &path));
        if child.get_positionals().any(|argument| argument.get_id() == "disk") {
            found.push((path, child));
        }
    }
    found
}
