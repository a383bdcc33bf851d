use clap::{CommandFactory, Parser};

use super::*;
use crate::config::values::{Access, Address};
use forebay_core::config::SequentialBypass;

fn parse(line: &str) -> Result<Cli, String> {
    Cli::try_parse_from(line.split_whitespace()).map_err(|error| error.to_string())
}

#[test]
fn the_command_line_contradicts_itself_nowhere() {
    Cli::command().debug_assert();
}

#[test]
fn run_takes_every_documented_option() {
    let cli = parse(
        "forebay run file:/san/db.raw --name db --mode write-around --block-size 64KiB --ram 256MiB \
         --flash /nvme/pool:4GiB --nbd unix:/run/db.sock --nbd 127.0.0.1:0 --write-cache off \
         --grid-offset 32256 --policy lru --flash-admission always --bypass-sequential off \
         --metadata-limit 2GiB --backend-timeout 500ms --on-timeout wait --read-only --shards 2 \
         --reactor epoll --control /tmp/c.sock --json",
    )
    .unwrap();
    let Command::Run(args) = cli.command else { panic!("not run") };
    let name = args.name.clone().unwrap();
    let disk = args.disk.clone().resolve(name, args.backend.clone());
    assert_eq!(disk.block_size, 64 << 10);
    assert_eq!(disk.ram_bytes, 256 << 20);
    assert_eq!(disk.flash.as_ref().unwrap().bytes, 4 << 30);
    assert!(!disk.write_cache && disk.read_only);
    assert_eq!(disk.bypass_sequential.0, SequentialBypass::Off);
    assert_eq!(disk.backend_timeout, std::time::Duration::from_millis(500));
    assert_eq!(args.disk.nbd[0], Address::Unix("/run/db.sock".into(), Access::default()));
    assert_eq!(args.daemon.shards, Some(2));
}

#[test]
fn wrong_lines_name_the_argument_and_what_is_allowed() {
    let cases = [
        ("forebay run mem:1MiB --mode write-sideways", "allowed: write-through, write-around"),
        ("forebay run mem:1MiB --ram lots", "--ram"),
        ("forebay run mem:1MiB --flash /x", "PATH:SIZE"),
        ("forebay run mem:1MiB --nbd nowhere", "unix:PATH or HOST:PORT"),
        ("forebay run mem:1MiB --backend-timeout 30", "30s"),
        ("forebay run mem:1MiB --policy arc", "auto, s3fifo, lru, fifo"),
        ("forebay run mem:1MiB --name a/b", "letters, digits"),
        ("forebay run", "<BACKEND>"),
        ("forebay serve", "--config"),
        ("forebay trace replay x", "--target"),
        ("forebay trace replay x --target mem:1MiB --speed 2 --as-fast-as-possible", "--speed"),
    ];
    for (line, expect) in cases {
        let error = parse(line).unwrap_err();
        assert!(error.contains(expect), "{line}: {error}");
    }
}

/// Every command, its parents included.
fn all_commands() -> Vec<clap::Command> {
    let mut command = Cli::command();
    command.build();
    let (mut todo, mut all) = (vec![command], Vec::new());
    while let Some(command) = todo.pop() {
        todo.extend(command.get_subcommands().filter(|c| c.get_name() != "help").cloned());
        all.push(command);
    }
    all
}

#[test]
fn every_command_explains_itself_with_an_example() {
    for mut command in all_commands() {
        let help = command.render_long_help().to_string();
        if command.get_name() != "man" && !command.has_subcommands() {
            assert!(help.contains("Example"), "{}: {help}", command.get_name());
        }
    }
}

#[test]
fn help_wraps_paragraphs_and_leaves_examples_as_they_are() {
    for command in all_commands() {
        let Some(text) = command.get_after_help().map(ToString::to_string) else { continue };
        let name = command.get_bin_name().unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let is_prose = |line: &str| !line.is_empty() && !line.starts_with("  ");
        for pair in lines.windows(2) {
            let is_cut = is_prose(pair[0]) && is_prose(pair[1]);
            assert!(!is_cut, "{name}: a paragraph is one line of the text, see {pair:?}");
        }
        let shown = command.clone().term_width(80).render_long_help().to_string();
        for line in lines.iter().filter(|line| !is_prose(line)) {
            assert!(shown.lines().any(|it| it == *line), "{name}: 80 columns break {line:?}");
        }
    }
}

#[test]
fn an_example_that_goes_on_in_the_next_line_can_be_pasted() {
    for command in all_commands() {
        let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        for pair in text.lines().collect::<Vec<_>>().windows(2) {
            let is_example = pair[0].trim_start().starts_with("forebay ");
            let goes_on = is_example && pair[1].starts_with("      ");
            assert!(!goes_on || pair[0].ends_with(" \\"), "{pair:?}");
        }
    }
}

#[test]
fn completions_know_the_words_of_an_option() {
    let words = |path: &str, option: &str| {
        let mut command = Cli::command();
        for name in path.split(' ') {
            command = command.find_subcommand(name).unwrap().clone();
        }
        let option = command.get_arguments().find(|it| it.get_long() == Some(option)).unwrap();
        let words = option.get_possible_values();
        words.iter().map(|word| word.get_name().to_owned()).collect::<Vec<_>>().join(" ")
    };
    let modes = "write-through write-around write-back write-only pass-through monitor";
    assert_eq!(words("run", "mode"), modes);
    assert_eq!(words("disk set", "mode"), modes);
    assert_eq!(words("trace simulate", "mode"), modes);
    assert_eq!(words("run", "policy"), "auto s3fifo lru fifo");
    assert!(words("trace mrc", "policy").ends_with(" belady"));
    assert_eq!(words("trace convert", "to"), "fbt vscsi1 vscsi2 vscsi-csv msr fio2 fio3");
    assert!(words("trace info", "format").contains("blkparse"));
    assert_eq!(words("run", "nbd"), "");
}
