//! What `forebay config save` makes of a configuration file: the same file, with the changes in it.

use anyhow::{Context, Result, ensure};
use toml::{Table, Value};
use toml_edit::{ArrayOfTables, DocumentMut, InlineTable, Item};

use super::changes::{Changes, left_idle, name_in};
use super::iscsi::{IscsiName, numbered};
use super::values::Name;

/// Writes changes into the text of a configuration file; its comments and its order stay. An address that serves no disk
/// any more goes with its last one.
///
/// # Errors
/// It is no TOML, or its disks are no tables.
pub fn with_changes(text: &str, changes: &Changes) -> Result<String> {
    let mut document: DocumentMut = text.parse()?;
    let said: Table = super::file::from_toml(text)?;
    let merged = changes.merged(&said);
    let disks: Vec<&Table> = merged
        .get("disk")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_table)
        .collect();
    let names: Vec<Option<Name>> = disks.iter().map(|disk| name_in(disk)).collect();
    fix_units(&mut document, &names, changes)?;
    let pools = merged.get("pool").and_then(Value::as_array).into_iter().flatten();
    for (at, pool) in pools.filter_map(Value::as_table).enumerate() {
        if !name_in(pool).is_some_and(|name| changes.has_pool(&name)) {
            continue;
        }
        let tables = document.get_mut("pool").and_then(Item::as_array_of_tables_mut);
        let table = tables.and_then(|tables| tables.get_mut(at));
        let table = table
            .context("'pool' is written as one array: use a [[pool]] table for each pool first")?;
        let devices =
            pool.get_key_value("devices").map(|(key, value)| (key.clone(), value.clone()));
        lay_over(table, &devices.into_iter().collect())?;
    }
    let tables = document
        .entry("disk")
        .or_insert(Item::ArrayOfTables(ArrayOfTables::new()))
        .as_array_of_tables_mut()
        .context("'disk' is written as one array: use a [[disk]] table for each disk first")?;
    for (at, name) in names.iter().enumerate() {
        let change = name.as_ref().and_then(|name| changes.of(name));
        if at >= tables.len() {
            tables.push(toml_edit::Table::new());
        }
        let (Some(table), Some(change)) = (tables.get_mut(at), change) else { continue };
        for key in left_idle(change) {
            table.remove(key);
        }
        lay_over(table, change)?;
    }
    for at in (0..names.len()).rev() {
        if names[at].as_ref().is_some_and(|name| changes.removed().contains(name)) {
            tables.remove(at);
        }
    }
    if let Some(listeners) = document.get_mut("nbd").and_then(Item::as_array_of_tables_mut) {
        for listener in listeners.iter_mut() {
            if let Some(disks) = listener.get_mut("disks").and_then(Item::as_array_mut) {
                disks.retain(|it| !is_removed(it, changes));
            }
        }
        let disks = |table: &toml_edit::Table| Some(table.get("disks")?.as_array()?.is_empty());
        listeners.retain(|listener| disks(listener) != Some(true));
    }
    Ok(document.to_string())
}

/// Writes what a change says into a table of the file.
fn lay_over(table: &mut toml_edit::Table, change: &Table) -> Result<()> {
    for (key, value) in change {
        let value: toml_edit::Value = value.to_string().parse()?;
        match table.get_mut(key).and_then(Item::as_value_mut) {
            Some(known) => {
                // What is written behind it stays there.
                let decor = known.decor().clone();
                *known = value;
                *known.decor_mut() = decor;
            }
            None => drop(table.insert(key, toml_edit::value(value))),
        }
    }
    Ok(())
}

fn is_removed(name: &toml_edit::Value, changes: &Changes) -> bool {
    name.as_str().is_some_and(|name| changes.removed().iter().any(|it| it.0 == name))
}

/// Says the number of each logical unit that its place in a list says so far, where a disk goes, or where the place would say
/// another number: units keep theirs.
fn fix_units(document: &mut DocumentMut, names: &[Option<Name>], changes: &Changes) -> Result<()> {
    let goes = |name: &str| changes.removed().iter().any(|it| it.0 == name);
    let Some(targets) = document.get_mut("iscsi") else { return Ok(()) };
    let Some(targets) = targets.as_array_of_tables_mut() else {
        let is_as_it_was = changes.removed().is_empty() && !changes.has_units();
        ensure!(
            is_as_it_was,
            "'iscsi' is written as one array: use an [[iscsi]] table for each target first"
        );
        return Ok(());
    };
    for target in targets.iter_mut() {
        if let Some(luns) = target.get_mut("luns").and_then(Item::as_table_like_mut) {
            let gone = luns.iter().filter(|(_, unit)| unit.as_str().is_some_and(goes));
            let gone: Vec<String> = gone.map(|(number, _)| number.to_owned()).collect();
            for number in gone {
                luns.remove(&number);
            }
            continue;
        }
        let name = target.get("target").and_then(Item::as_str).unwrap_or_default();
        let (disks, known): (Vec<Name>, _) = match target.get("disks").and_then(Item::as_array) {
            Some(disks) => {
                let names = disks.iter().filter_map(|it| it.as_str()?.parse().ok());
                (names.collect(), Vec::new())
            }
            None => {
                let known = changes.units_of(&IscsiName(name.to_owned()));
                (names.iter().flatten().cloned().collect(), known)
            }
        };
        let units = numbered(disks.clone(), &known);
        let is_by_place = units == numbered(disks, &[]);
        if is_by_place && !units.values().any(|unit| goes(&unit.0)) {
            continue;
        }
        let mut luns = InlineTable::new();
        for (number, unit) in units.iter().filter(|(_, unit)| !goes(&unit.0)) {
            luns.insert(number.to_string(), unit.0.as_str().into());
        }
        target.remove("disks");
        target.insert("luns", toml_edit::value(luns));
    }
    let luns = |table: &toml_edit::Table| Some(table.get("luns")?.as_table_like()?.is_empty());
    targets.retain(|target| luns(target) != Some(true));
    Ok(())
}
