use forebay_core::characteristics::Kind;
use forebay_core::mrc::Shards;
use forebay_host::events::EventLog;
use forebay_host::population::Population;
use forebay_shard::ShardHandle;

use super::*;
use crate::daemon::flash::Flash;
use crate::daemon::opener::Opener;

const MIB: u64 = 1 << 20;
const BLOCK: u64 = 4096;
const WEEK: Duration = Duration::from_secs(7 * 86_400);

/// A disk that brings 8 MiB of RAM and has them, and reads the same blocks from end to end, again and again.
struct Looping {
    name: &'static str,
    blocks: u64,
    shards: Shards,
    age: Duration,
    reads: u64,
}

impl Looping {
    /// It has read so many bytes once in [`EVERY`] since it was opened. A few of these rounds stand for all.
    fn new(name: &'static str, bytes: u64, age: Duration) -> Looping {
        let shards = Shards::new(8192, 1);
        let mut looping = Looping { name, blocks: bytes / BLOCK, shards, age, reads: 0 };
        let rounds = age.as_secs() / EVERY.as_secs();
        (0..rounds.min(20)).for_each(|_| looping.read());
        looping.reads = looping.blocks * rounds;
        looping
    }

    fn read(&mut self) {
        (0..self.blocks).for_each(|block| self.shards.on_use(Kind::Read, block, 0..1));
        self.reads += self.blocks;
    }

    fn seen(&self, disk: &Arc<ServedDisk>) -> Seen {
        Seen {
            name: Name(self.name.into()),
            disk: disk.clone(),
            whole: Whole::Ram,
            block_size: BLOCK,
            unit: BLOCK,
            brings: 8 * MIB,
            has: 8 * MIB,
            sharing: config::Sharing { reservation: MIB, limit: 15 * MIB, shares: 1000 },
            limit: 15 * MIB,
            age: self.age,
            read: (self.shards.snapshot(), self.reads),
            keeps_reads: true,
        }
    }
}

/// A disk on a shard, where one has to be.
async fn any_disk() -> (Arc<ServedDisk>, ShardHandle) {
    let text = "[[disk]]\nname = 'db'\nbackend = 'mem:1MiB'\nram = '1MiB'\nnbd = ['unix:/x']\n";
    let spec = Arc::new(config::file::parse(text, Name("test".into())).unwrap());
    let (_log, events) = EventLog::start(None).unwrap();
    let shard = ShardHandle::start(0, 1, spec.reactor.0, events.clone()).unwrap();
    let population = Population::start(events.clone()).unwrap();
    let flash = Arc::new(Flash::new(events.clone()).0);
    let disk = spec.disks[0].clone();
    let opener = Opener::new(spec, flash, None, vec![shard.sender()], population, events);
    let opened = opener.open(&disk).unwrap();
    (opener.hand_over(&disk, opened).await.unwrap().disk, shard)
}

/// MiB that each of them is to have after one more round.
fn planned<const N: usize>(
    division: &mut Division,
    any: &Arc<ServedDisk>,
    disks: [&Looping; N],
) -> [u64; N] {
    let seen = disks.map(|it| it.seen(any));
    division.look(N as u64 * 8 * MIB, &seen);
    seen.map(|it| division.plan.of(&it.name).unwrap() / MIB)
}

#[tokio::test]
async fn a_busy_disk_that_begins_to_share_late_keeps_what_it_has() {
    let (any, _shard) = any_disk().await;
    let mut busy = Looping::new("busy", 6 * MIB, WEEK);
    let mut greedy = Looping::new("greedy", 12 * MIB, EVERY);
    let mut division = Division::default();
    for _ in 0..60 {
        assert_eq!(planned(&mut division, &any, [&greedy]), [8], "there is nobody else");
        greedy.read();
    }
    for round in 0..60 {
        let [has, _] = planned(&mut division, &any, [&busy, &greedy]);
        assert!(has >= 6, "{has} MiB in round {round}");
        busy.read();
        greedy.read();
    }
}

#[tokio::test]
async fn a_disk_that_was_busy_last_week_loses_to_a_steady_one_in_minutes() {
    let (any, _shard) = any_disk().await;
    let (idle, mut steady) =
        (Looping::new("idle", 6 * MIB, WEEK), Looping::new("steady", 12 * MIB, WEEK));
    let mut division = Division::default();
    let mut rounds = 0;
    while planned(&mut division, &any, [&idle, &steady]) != [4, 12] {
        steady.read();
        rounds += 1;
        assert!(rounds < 60, "ten minutes");
    }
}

#[test]
fn an_even_load_weighs_what_it_would_had_the_disk_shared_all_along() {
    let mut all_along = 0.0;
    for round in 1..=10_000 {
        all_along = all_along * KEEP + 1.0;
        let weight = first_counts(EVERY * round) * f64::from(round);
        assert!((weight - all_along).abs() < 0.001, "{weight} in round {round}, not {all_along}");
    }
    assert_eq!(
        [0, 1, 10].map(|age| first_counts(Duration::from_secs(age))),
        [1.0; 3],
        "it has just begun"
    );
}
