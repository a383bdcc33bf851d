//! One `[[disk]]` table: name and backend, the rest is [`DiskOptions`].
//!
//! Keys go one by one to [`DiskOptions`], so that an error of a key or a value carries its place in the file.

use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, Visitor};
use serde::{Deserialize, de};

use super::{DiskOptions, Name};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct DiskTable {
    pub(super) name: Option<Name>,
    pub(super) backend: Option<String>,
    pub(super) options: DiskOptions,
}

impl<'de> Deserialize<'de> for DiskTable {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<DiskTable, D::Error> {
        from.deserialize_map(TableVisitor)
    }
}

struct TableVisitor;

impl<'de> Visitor<'de> for TableVisitor {
    type Value = DiskTable;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a [[disk]] table")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<DiskTable, A::Error> {
        let mut table = DiskTable::default();
        let rest = Rest { map, table: &mut table };
        let options = DiskOptions::deserialize(MapAccessDeserializer::new(rest))?;
        Ok(DiskTable { options, ..table })
    }
}

/// All keys but those of the table itself.
struct Rest<'a, A> {
    map: A,
    table: &'a mut DiskTable,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Rest<'_, A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, A::Error> {
        let mut seed = Some(seed);
        loop {
            match self.map.next_key_seed(KeySeed(&mut seed))? {
                None => return Ok(None),
                Some(Key::Name) => self.table.name = Some(self.map.next_value()?),
                Some(Key::Backend) => self.table.backend = Some(self.map.next_value()?),
                Some(Key::Option(key)) => return Ok(Some(key)),
            }
        }
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        self.map.next_value_seed(seed)
    }
}

enum Key<K> {
    Name,
    Backend,
    Option(K),
}

/// Hands a key of an option on, once.
struct KeySeed<'a, K>(&'a mut Option<K>);

impl<'de, K: DeserializeSeed<'de>> DeserializeSeed<'de> for KeySeed<'_, K> {
    type Value = Key<K::Value>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Key<K::Value>, D::Error> {
        let key = String::deserialize(from)?;
        match key.as_str() {
            "name" => return Ok(Key::Name),
            "backend" => return Ok(Key::Backend),
            _ => {}
        }
        let known = keys();
        if !known.contains(&key) {
            let nearest = known.iter().min_by_key(|known| distance(&key, known));
            let nearest = nearest.filter(|known| distance(&key, known) <= 1 + key.len() / 3);
            return Err(de::Error::custom(match nearest {
                Some(nearest) => format!("a disk has no key `{key}`; is `{nearest}` meant?"),
                None => format!("a disk has no key `{key}`; its keys: {}", known.join(", ")),
            }));
        }
        let seed = self.0.take().expect("one key at a time");
        seed.deserialize(key.into_deserializer()).map(Key::Option).map_err(|error: D::Error| error)
    }
}

/// The keys of a `[[disk]]` table: the options of `run` that a disk has, and its own two.
fn keys() -> Vec<String> {
    let options = <DiskOptions as clap::Args>::augment_args(clap::Command::new("disk"));
    let options = options.get_arguments().filter_map(|option| option.get_long());
    options.chain(["name", "backend"]).map(str::to_owned).collect()
}

/// How many letters are to be changed, added or left out to make `b` of `a`.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, a) in a.chars().enumerate() {
        let mut left_above = std::mem::replace(&mut row[0], i + 1);
        for (j, b) in b.iter().enumerate() {
            let changed = left_above + usize::from(a != *b);
            left_above = row[j + 1];
            row[j + 1] = changed.min(left_above + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_distance_of_words_counts_letters() {
        let check = |a, b, expect| assert_eq!(distance(a, b), expect, "{a} {b}");
        check("ram", "ram", 0);
        check("ramm", "ram", 1);
        check("", "ram", 3);
        check("block_size", "block-size", 1);
        check("flush", "flash", 1);
    }

    #[test]
    fn every_key_of_a_disk_is_known() {
        let mut text = String::new();
        for (key, value) in [("name", "'a'"), ("backend", "'mem:1MiB'"), ("mode", "'monitor'")] {
            text += &format!("{key} = {value}\n");
        }
        let table: DiskTable = toml::from_str(&text).unwrap();
        assert_eq!(
            (table.name.unwrap().0, table.backend.unwrap()),
            ("a".into(), "mem:1MiB".into())
        );
        for key in keys() {
            // A value of the wrong kind is one error, a key that is not known another one.
            let error = toml::from_str::<DiskTable>(&format!("{key} = []")).err();
            let error = error.map_or(String::new(), |error| error.to_string());
            assert!(
                !error.contains("no key") && !error.contains("unknown field"),
                "{key}: {error}"
            );
        }
    }
}
