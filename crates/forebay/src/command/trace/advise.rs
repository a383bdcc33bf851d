//! `forebay trace advise`: which cache each disk should have, in words, as a table and as JSON.

use std::path::{Path, PathBuf};

use anyhow::Result;
use forebay_backends::size::rounded;
use forebay_trace::Error;
use forebay_trace::advise::{self, Advice, Disk, Settings, Share};
use forebay_trace::report::{self, DiskAdvice};

use super::super::output::show;
use super::super::table::{Table, time};
use super::super::{page_file, write_page};
use super::input::{Bad, Input};
use super::passes::Passes;
use crate::cli::trace::{AdviseArgs, Reservation};
use crate::config::values::{Size, ValueError};

pub(super) fn advise(args: &AdviseArgs) -> Result<()> {
    let [ram, flash] = [args.ram, args.flash].map(|size| size.map_or(0, |Size(bytes)| bytes));
    if ram == 0 && flash == 0 {
        let why = "there is nothing to divide: say how much --ram or --flash there is or could be, such as --ram 4GiB";
        return Err(ValueError(why.to_owned()).into());
    }
    let settings = Settings { ram, flash, known: args.latencies.known() };
    let reserved = reserved(args)?;
    advise::check_reservations(&reserved, &settings)?;
    let page = page_file(&args.page)?;
    let inputs = args.files.iter().map(|file| Input::new(file, &args.reading).again());
    let inputs = inputs.collect::<Result<Vec<Input<'_>>>>()?;
    let passes = Passes::new(args.json);
    let study = |(input, reserved): (&Input<'_>, Share)| {
        passes.begin_trace(&input.name());
        let counted = || {
            let (reading, passes) = (input.open()?, passes.clone());
            passes.begin_reading();
            Ok(reading.inspect(move |_| passes.step()))
        };
        let disk = advise::study(&input.name(), counted, &settings)?;
        Ok(Disk { reserved, ..disk })
    };
    let disks = inputs.iter().zip(reserved).map(study).collect::<Result<Vec<_>, Error>>()?;
    let prove = |((input, disk), advice): ((&Input<'_>, &Disk), Advice)| {
        passes.begin_trials(&input.name());
        let counted = || {
            let (reading, passes) = (input.open()?, passes.clone());
            Ok(reading.inspect(move |_| passes.step()))
        };
        advise::prove(disk, advice, &settings, counted, &passes.trial())
    };
    let proposed = advise::advise(&disks, &settings)?;
    let advices = inputs.iter().zip(&disks).zip(proposed).map(prove);
    let advices = advices.collect::<Result<Vec<_>, Error>>()?;
    drop(passes);
    write_page(page, || {
        let told = disks.iter().zip(&advices);
        let told = told.map(|(disk, advice)| DiskAdvice { disk, advice, notes: &[] });
        report::advice(&told.collect::<Vec<_>>())
    })?;
    let bad = Bad::of_all(&inputs);
    bad.tell();
    if args.json {
        return bad.show_json(serde_json::json!({ "disks": advices }));
    }
    let texts: Vec<String> = advices.iter().map(describe).collect();
    let mut text = texts.join("\n");
    for (disk, file) in
        disks.iter().zip(&args.files).filter(|(disk, _)| disk.info.devices.len() > 1)
    {
        text += &format!("\n{}\n", devices(file, disk.info.devices.len()));
    }
    show(text)
}

/// What each of the traces keeps.
fn reserved(args: &AdviseArgs) -> Result<Vec<Share>, ValueError> {
    let ram = reserved_of(&args.files, "--reserve-ram", &args.reserve_ram)?;
    let flash = reserved_of(&args.files, "--reserve-flash", &args.reserve_flash)?;
    Ok(ram.into_iter().zip(flash).map(|(ram, flash)| Share { ram, flash }).collect())
}

/// Bytes of one tier that each of the traces keeps.
fn reserved_of(
    files: &[PathBuf],
    option: &str,
    reservations: &[Reservation],
) -> Result<Vec<u64>, ValueError> {
    let mut kept = vec![None; files.len()];
    for Reservation { trace, bytes } in reservations {
        let of = |is_meant: &dyn Fn(&Path) -> bool| -> Vec<usize> {
            (0..files.len()).filter(|&at| is_meant(&files[at])).collect()
        };
        let mut found = of(&|file| file == trace);
        if found.is_empty() {
            found = of(&|file| file.file_name() == Some(trace.as_os_str()));
        }
        let wrong = |why: &str| ValueError(format!("{option} {}: {why}", trace.display()));
        let at = match found[..] {
            [at] => at,
            [] => {
                let files = files.iter().map(|file| file.display().to_string());
                let files = files.collect::<Vec<_>>().join(", ");
                return Err(wrong(&format!("no trace is called so; there are {files}")));
            }
            _ => {
                return Err(wrong("several traces are called so: write its path as it is given"));
            }
        };
        if kept[at].replace(*bytes).is_some() {
            return Err(wrong("it is given twice"));
        }
    }
    Ok(kept.into_iter().map(Option::unwrap_or_default).collect())
}

fn devices(file: &Path, devices: usize) -> String {
    format!(
        "{} has {devices} devices, which were taken together: --device N looks at one",
        file.display()
    )
}

/// An advice, for people.
pub(crate) fn describe(advice: &Advice) -> String {
    let mut text = format!("{}: {}\n", advice.name, advice.sentence);
    let ns = |ns: f64| time(ns.round() as u64);
    if advice.before != advice.after {
        text += &format!(
            "  all requests: {} → {} on average, p99 {} → {}",
            ns(advice.before.mean_ns),
            ns(advice.after.mean_ns),
            ns(advice.before.p99_ns),
            ns(advice.after.p99_ns),
        );
        match advice.flash_written_per_day {
            Some(bytes) if bytes > 0.0 => {
                let times = advice.drive_writes_per_day.unwrap_or(0.0);
                let bytes = rounded(bytes as u64);
                text += &format!("; {bytes} a day to flash when warm ({times:.2} drive writes)\n");
            }
            _ => text += "\n",
        }
    }
    if let Some(proof) = &advice.proof {
        text += &format!("  {}\n", proof.words());
    }
    if let Some(reserved) = advice.reserved_words() {
        text += &format!("  reserved: {reserved}\n");
    }
    if !advice.is_empty() {
        text += &format!("  forebay run … {}\n", advice.options.join(" "));
    }
    if advice.plan.is_none() {
        return text;
    }
    let headings = ["", "RAM", "flash", "block", "reads hit", "mean", "p99", "metadata"];
    let mut table = Table::new(&headings);
    for (of, is_advised) in advice.by_size() {
        table.row(vec![
            if is_advised { "advised" } else { "" }.to_owned(),
            rounded(of.ram).to_string(),
            rounded(of.flash).to_string(),
            rounded(of.block_size).to_string(),
            format!("{:.1} %", of.hit_ratio * 100.0),
            ns(of.read.mean_ns),
            ns(of.read.p99_ns),
            rounded(of.metadata_bytes).to_string(),
        ]);
    }
    text + &table.text(2)
}

#[cfg(test)]
mod tests {
    use super::{Reservation, Settings, advise, describe, reserved_of};
    use forebay_trace::Error;
    use forebay_trace::advise::Known;
    use forebay_trace::record::Record;

    #[test]
    fn too_little_to_advise_from_is_not_carried_out() {
        let settings = Settings { ram: 1 << 30, flash: 0, known: Known::default() };
        let none = || Ok(std::iter::empty::<Result<Record, Error>>());
        let disk = advise::study("none", none, &settings).unwrap();
        let advices = advise::advise(&[disk], &settings).unwrap();
        assert_eq!(describe(&advices[0]), "none: the trace has no reads or writes\n");
    }

    #[test]
    fn a_reservation_is_that_of_the_path_then_of_the_only_file_of_that_name() {
        let files = ["db.fbt", "old/db.fbt", "old/web.fbt"].map(Into::into);
        let reserved = |trace: &str| {
            let reservations = [Reservation { trace: trace.into(), bytes: 7 }];
            reserved_of(&files, "--reserve-ram", &reservations).map_err(|error| error.to_string())
        };
        assert_eq!(reserved("db.fbt").unwrap(), [7, 0, 0]);
        assert_eq!(reserved("old/db.fbt").unwrap(), [0, 7, 0]);
        assert_eq!(reserved("web.fbt").unwrap(), [0, 0, 7]);
        assert!(reserved("none.fbt").unwrap_err().contains("there are db.fbt, old/db.fbt"));
    }
}
