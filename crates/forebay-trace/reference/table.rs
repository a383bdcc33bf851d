//! Published hit ratios of real traces, and the comparison with what the simulator says.
//!
//! The traces are third-party data that the project does not keep: whoever has them names their
//! folder. Two independent sources: a simulator with 4 KiB granules in blocks of several sizes, and
//! libCacheSim 0.3.5 with blocks of one granule.
//!
//! CLOCK, SIEVE, LIRS and ARC are the papers' algorithms with libCacheSim's parameters; evictions that are bounded, and
//! that ARC learns of a block after the eviction for it, cost less than 0.01, but for one cell of ARC. W-TinyLFU's sketch
//! hashes and ages otherwise than libCacheSim's.
//!
//! S3-FIFO is allowed to differ more: with an exact ghost queue ours equals libCacheSim's in all
//! digits, but the engine's ghost is a small approximate one, which moves single figures by as much
//! as 0.014 (the sum of all 35 by 0.02), and an eviction is bounded, which moves them by 0.0005.

use std::path::Path;

use forebay_core::config::GridOffset;
use forebay_trace::Error;
use forebay_trace::formats::{Options, Reader};
use forebay_trace::record::Record;
use forebay_trace::simulate::{Settings, SimulatedPolicy, simulate};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Largest difference that is none.
pub const TOLERANCE: f64 = 0.0002;
/// The same for S3-FIFO.
const TOLERANCE_S3FIFO: f64 = 0.015;
/// The same for CLOCK, SIEVE and LIRS.
const TOLERANCE_CLASSIC: f64 = 0.01;
/// The same for ARC; one cell differs by more than 0.01.
const TOLERANCE_ARC: f64 = 0.026;
/// The same for W-TinyLFU.
const TOLERANCE_WTINYLFU: f64 = 0.045;

/// One figure, ours beside the published one.
pub struct Cell {
    /// Trace, cache, policy, block size, and which ratio.
    pub what: String,
    /// The published figure.
    pub expect: f64,
    /// The simulator's.
    pub found: f64,
    /// Largest difference that is none.
    pub tolerance: f64,
}

impl Cell {
    /// True when the figure may stand.
    pub fn is_good(&self) -> bool {
        (self.expect - self.found).abs() <= self.tolerance + 1e-9
    }
}

/// A trace of the folder.
fn read(folder: &Path, name: &str, options: Options) -> Result<Vec<Record>, Error> {
    Reader::open(&folder.join(name), &options)?.collect()
}

/// Runs everything and hands each figure over as soon as it is there.
///
/// # Errors
/// A trace is missing or cannot be read.
pub fn compare(folder: &Path, mut show: impl FnMut(Cell)) -> Result<(), Error> {
    cloud_physics(folder, &mut show)?;
    single_lines(folder, &mut show)?;
    libcachesim(folder, &mut show)
}

fn run(records: &[Record], cache: u64, block: u64, policy: &str) -> (f64, f64, f64) {
    let settings = Settings {
        cache_size: cache,
        block_size: block,
        policy: policy.parse::<SimulatedPolicy>().expect("a policy of the table"),
        grid_offset: GridOffset::Fixed(0),
    };
    let outcome = simulate(records.iter().map(|&record| Ok(record)), &settings);
    let outcome = outcome.expect("the settings of the table work");
    (outcome.read_hit_ratio, outcome.read_request_hit_ratio, outcome.miss_ratio)
}

/// Read 4 KiB hit ratio and whole-request hit ratio at 4K, 8K, … 512K.
type Row = (u64, &'static str, [(f64, f64); 8]);

#[rustfmt::skip]
const CLOUD_PHYSICS: [Row; 7] = [
    (GIB, "lru", [(0.8750, 0.8923), (0.8750, 0.8923), (0.8234, 0.8578), (0.7585, 0.7996), (0.7571, 0.7897), (0.7566, 0.7892), (0.7573, 0.7899), (0.7569, 0.7893)]),
    (GIB, "fifo", [(0.8747, 0.8901), (0.8746, 0.8899), (0.8746, 0.8895), (0.8346, 0.8440), (0.7536, 0.7871), (0.7537, 0.7870), (0.7520, 0.7856), (0.7526, 0.7858)]),
    (512 * MIB, "lru", [(0.5891, 0.6436), (0.5965, 0.6594), (0.6034, 0.6719), (0.6126, 0.6762), (0.6220, 0.6876), (0.6242, 0.6959), (0.6074, 0.6870), (0.5892, 0.6712)]),
    (512 * MIB, "fifo", [(0.6673, 0.7275), (0.6667, 0.7269), (0.6653, 0.7251), (0.6627, 0.7233), (0.6573, 0.7198), (0.6476, 0.7134), (0.5401, 0.6235), (0.4318, 0.4133)]),
    (256 * MIB, "lru", [(0.3470, 0.2966), (0.3396, 0.2914), (0.3326, 0.2814), (0.3257, 0.2771), (0.3138, 0.2705), (0.3031, 0.2584), (0.2832, 0.2234), (0.2511, 0.1685)]),
    (256 * MIB, "fifo", [(0.4274, 0.3674), (0.4240, 0.3582), (0.4149, 0.3456), (0.3905, 0.3212), (0.3561, 0.2907), (0.3542, 0.2556), (0.3379, 0.2222), (0.3090, 0.1830)]),
    (128 * MIB, "lru", [(0.1344, 0.0770), (0.1326, 0.0741), (0.1308, 0.0736), (0.1260, 0.0692), (0.1202, 0.0620), (0.1128, 0.0525), (0.1042, 0.0427), (0.0937, 0.0359)]),
];

fn cloud_physics(folder: &Path, show: &mut impl FnMut(Cell)) -> Result<(), Error> {
    let records = read(folder, "cloudPhysicsIO.vscsi.zst", Options::default())?;
    for (cache, policy, row) in CLOUD_PHYSICS {
        for (step, (granules, requests)) in row.into_iter().enumerate() {
            let block = (4 * KIB) << step;
            let found = run(&records, cache, block, policy);
            let what = format!("CloudPhysics {} MiB {policy} {} KiB", cache / MIB, block / KIB);
            let cell = |ratio, expect, found| Cell {
                what: format!("{what} {ratio}"),
                expect,
                found,
                tolerance: TOLERANCE,
            };
            show(cell("granules", granules, found.0));
            show(cell("requests", requests, found.1));
        }
    }
    Ok(())
}

fn single_lines(folder: &Path, show: &mut impl FnMut(Cell)) -> Result<(), Error> {
    let tables = [
        ("msprod-DTRS1K.ssdsim.zst", 4 * GIB, "lru", [0.2899, 0.2886, 0.2407]),
        ("msprod-DTRS1K.ssdsim.zst", 4 * GIB, "fifo", [0.3058, 0.2798, 0.2528]),
        ("msr-prxy_0-reads-13h.mqsim.zst", 16 * MIB, "lru", [0.6980, 0.6827, 0.6793]),
        ("msr-prxy_0-reads-13h.mqsim.zst", 16 * MIB, "fifo", [0.6928, 0.6822, 0.6787]),
    ];
    for (name, cache, policy, row) in tables {
        let records = read(folder, name, Options::default())?;
        for (block, expect) in [4, 64, 512].into_iter().zip(row) {
            let found = run(&records, cache, block * KIB, policy).0;
            let what = format!("{name} {} MiB {policy} {block} KiB granules", cache / MIB);
            show(Cell { what, expect, found, tolerance: TOLERANCE });
        }
    }
    // A quarter of the pages that each touches; published with three digits.
    for (name, pages, lru, fifo) in
        [("P3.lis.zst", 762_543, 0.577, 0.528), ("OLTP.lis.zst", 186_880, 0.733, 0.707)]
    {
        let records = read(folder, name, Options::default())?;
        for (policy, expect) in [("lru", lru), ("fifo", fifo)] {
            let found = run(&records, pages / 4 * 512, 512, policy).0;
            let what = format!("{name} 25 % {policy} pages");
            show(Cell { what, expect, found: (found * 1e3).round() / 1e3, tolerance: TOLERANCE });
        }
    }
    Ok(())
}

/// The policies of the tables below, in the order of their columns.
const POLICIES: [&str; 9] =
    ["lru", "fifo", "clock", "sieve", "s3fifo", "arc", "lirs", "wtinylfu", "belady"];

/// Miss ratios of [`POLICIES`] at shares of 1, 5, 10, 25 and 50 % of the blocks.
struct Table {
    name: &'static str,
    block: u64,
    blocks: u64,
    len_unit: u32,
    rows: [[f64; POLICIES.len()]; 5],
}

#[rustfmt::skip]
const LIBCACHESIM: [Table; 7] = [
    Table { name: "cloudPhysicsIO.vscsi.zst", block: 4096, blocks: 269_210, len_unit: 512, rows: [
        [0.8969, 0.8977, 0.8970, 0.9032, 0.8939, 0.8979, 0.9083, 0.9075, 0.8646],
        [0.8871, 0.8873, 0.8868, 0.8653, 0.8662, 0.8555, 0.8534, 0.8761, 0.7703],
        [0.8741, 0.8729, 0.8729, 0.8329, 0.8192, 0.8245, 0.8145, 0.8411, 0.6761],
        [0.7417, 0.7155, 0.7581, 0.7116, 0.6735, 0.7827, 0.6897, 0.7123, 0.4913],
        [0.4733, 0.4570, 0.4985, 0.4446, 0.4603, 0.5251, 0.5023, 0.4520, 0.3352],
    ] },
    Table { name: "msprod-DTRS1K.ssdsim.zst", block: 4096, blocks: 1_272_267, len_unit: 512, rows: [
        [0.9997, 0.9997, 0.9997, 0.9996, 0.9939, 0.9996, 0.9934, 0.9942, 0.9717],
        [0.9995, 0.9996, 0.9995, 0.9994, 0.9775, 0.9994, 0.9743, 0.9783, 0.9131],
        [0.9992, 0.9993, 0.9992, 0.9989, 0.9528, 0.9989, 0.9469, 0.9488, 0.8413],
        [0.9777, 0.9766, 0.9774, 0.9802, 0.8779, 0.9802, 0.8654, 0.8631, 0.7328],
        [0.9075, 0.9021, 0.9077, 0.9101, 0.7809, 0.9077, 0.7540, 0.7553, 0.7232],
    ] },
    Table { name: "msr-prxy_0-reads-13h.mqsim.zst", block: 4096, blocks: 20_017, len_unit: 512, rows: [
        [0.4490, 0.4520, 0.4502, 0.4788, 0.4767, 0.4569, 0.5391, 0.5492, 0.3825],
        [0.3474, 0.3474, 0.3476, 0.3310, 0.3270, 0.3307, 0.3655, 0.3961, 0.3021],
        [0.3336, 0.3309, 0.3302, 0.3251, 0.3043, 0.3205, 0.3355, 0.3331, 0.2832],
        [0.3001, 0.3000, 0.3006, 0.2912, 0.2914, 0.2947, 0.3156, 0.3013, 0.2806],
        [0.2974, 0.2976, 0.2892, 0.2879, 0.2871, 0.2877, 0.2900, 0.2916, 0.2806],
    ] },
    Table { name: "financial1-50k-pages.disksim.zst", block: 4096, blocks: 31_150, len_unit: 4096, rows: [
        [0.4143, 0.4464, 0.4151, 0.4356, 0.4305, 0.4123, 0.4936, 0.6381, 0.3529],
        [0.3730, 0.3823, 0.3736, 0.3743, 0.3602, 0.3716, 0.4022, 0.4452, 0.2950],
        [0.3577, 0.3592, 0.3605, 0.3592, 0.3123, 0.3567, 0.3705, 0.3360, 0.2585],
        [0.3029, 0.3264, 0.3188, 0.2789, 0.2681, 0.2738, 0.2758, 0.2941, 0.2381],
        [0.2553, 0.2718, 0.2479, 0.2493, 0.2545, 0.2489, 0.2557, 0.2616, 0.2381],
    ] },
    Table { name: "financial1-first10k.ssdsim.zst", block: 4096, blocks: 7_322, len_unit: 512, rows: [
        [0.5431, 0.5706, 0.5570, 0.5922, 0.5517, 0.5281, 0.6264, 1.0000, 0.4119],
        [0.4209, 0.4395, 0.4224, 0.4320, 0.4360, 0.4227, 0.5006, 0.6194, 0.3757],
        [0.4046, 0.4140, 0.4071, 0.4082, 0.4052, 0.4006, 0.4472, 0.5550, 0.3595],
        [0.3932, 0.4006, 0.3917, 0.3923, 0.3681, 0.3905, 0.3896, 0.4168, 0.3253],
        [0.3289, 0.3324, 0.3817, 0.3800, 0.3279, 0.3763, 0.3424, 0.3535, 0.3253],
    ] },
    Table { name: "OLTP.lis.zst", block: 512, blocks: 186_880, len_unit: 512, rows: [
        [0.5837, 0.6341, 0.5783, 0.5971, 0.5354, 0.5460, 0.5837, 0.6311, 0.4024],
        [0.3992, 0.4340, 0.3960, 0.4001, 0.3791, 0.3901, 0.4035, 0.4159, 0.2736],
        [0.3348, 0.3666, 0.3314, 0.3334, 0.3234, 0.3273, 0.3434, 0.3619, 0.2379],
        [0.2673, 0.2931, 0.2640, 0.2628, 0.2624, 0.2626, 0.2765, 0.2925, 0.2044],
        [0.2186, 0.2349, 0.2181, 0.2199, 0.2224, 0.2189, 0.2311, 0.2385, 0.2044],
    ] },
    Table { name: "P3.lis.zst", block: 512, blocks: 762_543, len_unit: 512, rows: [
        [0.9841, 0.9840, 0.9840, 0.9714, 0.9579, 0.9617, 0.9596, 0.9562, 0.8931],
        [0.9567, 0.9542, 0.9560, 0.8799, 0.8093, 0.8243, 0.8088, 0.8095, 0.6412],
        [0.8319, 0.8237, 0.8086, 0.7517, 0.6608, 0.6774, 0.6414, 0.7001, 0.4479],
        [0.4233, 0.4718, 0.4110, 0.4726, 0.4128, 0.4152, 0.4138, 0.4605, 0.2664],
        [0.2549, 0.2748, 0.2489, 0.2422, 0.2542, 0.2476, 0.2393, 0.2433, 0.1949],
    ] },
];

/// Policies of the tables that `auto` is held against.
const CLASSICS: [&str; 6] = ["lru", "arc", "s3fifo", "sieve", "wtinylfu", "lirs"];

/// What `auto` misses on one trace with one cache, beside the published figures.
pub struct Standing {
    /// Trace and share of its blocks.
    pub what: String,
    /// The policy that misses least, and what it misses.
    pub best: (&'static str, f64),
    /// What `auto` misses.
    pub auto: f64,
    /// What the offline optimum misses.
    pub belady: f64,
    /// What each of [`CLASSICS`] misses.
    classics: [f64; CLASSICS.len()],
}

impl Standing {
    /// How much more `auto` misses than the best, in percentage points.
    pub fn excess(&self) -> f64 {
        (self.auto - self.best.1) * 100.0
    }
}

/// How much more than the best each of the classics misses on the mean, in percentage points.
pub fn excesses(rows: &[Standing]) -> Vec<(&'static str, f64)> {
    let mean = |at: usize| {
        let all: f64 = rows.iter().map(|row| row.classics[at] - row.best.1).sum();
        all / rows.len() as f64 * 100.0
    };
    CLASSICS.into_iter().enumerate().map(|(at, policy)| (policy, mean(at))).collect()
}

/// Runs `auto` on every trace of the tables.
///
/// # Errors
/// A trace is missing or cannot be read.
pub fn auto(folder: &Path) -> Result<Vec<Standing>, Error> {
    let mut rows = Vec::new();
    for Table { name, block, blocks, len_unit, rows: published } in LIBCACHESIM {
        let options = Options { len_unit: Some(len_unit), ..Options::default() };
        let records = read(folder, name, options)?;
        for (percent, row) in [1, 5, 10, 25, 50].into_iter().zip(published) {
            let of = |policy| row[POLICIES.iter().position(|&of| of == policy).unwrap_or(0)];
            let classics = CLASSICS.map(of);
            let least = (0..CLASSICS.len()).min_by(|&a, &b| classics[a].total_cmp(&classics[b]));
            let least = least.unwrap_or(0);
            rows.push(Standing {
                what: format!("{} {percent} %", name.split('.').next().unwrap_or(name)),
                best: (CLASSICS[least], classics[least]),
                auto: run(&records, blocks * percent / 100 * block, block, "auto").2,
                belady: of("belady"),
                classics,
            });
        }
    }
    Ok(rows)
}

fn libcachesim(folder: &Path, show: &mut impl FnMut(Cell)) -> Result<(), Error> {
    for Table { name, block, blocks, len_unit, rows } in LIBCACHESIM {
        let options = Options { len_unit: Some(len_unit), ..Options::default() };
        let records = read(folder, name, options)?;
        for (percent, row) in [1, 5, 10, 25, 50].into_iter().zip(rows) {
            for (policy, expect) in POLICIES.into_iter().zip(row) {
                if expect == 1.0 {
                    // A window of no slot, into which nothing fits.
                    continue;
                }
                let cache = blocks * percent / 100 * block;
                let found = run(&records, cache, block, policy).2;
                let tolerance = match policy {
                    "lru" | "fifo" | "belady" => TOLERANCE,
                    "s3fifo" => TOLERANCE_S3FIFO,
                    "arc" => TOLERANCE_ARC,
                    "wtinylfu" => TOLERANCE_WTINYLFU,
                    _ => TOLERANCE_CLASSIC,
                };
                show(Cell {
                    what: format!("{name} {percent} % {policy} misses"),
                    expect,
                    found,
                    tolerance,
                });
            }
        }
    }
    Ok(())
}
