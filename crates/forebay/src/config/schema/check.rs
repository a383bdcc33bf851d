//! Holds a value against a schema, as far as ours go.

use regex_lite::Regex;
use serde_json::Value;

/// What `schema` does not allow about `value`, each with its place; nothing: it is valid.
///
/// # Panics
/// The schema says something that this does not know.
pub(crate) fn violations(schema: &Value, value: &Value) -> Vec<String> {
    let mut found = Vec::new();
    check(schema, schema, value, "", &mut found);
    found
}

fn check(root: &Value, schema: &Value, value: &Value, at: &str, found: &mut Vec<String>) {
    let schema = schema.as_object().expect("a schema is an object");
    for (word, says) in schema {
        let is_fine = match word.as_str() {
            "$schema" | "title" | "description" | "examples" | "default" | "definitions" => true,
            "$ref" => {
                let place = says.as_str().unwrap().strip_prefix('#').unwrap();
                check(root, root.pointer(place).expect(place), value, at, found);
                true
            }
            "allOf" => {
                says.as_array().unwrap().iter().for_each(|it| check(root, it, value, at, found));
                true
            }
            "type" => says == kind(value),
            "enum" => says.as_array().unwrap().contains(value),
            "pattern" => {
                let regex = Regex::new(says.as_str().unwrap()).unwrap();
                value.as_str().is_none_or(|text| regex.is_match(text))
            }
            "minimum" => value.as_u64().is_none_or(|number| number >= says.as_u64().unwrap()),
            "maximum" => value.as_u64().is_none_or(|number| number <= says.as_u64().unwrap()),
            "minItems" => {
                value.as_array().is_none_or(|it| it.len() as u64 >= says.as_u64().unwrap())
            }
            "items" => {
                for (number, item) in value.as_array().into_iter().flatten().enumerate() {
                    check(root, says, item, &format!("{at}[{number}]"), found);
                }
                true
            }
            "required" => {
                let missing =
                    |key: &&str| value.as_object().is_some_and(|it| !it.contains_key(*key));
                let keys = says.as_array().unwrap().iter().map(|key| key.as_str().unwrap());
                found.extend(keys.filter(missing).map(|key| format!("{at}.{key} is missing")));
                true
            }
            "dependencies" => {
                for (key, needs) in says.as_object().unwrap() {
                    if value.get(key).is_some() {
                        let needs = serde_json::json!({ "required": needs });
                        check(root, &needs, value, at, found);
                    }
                }
                true
            }
            "properties" => {
                for (key, about) in says.as_object().unwrap() {
                    if let Some(value) = value.get(key) {
                        check(root, about, value, &format!("{at}.{key}"), found);
                    }
                }
                true
            }
            "patternProperties" | "additionalProperties" => {
                other_keys(root, schema, value, at, word, found);
                true
            }
            _ => panic!("'{word}' is not known here"),
        };
        if !is_fine {
            found.push(format!("{at}: {value} is not of {word} {says}"));
        }
    }
}

/// Keys that are not among the properties.
fn other_keys(
    root: &Value,
    schema: &serde_json::Map<String, Value>,
    value: &Value,
    at: &str,
    word: &str,
    found: &mut Vec<String>,
) {
    let none = serde_json::Map::new();
    let named = |word: &str| schema.get(word).and_then(Value::as_object).unwrap_or(&none);
    for (key, value) in value.as_object().into_iter().flatten() {
        let form = |form: &&String| Regex::new(form).unwrap().is_match(key);
        let by_form = named("patternProperties").keys().find(form);
        match (word, by_form) {
            ("patternProperties", Some(form)) => {
                let about = &named(word)[form];
                check(root, about, value, &format!("{at}.{key}"), found);
            }
            ("additionalProperties", None) if !named("properties").contains_key(key) => {
                assert_eq!(schema[word], false, "nothing else is known here");
                found.push(format!("{at}.{key} is no key"));
            }
            _ => {}
        }
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
