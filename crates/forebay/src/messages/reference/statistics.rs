//! `docs/reference/statistics.md`: every figure that commands give as JSON, from the types that are serialised.

use std::collections::VecDeque;
use std::fmt::Write as _;

use forebay_host::pool::report::PoolReport;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

use super::markdown::{paragraph, sentence, table};
use super::tree::{About, Tree, description};
use crate::daemon::api::{DaemonInfo, DiskStats, Minute};

/// Types whose codes have a page of their own.
const STATES: [&str; 5] = ["LogState", "DestageLimit", "TierState", "IndexState", "PrimaryState"];

pub(super) fn page() -> String {
    let mut page = String::from("# Statistics\n");
    paragraph(
        &mut page,
        "With `--json` a command prints its figures as one line of JSON. This page lists each figure with its path in that \
         line, as `jq` takes it. Figures keep their names and units from version to version. New ones may come.",
    );
    paragraph(
        &mut page,
        "Sums begin at 0 when a disk is opened, and only grow. A rate is the difference of two readings. A unit of `count` \
         means a number of the things that the meaning names.",
    );
    let mut codes = Codes::default();
    root::<DiskStats>(
        &mut page,
        "A disk: `forebay stats`, `forebay disk show`",
        "`disk show` has two more keys. `expected` is a miss-ratio curve, as `forebay disk mrc --json` has it. `advice` is the \
         kept advice and what came of it, as `forebay disk advise --json` has it. `disk set`, `disk pause` and `disk resume` \
         print the figures of a disk, too.",
        &mut codes,
    );
    root::<Minute>(
        &mut page,
        "A minute of a disk: `forebay stats --history`",
        "There is a line for each minute of the last four hours in which a request came or waited.",
        &mut codes,
    );
    root::<PoolReport>(&mut page, "A flash pool: `forebay pool show`", "", &mut codes);
    root::<DaemonInfo>(
        &mut page,
        "A daemon: `forebay run`, `forebay serve`",
        "A daemon prints this line when it is ready. `forebay disk list` prints one object of `disks` for each disk. It adds \
         `is_detaching`, `mode_actual`, `primary_storage`, `storage_changed` and `dirty_bytes`, which mean the same as in the figures of a disk. \
         `log_state` is `log.state` there. `is_silent` says that the disk did not answer within a second: \
         what else is added is old, or absent. An object of `refused` is a disk that is not served. A disk that is being opened is \
         `{\"is_starting\":true,\"name\":…}`.",
        &mut codes,
    );
    codes.write(&mut page);
    page
}

/// What one JSON object has, with the objects in it.
fn root<T: JsonSchema>(page: &mut String, heading: &str, text: &str, codes: &mut Codes) {
    let settings = SchemaSettings::draft07().for_serialize();
    let tree = Tree::new(settings.into_generator().into_root_schema_for::<T>());
    let _ = write!(page, "\n## {heading}\n");
    if !text.is_empty() {
        paragraph(page, text);
    }
    let mut queue =
        VecDeque::from([Object { name: None, schema: tree.root(), paths: vec![String::new()] }]);
    while let Some(object) = queue.pop_front() {
        if object.name.is_some() {
            let _ = write!(page, "\n### {}\n", spelled(&object.paths));
            paragraph(page, &sentence(&description(&Value::Object(object.schema.clone()))));
        }
        let prefix = if let [only] = &object.paths[..] { only.as_str() } else { "" };
        let mut rows = Vec::new();
        for (key, schema) in Tree::properties(object.schema) {
            let about = tree.about(schema);
            let given = object.schema.get("required").and_then(Value::as_array);
            let given = match given.is_some_and(|keys| keys.contains(&key.as_str().into())) {
                false => ", or absent",
                true if about.is_nullable => ", or null",
                true => "",
            };
            rows.push([
                format!("`{}`", path(prefix, key)),
                unit(key, &about, codes) + given,
                sentence(&description(schema)),
            ]);
            let Some(name) = about.name.filter(|_| about.schema.contains_key("properties")) else {
                continue;
            };
            let list = if about.is_list { "[]" } else { "" };
            let paths = object.paths.iter().map(|before| path(before, key) + list);
            match queue.iter_mut().find(|it| it.name == Some(name)) {
                Some(known) => known.paths.extend(paths),
                None => {
                    let (name, paths) = (Some(name), paths.collect());
                    queue.push_back(Object { name, schema: about.schema, paths });
                }
            }
        }
        table(page, ["path", "unit", "meaning"], &rows);
    }
}

struct Object<'a> {
    name: Option<&'a str>,
    schema: &'a Map<String, Value>,
    /// Where it is found.
    paths: Vec<String>,
}

/// A path as `jq` takes it.
fn path(before: &str, key: &str) -> String {
    let is_plain = key.chars().all(|letter| letter.is_alphanumeric() || letter == '_');
    match is_plain {
        true => format!("{before}.{key}"),
        false => format!("{before}.\"{key}\""),
    }
}

/// Paths in a heading.
fn spelled(paths: &[String]) -> String {
    if let [first, _, _, ..] = paths {
        let folder = first.rsplit_once('.').map_or("", |(folder, _)| folder);
        return format!("`{folder}.*`");
    }
    paths.iter().map(|path| format!("`{path}`")).collect::<Vec<_>>().join(", ")
}

/// What a figure counts in.
fn unit(key: &str, about: &About<'_>, codes: &mut Codes) -> String {
    let kind = match about.schema.get("type") {
        Some(Value::Array(types)) => types[0].as_str(),
        Some(Value::String(one)) => Some(one.as_str()),
        _ => None,
    };
    let one = match (kind, about.name) {
        (Some("object"), _) => "object".to_owned(),
        (Some("boolean"), _) => "true, false".to_owned(),
        (Some("integer"), _) => unit_of_number(key).to_owned(),
        (Some("number"), _) => if key.contains("Percentage") { "%" } else { "number" }.to_owned(),
        (_, Some(name)) if STATES.contains(&name) => "[code](states.md)".to_owned(),
        (_, Some(name)) if codes.note(name, about.schema) => {
            format!("[code](#{})", title(name).to_lowercase())
        }
        (Some("array"), _) => "list".to_owned(),
        _ => "text".to_owned(),
    };
    match (about.is_list, one.as_str()) {
        (false, _) => one,
        (true, "object") => "list of objects".to_owned(),
        (true, _) => format!("list of {one}"),
    }
}

fn unit_of_number(key: &str) -> &'static str {
    const BYTES: [&str; 8] = [
        "block_size",
        "disk_size",
        "granule_size",
        "grid_offset",
        "last_offset",
        "length",
        "offset",
        "segment_size",
    ];
    const DATES: [&str; 3] = ["closed", "created", "opened"];
    const NUMBERS: [&str; 7] =
        ["epoch", "generation", "generation_pending", "last_page", "number", "pid", "shard"];
    match key {
        _ if key.ends_with("bytes_per_second") => "bytes/s",
        _ if key.ends_with("_per_second") => "1/s",
        _ if key.ends_with("_ns") => "ns",
        _ if key.ends_with("_ms") => "ms",
        _ if key.contains("bytes") || key == "size" || BYTES.contains(&key) => "bytes",
        _ if DATES.contains(&key) => "s since 1970",
        _ if NUMBERS.contains(&key) || key.ends_with("_sequence") => "number",
        _ => "count",
    }
}

/// Types with a fixed set of words.
#[derive(Default)]
struct Codes(Vec<(String, Vec<[String; 2]>)>);

impl Codes {
    /// Notes a type; false: it is none.
    fn note(&mut self, name: &str, schema: &Map<String, Value>) -> bool {
        let Some(words) = schema.get("oneOf").and_then(Value::as_array) else { return false };
        if self.0.iter().all(|(known, _)| *known != title(name)) {
            let row = |word: &Value| {
                [
                    format!("`{}`", word["const"].as_str().unwrap_or_default()),
                    sentence(&description(word)),
                ]
            };
            self.0.push((title(name), words.iter().map(row).collect()));
        }
        true
    }

    fn write(&self, page: &mut String) {
        page.push_str("\n## Codes\n");
        paragraph(
            page,
            "A code keeps its meaning from version to version. [States](states.md) has those of states.",
        );
        for (name, rows) in &self.0 {
            let _ = write!(page, "\n### {name}\n");
            table(page, ["code", "meaning"], rows);
        }
    }
}

/// A type for people.
fn title(name: &str) -> String {
    match name {
        "IoStatus" => "Status",
        "DestageOrder" => "Order",
        "PrimaryOp" => "Operation",
        "RequestOp" => "Request",
        "SessionState" => "Session",
        name => name,
    }
    .to_owned()
}
