//! Reads a JSON schema: what a value is, and where.

use serde_json::{Map, Value};

/// A schema with the definitions that it refers to.
pub(super) struct Tree(Value);

/// What a schema says about a value.
pub(super) struct About<'a> {
    /// The name of its definition, if it has one.
    pub name: Option<&'a str>,
    /// Its definition.
    pub schema: &'a Map<String, Value>,
    /// It is a list of such values.
    pub is_list: bool,
    /// It may be null.
    pub is_nullable: bool,
}

impl Tree {
    pub fn new(schema: schemars::Schema) -> Tree {
        Tree(schema.to_value())
    }

    pub fn root(&self) -> &Map<String, Value> {
        self.0.as_object().expect("a schema is an object")
    }

    /// Follows references from the schema of a value to what describes it.
    pub fn about<'a>(&'a self, schema: &'a Value) -> About<'a> {
        let map = schema.as_object().expect("a schema is an object");
        if let Some(place) = map.get("$ref").and_then(Value::as_str) {
            let found =
                self.0.pointer(place.trim_start_matches('#')).expect("what is named is there");
            return About { name: place.rsplit('/').next(), ..self.about(found) };
        }
        if let Some(only) = map.get("allOf") {
            return self.about(&only[0]);
        }
        if let Some([one, null]) = map.get("anyOf").and_then(Value::as_array).map(Vec::as_slice)
            && null["type"] == "null"
        {
            return About { is_nullable: true, ..self.about(one) };
        }
        if let Some(items) = map.get("items").filter(|items| items.is_object()) {
            return About { is_list: true, ..self.about(items) };
        }
        let is_nullable =
            map.get("type").and_then(Value::as_array).is_some_and(|it| it.contains(&"null".into()));
        About { name: None, schema: map, is_list: false, is_nullable }
    }

    /// The properties of an object, by name; none: it is no object.
    pub fn properties(schema: &Map<String, Value>) -> impl Iterator<Item = (&String, &Value)> {
        schema.get("properties").and_then(Value::as_object).into_iter().flatten()
    }
}

/// The text about a schema, in one line.
pub(super) fn description(schema: &Value) -> String {
    let text = schema["description"].as_str().unwrap_or_default();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
