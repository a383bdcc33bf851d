//! iSCSI targets: what `forebay run --iscsi …` and a `[[iscsi]]` table say.
//!
//! Disks of one target live on one shard, and a disk is a logical unit of one target at most: its
//! reservations and its tasks are known in one place.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use forebay_frontends::iscsi::target::{Credentials, SECRET_MIN, is_name};

use super::changes::Changes;
use super::values::{Name, ValueError};

/// Connections that a target has open at a time, unless told otherwise.
const CONNECTIONS_MAX: u32 = 128;
/// The highest number of a logical unit that every initiator sees.
const LUN_MAX: u16 = 255;

/// Options of `run` that make an iSCSI target of the disk.
#[derive(Clone, Debug, Default, PartialEq, clap::Args)]
pub struct IscsiOptions {
    /// Where initiators attach over iSCSI: HOST:PORT, an IPv6 address in square brackets; may be given several times
    #[arg(long, value_name = "HOST:PORT", help_heading = "iSCSI")]
    pub iscsi: Vec<Portal>,
    /// Name of the target [default: iqn.2026-11.local.forebay:NAME]
    #[arg(long, value_name = "IQN", help_heading = "iSCSI", requires = "iscsi")]
    pub iscsi_target: Option<IscsiName>,
    /// Number of the disk's logical unit [default: 0]
    #[arg(long, value_name = "N", help_heading = "iSCSI", requires = "iscsi",
          value_parser = clap::value_parser!(u16).range(0..=i64::from(LUN_MAX)))]
    pub lun: Option<u16>,
    /// An initiator that may log in, by name; may be given several times [default: all]
    #[arg(long, value_name = "IQN", help_heading = "iSCSI", requires = "iscsi")]
    pub initiator: Vec<IscsiName>,
    /// User that initiators log in as (CHAP)
    #[arg(long, value_name = "USER", help_heading = "iSCSI", requires = "chap_secret_file")]
    pub chap_user: Option<String>,
    /// File with that user's secret: 12 bytes or more; a line end after it does not count
    #[arg(long, value_name = "FILE", help_heading = "iSCSI", requires = "chap_user")]
    pub chap_secret_file: Option<PathBuf>,
    /// User as which the target proves itself to initiators that ask for it
    #[arg(long, value_name = "USER", help_heading = "iSCSI",
          requires_all = ["mutual_chap_secret_file", "chap_user"])]
    pub mutual_chap_user: Option<String>,
    /// File with that user's secret, which must differ from the initiators'
    #[arg(long, value_name = "FILE", help_heading = "iSCSI", requires = "mutual_chap_user")]
    pub mutual_chap_secret_file: Option<PathBuf>,
    /// File to log the headers of PDUs to, for field reports; it never has a byte of data
    #[arg(long, value_name = "FILE", help_heading = "iSCSI", requires = "iscsi")]
    pub iscsi_log: Option<PathBuf>,
}

/// An iSCSI target.
#[derive(Debug, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[schemars(rename = "iscsi", extend("dependencies" = {
    "chap-user": ["chap-secret-file"],
    "chap-secret-file": ["chap-user"],
    "mutual-chap-user": ["mutual-chap-secret-file", "chap-user"],
    "mutual-chap-secret-file": ["mutual-chap-user"],
}))]
pub struct IscsiTable {
    /// Where initiators attach
    #[schemars(length(min = 1))]
    listen: Vec<Portal>,
    /// Name of the target
    target: IscsiName,
    /// Names of its disks, which are logical units 0, 1, … in this order; not together with luns [default: all]
    disks: Option<Vec<Name>>,
    /// Disks by the number of their logical unit, 0 to 255, such as { 1 = "db" }
    #[serde(default)]
    #[schemars(schema_with = "luns")]
    luns: Option<BTreeMap<String, Name>>,
    /// Initiators that may log in, by name [default: all]
    #[schemars(length(min = 1))]
    initiators: Option<Vec<IscsiName>>,
    /// User that initiators log in as (CHAP)
    chap_user: Option<String>,
    /// File with the secret of chap-user: 12 bytes or more; a line end after it does not count
    chap_secret_file: Option<PathBuf>,
    /// User as which the target proves itself to initiators that ask for it
    mutual_chap_user: Option<String>,
    /// File with the secret of mutual-chap-user, which must differ from the initiators'
    mutual_chap_secret_file: Option<PathBuf>,
    /// Connections that may be open at a time at each portal [default: 128]
    connections_max: Option<NonZeroU32>,
    /// File to log the headers of PDUs to, never a byte of data [default: none]
    log: Option<PathBuf>,
}

fn luns(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
    let number = "^(1?[0-9]{1,2}|2[0-4][0-9]|25[0-5])$";
    let name = generator.subschema_for::<Name>();
    schemars::json_schema!({
        "type": "object",
        "patternProperties": { number: name },
        "additionalProperties": false,
    })
}

/// One target.
#[derive(Clone, Debug, PartialEq)]
pub struct IscsiSpec {
    /// Where it is found.
    pub portals: Vec<Portal>,
    /// Its name.
    pub target: IscsiName,
    /// Its logical units, by number.
    pub luns: BTreeMap<u16, Name>,
    /// Initiators that may log in; empty: all.
    pub initiators: Vec<IscsiName>,
    /// What they prove themselves with.
    pub chap: Option<ChapSpec>,
    /// What the target proves itself with.
    pub mutual_chap: Option<ChapSpec>,
    /// Connections that may be open at a time at each portal.
    pub connections_max: u32,
    /// Where PDUs are logged.
    pub log: Option<PathBuf>,
}

/// A user and where its secret is.
#[derive(Clone, Debug, PartialEq)]
pub struct ChapSpec {
    /// The user.
    pub user: String,
    /// The file with the secret.
    pub secret_file: PathBuf,
}

/// An address on which a target listens.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Deserialize)]
#[serde(try_from = "String")]
pub struct Portal(pub String);

/// The name of a target or of an initiator.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(try_from = "String")]
pub struct IscsiName(pub String);

impl IscsiOptions {
    /// The target that these options describe, if they do.
    pub fn resolve(self, disk: &Name) -> Option<IscsiSpec> {
        if self.iscsi.is_empty() {
            return None;
        }
        let target = self.iscsi_target.unwrap_or_else(|| {
            IscsiName(format!("iqn.2026-11.local.forebay:{}", disk.0.to_lowercase()))
        });
        Some(IscsiSpec {
            portals: self.iscsi,
            target,
            luns: BTreeMap::from([(self.lun.unwrap_or(0), disk.clone())]),
            initiators: self.initiator,
            chap: chap(self.chap_user, self.chap_secret_file),
            mutual_chap: chap(self.mutual_chap_user, self.mutual_chap_secret_file),
            connections_max: CONNECTIONS_MAX,
            log: self.iscsi_log,
        })
    }
}

impl IscsiTable {
    /// The target that a table describes, in a file with these disks. `changes`: what was changed since, with the numbers
    /// that units have.
    ///
    /// # Errors
    /// What is wrong.
    pub fn resolve(self, all: &[Name], changes: &Changes) -> Result<IscsiSpec, ValueError> {
        let target = self.target;
        let refuse = |why: String| ValueError(format!("[[iscsi]] {target}: {why}"));
        if self.initiators.as_ref().is_some_and(Vec::is_empty) {
            let why = "initiators = [] lets nobody log in; leave it out to let all of them in";
            return Err(refuse(why.to_owned()));
        }
        let luns = match (self.luns, self.disks) {
            (Some(_), Some(_)) => return Err(refuse("give disks or luns, not both".to_owned())),
            (Some(luns), None) => luns
                .into_iter()
                .map(|(number, disk)| match number.parse() {
                    // Any other spelling could be the same number twice.
                    Ok(lun @ 0..=LUN_MAX) if lun.to_string() == number => Ok((lun, disk)),
                    _ => Err(refuse(format!("'{number}' is no number of a unit, 0 to {LUN_MAX}"))),
                })
                .collect::<Result<_, _>>()?,
            (None, disks) => {
                let (disks, known) = match disks {
                    Some(disks) => (disks, Vec::new()),
                    None => (all.to_vec(), changes.units_of(&target)),
                };
                if disks.len() > usize::from(LUN_MAX) + 1 {
                    return Err(refuse(format!("more than {} disks", LUN_MAX + 1)));
                }
                numbered(disks, &known)
            }
        };
        if let Some(unknown) = luns.values().find(|disk| !all.contains(disk)) {
            return Err(refuse(format!("it names the disk '{unknown}', which is not configured")));
        }
        let pairs = [
            (&self.chap_user, &self.chap_secret_file, "chap"),
            (&self.mutual_chap_user, &self.mutual_chap_secret_file, "mutual-chap"),
        ];
        if let Some((_, _, half)) = pairs.iter().find(|(a, b, _)| a.is_some() != b.is_some()) {
            return Err(refuse(format!("{half}-user and {half}-secret-file go together")));
        }
        Ok(IscsiSpec {
            portals: self.listen,
            luns,
            initiators: self.initiators.unwrap_or_default(),
            chap: chap(self.chap_user, self.chap_secret_file),
            mutual_chap: chap(self.mutual_chap_user, self.mutual_chap_secret_file),
            connections_max: self.connections_max.map_or(CONNECTIONS_MAX, NonZeroU32::get),
            log: self.log,
            target,
        })
    }
}

/// Disks by the number of their unit: the one that is known, else their place among `disks`. Where another disk has or had
/// that number, the next one after all; when there is none, any that no disk has had, and at last the one of the disk that has
/// gone first. `known`: that one first.
pub(super) fn numbered(disks: Vec<Name>, known: &[(Name, u16)]) -> BTreeMap<u16, Name> {
    let mut units = BTreeMap::new();
    let mut others = Vec::new();
    let known_of: BTreeMap<&Name, u16> = known.iter().map(|(disk, lun)| (disk, *lun)).collect();
    let taken: BTreeSet<u16> = known_of.values().copied().filter(|it| *it <= LUN_MAX).collect();
    for (place, disk) in (0..).zip(disks) {
        match known_of.get(&disk) {
            Some(lun) if taken.contains(lun) && !units.contains_key(lun) => {
                units.insert(*lun, disk);
            }
            None if !taken.contains(&place) => drop(units.insert(place, disk)),
            Some(_) | None => others.push(disk),
        }
    }
    for disk in others {
        let next = units.keys().chain(&taken).max().map_or(0, |last| last + 1);
        let unused = (next..=LUN_MAX).chain(0..=LUN_MAX).filter(|lun| !taken.contains(lun));
        let of_gone = known.iter().map(|(_, lun)| *lun).filter(|lun| taken.contains(lun));
        // Too many disks have a number that is refused.
        let all = unused.chain(of_gone).chain(LUN_MAX + 1..);
        let lun = all.into_iter().find(|lun| !units.contains_key(lun));
        units.extend(lun.map(|lun| (lun, disk)));
    }
    units
}

fn chap(user: Option<String>, secret_file: Option<PathBuf>) -> Option<ChapSpec> {
    user.zip(secret_file).map(|(user, secret_file)| ChapSpec { user, secret_file })
}

/// Finds what cannot work about targets, whatever the machine.
///
/// # Errors
/// What is wrong.
pub fn check(targets: &[IscsiSpec]) -> Result<(), ValueError> {
    let mut names: Vec<String> = targets.iter().map(|it| it.target.0.to_lowercase()).collect();
    names.sort();
    if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(ValueError(format!("two iSCSI targets are called {}", pair[0])));
    }
    let mut disks: Vec<&Name> = targets.iter().flat_map(|it| it.luns.values()).collect();
    disks.sort();
    if let Some(pair) = disks.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(ValueError(format!(
            "the disk '{}' is a logical unit twice; one unit of one iSCSI target is allowed",
            pair[0]
        )));
    }
    for target in targets {
        let name = &target.target;
        let why = if target.portals.is_empty() {
            "it listens nowhere; give listen = [\"HOST:3260\"]"
        } else if target.luns.is_empty() {
            "it has no disk"
        } else if target.mutual_chap.is_some() && target.chap.is_none() {
            "mutual-chap needs chap: a target proves itself only to an initiator that does"
        } else {
            continue;
        };
        return Err(ValueError(format!("iSCSI target {name}: {why}")));
    }
    Ok(())
}

/// Checks that each secret can be had, before anything is begun.
///
/// # Errors
/// As [`ChapSpec::load`].
pub fn check_secrets(targets: &[IscsiSpec]) -> anyhow::Result<()> {
    let all = targets.iter().flat_map(|target| [&target.chap, &target.mutual_chap]);
    all.flatten().try_for_each(|chap| chap.load().map(drop))
}

impl ChapSpec {
    /// User and secret.
    ///
    /// # Errors
    /// The file cannot be read, others may read it, or the secret is too short.
    pub fn load(&self) -> anyhow::Result<Credentials> {
        use std::os::unix::fs::MetadataExt;
        let path: &Path = &self.secret_file;
        let shown = path.display();
        let failed = |error: std::io::Error| {
            let what = format!("cannot read the CHAP secret file {shown}");
            super::file::as_wrong(anyhow::Error::new(error).context(what))
        };
        let found = std::fs::metadata(path).map_err(failed)?;
        if found.mode() & 0o077 != 0 {
            let why = format!("the CHAP secret file {shown} may be read by others; chmod 600 it");
            return Err(ValueError(why).into());
        }
        let mut secret = super::file::bytes_of(path).map_err(failed)?;
        while secret.last().is_some_and(|byte| matches!(byte, b'\n' | b'\r')) {
            secret.pop();
        }
        let len = secret.len();
        if !(SECRET_MIN..=255).contains(&len) {
            let why = format!(
                "the CHAP secret in {shown} has {len} bytes; {SECRET_MIN} to 255 are allowed"
            );
            return Err(ValueError(why).into());
        }
        Ok(Credentials { name: self.user.clone(), secret })
    }
}

impl FromStr for Portal {
    type Err = ValueError;
    fn from_str(text: &str) -> Result<Portal, ValueError> {
        let port = text.rsplit_once(':').filter(|(host, _)| !host.is_empty());
        match port.and_then(|(_, port)| port.parse::<u16>().ok()) {
            Some(_) => Ok(Portal(text.to_owned())),
            None => Err(ValueError(format!(
                "'{text}' is no address of a portal; write HOST:PORT, such as 10.0.0.1:3260 or [::]:3260"
            ))),
        }
    }
}

impl FromStr for IscsiName {
    type Err = ValueError;
    fn from_str(text: &str) -> Result<IscsiName, ValueError> {
        if is_name(text) {
            return Ok(IscsiName(text.to_owned()));
        }
        Err(ValueError(format!(
            "'{text}' is no iSCSI name; write iqn.YYYY-MM.DOMAIN:NAME, such as iqn.2026-01.org.example:db"
        )))
    }
}

impl TryFrom<String> for Portal {
    type Error = ValueError;
    fn try_from(text: String) -> Result<Portal, ValueError> {
        text.parse()
    }
}

impl TryFrom<String> for IscsiName {
    type Error = ValueError;
    fn try_from(text: String) -> Result<IscsiName, ValueError> {
        text.parse()
    }
}

impl fmt::Display for Portal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for IscsiName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
