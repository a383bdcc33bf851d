//! `docs/reference/configuration.md` and the schema beside it: every key of the configuration file.

use std::fmt::Write as _;

use clap::Args;
use serde_json::{Map, Value};

use super::markdown::{block, paragraph, prose, sentence, table};
use super::tree::{Tree, description};
use crate::config::{DiskOptions, schema};

const EXAMPLE: &str = r#"
shards = 2
state-dir = "/var/lib/forebay"

[[disk]]
name = "db"
backend = "file:/san/db.raw"
ram = "256MiB"
flash = "/nvme/pool:4GiB"               # several disks may share one flash file or device
nbd = ["unix:/run/forebay/db.sock"]     # a listener for this disk alone

[[nbd]]                                 # a listener for several disks
listen = "127.0.0.1:10809"

[[iscsi]]                               # an iSCSI target
listen = ["10.0.0.1:3260", "[::1]:3260"]
target = "iqn.2026-01.org.example:db"
disks = ["db"]
"#;

/// The schema as a file.
pub(super) fn schema() -> String {
    serde_json::to_string_pretty(&schema::schema()).expect("a schema is JSON") + "\n"
}

pub(super) fn page() -> String {
    let tree = Tree::new(schema::schema());
    let definition = |name: &str| &tree.root()["definitions"][name];
    let mut page = String::from("# Configuration file\n");
    paragraph(
        &mut page,
        "`forebay serve --config FILE` reads one TOML file. It names disks and says where clients attach to them. \
         `forebay serve --config FILE --check` checks it and serves nothing.",
    );
    block(&mut page, "toml", EXAMPLE.trim());
    paragraph(
        &mut page,
        "A key that Forebay does not know is an error. So is a value of another type: write a size or a time in quotes. \
         Keys after a `[[disk]]` line belong to that disk, so write the keys of the daemon first.",
    );
    paragraph(
        &mut page,
        "`forebay reference schema` prints the JSON schema of the file, as in \
         [configuration.schema.json](configuration.schema.json). An editor with Taplo uses it when the file begins with \
         this line:",
    );
    block(&mut page, "toml", "#:schema ./configuration.schema.json");

    page.push_str("\n## The daemon\n");
    let tables = ["disk", "pool", "nbd", "iscsi"];
    let rows = rows(&tree, tree.root(), |key| !tables.contains(&key));
    table(&mut page, ["key", "type", "default", "meaning"], &rows);

    page.push_str("\n## [[disk]]\n");
    paragraph(
        &mut page,
        "One table for each disk. All keys but `name` and `backend` are also \
         [options of `forebay run`](cli.md#forebay-run).",
    );
    disk(&tree, &definition("disk")["properties"], &mut page);

    page.push_str("\n## [[pool]]\n");
    paragraph(
        &mut page,
        "Flash on several devices. A disk with `flash = \"fast:64GiB\"` has its share on one device of the pool `fast`. \
         [Share a host between disks](../operating/sharing.md#flash-on-several-devices) says on which.",
    );
    table_of(&tree, definition("pool"), &mut page);

    page.push_str("\n## [[nbd]]\n");
    paragraph(
        &mut page,
        "A listener that serves several disks. Each disk is an NBD export of its name.",
    );
    table_of(&tree, definition("nbd"), &mut page);

    page.push_str("\n## [[iscsi]]\n");
    paragraph(
        &mut page,
        "An iSCSI target with one or more disks. A disk is a logical unit of one target at most.",
    );
    table_of(&tree, definition("iscsi"), &mut page);

    page.push_str("\n## Types\n");
    let types = tree.root()["definitions"].as_object().expect("definitions are named");
    let types = types.iter().filter(|(_, about)| about.get("pattern").is_some());
    let row = |(name, about): (&String, &Value)| {
        let examples = about["examples"].as_array().into_iter().flatten();
        let examples = examples.map(|it| format!("`{it}`")).collect::<Vec<_>>().join(", ");
        [format!("<a id=\"{name}\"></a>{name}"), examples, prose(&description(about))]
    };
    table(&mut page, ["type", "examples", "meaning"], &types.map(row).collect::<Vec<_>>());
    page
}

/// The keys of a disk, by the headings of the command line.
fn disk(tree: &Tree, keys: &Value, page: &mut String) {
    let options = DiskOptions::augment_args(clap::Command::new("disk"));
    let options: Vec<_> = options.get_arguments().collect();
    let mut headings = Vec::new();
    for option in &options {
        if !headings.contains(&option.get_help_heading()) {
            headings.push(option.get_help_heading());
        }
    }
    let row = |key: &str, needed: bool| row(tree, key, &keys[key], needed);
    let first = [row("name", false), row("backend", true)];
    table(page, ["key", "type", "default", "meaning"], &first);
    for heading in headings {
        let _ = write!(page, "\n**{}**\n", heading.unwrap_or("Other"));
        let these = options.iter().filter(|it| it.get_help_heading() == heading);
        let rows: Vec<_> =
            these.filter_map(|it| it.get_long()).map(|key| row(key, false)).collect();
        table(page, ["key", "type", "default", "meaning"], &rows);
    }
}

fn table_of(tree: &Tree, about: &Value, page: &mut String) {
    let about = about.as_object().expect("a table has keys");
    table(page, ["key", "type", "default", "meaning"], &rows(tree, about, |_| true));
}

fn rows(
    tree: &Tree,
    about: &Map<String, Value>,
    wanted: impl Fn(&str) -> bool,
) -> Vec<[String; 4]> {
    let needed = |key: &String| {
        about
            .get("required")
            .is_some_and(|it| it.as_array().is_some_and(|it| it.contains(&key.as_str().into())))
    };
    let keys = Tree::properties(about).filter(|(key, _)| wanted(key));
    let mut keys: Vec<_> = keys.map(|(key, about)| (needed(key), key, about)).collect();
    keys.sort_by_key(|(needed, ..)| !needed);
    keys.into_iter().map(|(needed, key, about)| row(tree, key, about, needed)).collect()
}

fn row(tree: &Tree, key: &str, about: &Value, is_needed: bool) -> [String; 4] {
    let text = description(about);
    let (text, default) = schema::split_default(&text);
    let default = match (default, about.get("default")) {
        _ if is_needed => "required".to_owned(),
        (_, Some(value)) => format!("`{value}`"),
        (Some(words), None) => prose(words),
        (None, None) => String::new(),
    };
    [format!("`{key}`"), kind(tree, about), default, sentence(text)]
}

/// What a value is, in words.
fn kind(tree: &Tree, schema: &Value) -> String {
    let about = tree.about(schema);
    let says = |word: &str| about.schema.get(word);
    let number = |word: &str| says(word).and_then(Value::as_u64);
    let one = match (about.name, says("enum").and_then(Value::as_array)) {
        (Some(name), _) if says("pattern").is_some() => format!("[{name}](#{name})"),
        (_, Some(words)) => words.iter().map(|it| format!("`{it}`")).collect::<Vec<_>>().join(", "),
        _ => match (says("type").and_then(Value::as_str), number("minimum"), number("maximum")) {
            (Some("boolean"), ..) => "`true`, `false`".to_owned(),
            (Some("integer"), Some(from), Some(to)) => format!("number, {from} to {to}"),
            (Some("integer"), ..) => "number".to_owned(),
            (Some("object"), ..) => "table".to_owned(),
            _ => "text".to_owned(),
        },
    };
    if about.is_list { format!("list of {one}") } else { one }
}

#[cfg(test)]
mod tests {
    use crate::config::{file, values::Name};

    #[test]
    fn the_example_of_the_page_is_a_configuration() {
        let spec = file::parse(super::EXAMPLE, Name("test".into())).unwrap();
        assert_eq!((spec.disks.len(), spec.listeners.len(), spec.targets.len()), (1, 2, 1));
    }
}
