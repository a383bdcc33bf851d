//! The configuration file as a JSON schema (draft 7): for editors, and for the page that describes its keys.
//!
//! The schema comes from the types that read the file. It says what each key and value may be. What several of them
//! must be together, such as names that differ, the parser alone knows.

use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Value, json};

use super::DiskOptions;
use super::disk_table::DiskTable;
use super::file::File;
use super::values::Name;

#[cfg(test)]
mod check;

#[cfg(test)]
pub(crate) use check::violations;

/// What a configuration file may say.
pub fn schema() -> Schema {
    let settings = SchemaSettings::draft07().with_transform(RecursiveTransform(as_in_toml));
    let mut schema = settings.into_generator().into_root_schema_for::<File>();
    schema.insert("title".to_owned(), "forebay.toml".into());
    schema.insert("required".to_owned(), json!(["disk"]));
    schema
}

/// A description and the default that ends it, as in `RAM for cached data [default: 1GiB]`.
pub fn split_default(text: &str) -> (&str, Option<&str>) {
    let split = text.strip_suffix(']').and_then(|text| text.rsplit_once(" [default: "));
    split.map_or((text, None), |(text, default)| (text, Some(default)))
}

/// TOML has no null, lines of a comment are no lines of a text, and a default that is a value is one in the schema, too.
fn as_in_toml(schema: &mut Schema) {
    schema.remove("format");
    if schema.get("default").is_some_and(|it| it.is_null() || *it == json!([])) {
        schema.remove("default");
    }
    if let Some(Value::Array(words)) = schema.get_mut("enum") {
        words.retain(|it| !it.is_null());
    }
    if let Some(Value::Array(types)) = schema.get_mut("type") {
        types.retain(|it| it != "null");
        if let [only] = &types[..] {
            let only = only.clone();
            schema.insert("type".to_owned(), only);
        }
    }
    if let Some(Value::Array(mut either)) = schema.remove("anyOf") {
        either.retain(|it| *it != json!({ "type": "null" }));
        schema.insert(if either.len() == 1 { "allOf" } else { "anyOf" }.to_owned(), either.into());
    }
    let Some(text) = schema.get("description").and_then(Value::as_str) else { return };
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    // A default of several words is none that a file could give.
    let words = schema.get("enum").cloned().unwrap_or_default();
    let is_value = |it: &&str| {
        !it.contains(' ') && *it != "none"
            || words.as_array().is_some_and(|words| words.contains(&(*it).into()))
    };
    let default = split_default(&text).1.filter(is_value);
    let default = match schema.get("type").and_then(Value::as_str) {
        Some("integer") => default.and_then(|it| it.parse::<u64>().ok()).map(Value::from),
        Some("array") => None,
        _ => default.map(Value::from),
    };
    if let Some(default) = default {
        schema.insert("default".to_owned(), default);
    }
    schema.insert("description".to_owned(), text.into());
}

impl JsonSchema for DiskTable {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "disk".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut schema = DiskOptions::json_schema(generator);
        let mut name = generator.subschema_for::<Option<Name>>();
        let text =
            "Name of the disk: its NBD export, and how commands call it [default: from backend]";
        name.insert("description".to_owned(), text.into());
        let backend = json!({
            "type": "string",
            "description": "URI of primary storage, as BACKEND of 'forebay run'",
            "examples": ["file:/san/db.raw", "block:/dev/sdb", "nbd://host:10809/export"],
        });
        if let Some(Value::Object(keys)) = schema.get_mut("properties") {
            keys.insert("name".to_owned(), name.to_value());
            keys.insert("backend".to_owned(), backend);
        }
        schema.insert("required".to_owned(), json!(["backend"]));
        schema.insert("description".to_owned(), "A disk.".into());
        schema
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sees(text: &str) -> Vec<String> {
        let file: Value = toml::from_str(text).unwrap();
        violations(schema().as_value(), &file)
    }

    #[test]
    fn the_schema_refuses_keys_and_values_that_the_parser_refuses() {
        let disk = "[[disk]]\nbackend = \"mem:1MiB\"\nnbd = [\"h:0\"]\n";
        let target = "[[iscsi]]\nlisten = [\"h:1\"]\ntarget = \"iqn.2026-01.x:a\"\n";
        let cases = [
            ("[[disk]]\nname = \"x\"".to_owned(), "backend"),
            (format!("{disk}name = \"a/b\""), "name"),
            (format!("{disk}ramm = \"1MiB\""), "ramm"),
            (format!("bogus = 1\n{disk}"), "bogus"),
            (format!("{disk}ram = 5"), "ram"),
            (format!("{disk}ram = \"5 apples\""), "ram"),
            (format!("{disk}ram = \"1MB\""), "ram"),
            (format!("{disk}mode = \"write-sideways\""), "mode"),
            (format!("{disk}write-cache = true"), "write-cache"),
            (format!("{disk}backend-timeout = \"30\""), "backend-timeout"),
            (format!("{disk}flash = \"/x\""), "flash"),
            (format!("{disk}flash-dwpd = 1"), "flash-dwpd"),
            (format!("{disk}grid-offset = 32256"), "grid-offset"),
            (format!("{disk}read-only = \"yes\""), "read-only"),
            (format!("{disk}unit-id = \"5\""), "unit-id"),
            (format!("{disk}vhost-user = \"/x\"\nqueues = 17"), "queues"),
            (format!("{disk}nbd = \"h:0\"").replacen("nbd = [\"h:0\"]\n", "", 1), "nbd"),
            (format!("shards = 0\n{disk}"), "shards"),
            (format!("http = \"on\"\n{disk}"), "http"),
            (format!("shards = 65\n{disk}"), "shards"),
            (format!("reactor = \"kqueue\"\n{disk}"), "reactor"),
            (format!("{disk}[[nbd]]\ndisks = [\"mem\"]"), "listen"),
            (format!("{disk}[[nbd]]\nlisten = \"nowhere\""), "listen"),
            (format!("{disk}{target}luns = {{ 256 = \"mem\" }}"), "luns"),
            (format!("{disk}{target}chap-user = \"u\""), "chap-secret-file"),
            (format!("{disk}{target}").replace("iqn.2026-01.x:a", "db"), "target"),
            (format!("{disk}{target}").replace("[\"h:1\"]", "[]"), "listen"),
        ];
        for (text, key) in cases {
            let refused = super::super::file::parse(&text, Name("test".into())).unwrap_err();
            let seen = sees(&text);
            assert!(seen.iter().any(|it| it.contains(key)), "{text}\n{seen:?}\n{refused:#}");
        }
    }

    #[test]
    fn the_schema_takes_every_default_and_the_parser_fills_it_in() {
        let schema = schema();
        let keys = schema.pointer("/definitions/disk/properties").unwrap().as_object().unwrap();
        let mut count = 0;
        for (key, about) in keys {
            let Some(default) = about.get("default") else { continue };
            let with = |more: &str| {
                // A write log, flash and a device, so that no setting is in vain.
                let text = format!(
                    "[[disk]]\nbackend = 'mem:1MiB'\nflash = '/x:1GiB'\nwrite-log = '64MiB'\nvhost-user = '/x.sock'\n\
                     flush-semantics = 'deferred'\naccept-data-loss = true\n{more}\n"
                );
                let text = match key.as_str() {
                    "flush-semantics" => text.replacen(
                        "flush-semantics = 'deferred'\naccept-data-loss = true\n",
                        "",
                        1,
                    ),
                    "accept-data-loss" => return None,
                    _ => text,
                };
                assert_eq!(sees(&text), [""; 0], "{text}");
                let name = Name("test".to_owned());
                let spec = super::super::file::parse(&text, name);
                Some(spec.unwrap_or_else(|why| panic!("{why:#}: {text}")))
            };
            assert_eq!(with(""), with(&format!("{key} = {default}")), "{key}");
            count += 1;
        }
        assert!(count > 10, "{count} defaults");
    }
}
