use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use forebay_core::config::Mode;
use forebay_core::stats::{LogState, LogStatistics, RingStatistics, TierState};
use regex_lite::Regex;

use super::super::Daemon as Running;
use super::*;
use crate::config::file;
use crate::daemon::api::{PrimaryState, ShardLoad, VhostUserInfo};
use crate::daemon::inherited::Inherited;
use crate::messages::reference::Page;

/// A disk with everything that a disk can have.
fn served(name: &str) -> ServedMetrics {
    let mut disk = ServedMetrics { flash_bytes_per_day: Some(1 << 30), ..Default::default() };
    disk.stats.name = name.to_owned();
    disk.stats.vhost_user = Some(VhostUserInfo {
        socket: "/run/db.vhost".to_owned(),
        queues: 1,
        is_connected: true,
        sessions: 1,
        requests: 0,
        replayed: 0,
        kicks: 0,
        calls: 0,
        broken: 0,
    });
    disk.stats.primary_storage = PrimaryState::Fails;
    let engine = &mut disk.stats.engine;
    (engine.mode, engine.mode_actual) = (Mode::WriteBack, Mode::WriteThrough);
    engine.block_size = 8192;
    engine.counters.reads = 7;
    engine.counters.injected_latency_ns = 1_500_000_000;
    (engine.ram.state, engine.flash.state) = (TierState::Active, TierState::Failed);
    engine.ram.slots_used = 3;
    engine.ring = Some(RingStatistics::default());
    let state = LogState::WaitsForFlush;
    let primary_age_ns = 2_500_000_000;
    engine.log = Some(LogStatistics { state, primary_age_ns, ..LogStatistics::default() });
    disk.latencies.read[1].counts[3] = 2;
    disk.latencies.read[1].counts[17] = 1;
    disk.latencies.read[1].sum_ns = 20_000_400_000;
    disk
}

fn scrape() -> Scrape {
    let configured = |name: &str, state| DiskMetrics { name: name.to_owned(), state, is_up: true };
    Scrape {
        daemon: Daemon { name: "prod".to_owned(), shards: 2, started: 1.5e9, ..Daemon::default() },
        shards: vec![ShardLoad { disks: 2, busy: Some(0.25), cpu_seconds: 12.5 }],
        listeners: vec![ListenerInfo {
            address: "unix:/run/db.sock".to_owned(),
            disks: Vec::new(),
            connections: 1,
            connections_max: 128,
            accepted: 9,
            refused: 0,
            handshakes_failed: 0,
        }],
        pools: vec![PoolMetrics {
            path: "/nvme/pool".to_owned(),
            is_up: true,
            usage: Some(PoolUsage::default()),
        }],
        disks: vec![configured("db", "served"), configured("old", "refused")],
        served: vec![served("db")],
    }
}

/// The names of all samples.
fn names(text: &str) -> BTreeSet<&str> {
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    samples.map(|line| line.split(['{', ' ']).next().unwrap_or_default()).collect()
}

#[test]
fn a_scrape_has_units_states_and_histograms() {
    let text = scrape().text(Format::OpenMetrics);
    for line in [
        "# TYPE forebay_disk_read_bytes counter",
        "# UNIT forebay_disk_read_bytes bytes",
        "forebay_build_info{version=\"0.1.0\"} 1",
        "forebay_disk_reads_total{disk=\"db\"} 7.0",
        "forebay_disk_injected_delay_seconds_total{disk=\"db\"} 1.5",
        "forebay_disk_dirty_age_seconds{disk=\"db\"} 2.5",
        "forebay_disk_cache_used_bytes{disk=\"db\",tier=\"ram\"} 24576.0",
        "forebay_disk_mode_requested{disk=\"db\",mode=\"write-back\"} 1.0",
        "forebay_disk_mode_actual{disk=\"db\",mode=\"write-through\"} 1.0",
        "forebay_disk_mode_reached{disk=\"db\"} 0.0",
        "forebay_disk_log_state{disk=\"db\",state=\"waits-for-flush\"} 1.0",
        "forebay_disk_primary_state{disk=\"db\",state=\"fails\"} 1.0",
        "forebay_disk_primary_up{disk=\"db\"} 0.0",
        "forebay_disk_flash_failed{disk=\"db\"} 1.0",
        "forebay_disk_state{disk=\"old\",state=\"refused\"} 1.0",
        "forebay_disk_read_latency_seconds_bucket{le=\"0.0001\",disk=\"db\",source=\"flash\"} 0",
        "forebay_disk_read_latency_seconds_bucket{le=\"0.00025\",disk=\"db\",source=\"flash\"} 2",
        "forebay_disk_read_latency_seconds_bucket{le=\"+Inf\",disk=\"db\",source=\"flash\"} 3",
        "forebay_disk_read_latency_seconds_sum{disk=\"db\",source=\"flash\"} 20.0004",
        "forebay_disk_read_latency_seconds_count{disk=\"db\",source=\"flash\"} 3",
    ] {
        let is_there = text.lines().any(|it| sorted(it) == sorted(line));
        assert!(is_there, "{line}\n{text}");
    }
    assert!(text.ends_with("# EOF\n"));
    let old = scrape().text(Format::Prometheus);
    assert!(old.contains("# TYPE forebay_disk_reads_total counter\n"), "{old}");
    assert_eq!(names(&old), names(&text), "both formats have the same samples");
}

/// A sample with its labels in the order of the alphabet.
fn sorted(line: &str) -> String {
    let Some((name, rest)) = line.split_once('{') else { return line.to_owned() };
    let (labels, value) = rest.rsplit_once('}').unwrap();
    let mut labels: Vec<&str> = labels.split(',').collect();
    labels.sort_unstable();
    format!("{name}{{{}}}{value}", labels.join(","))
}

#[test]
fn the_name_of_a_disk_cannot_break_a_line() {
    let text = Scrape { served: vec![served("a\"b\\c")], ..Scrape::default() };
    let text = text.text(Format::OpenMetrics);
    assert!(text.contains(r#"forebay_disk_reads_total{disk="a\"b\\c"} 7.0"#), "{text}");
}

#[test]
fn the_format_is_the_one_that_a_client_accepts() {
    let check = |header: &str, expect| assert_eq!(Format::accepted(header), expect, "{header}");
    check("", Format::OpenMetrics);
    check("*/*", Format::OpenMetrics);
    check("text/plain;version=0.0.4", Format::Prometheus);
    let prometheus =
        "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
    check(prometheus, Format::OpenMetrics);
}

#[test]
fn every_metric_of_a_scrape_is_on_the_reference_page_and_the_other_way_round() {
    let text = scrape().text(Format::OpenMetrics);
    let suffix = Regex::new("_(bucket|sum|count)$").unwrap();
    let in_scrape: BTreeSet<String> =
        names(&text).into_iter().map(|name| suffix.replace(name, "").into_owned()).collect();
    let page = Page::Metrics.text();
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    let on_page: BTreeSet<String> = rows.map(|(name, _)| name.to_owned()).collect();
    assert_eq!(in_scrape, on_page);
}

fn packaged(path: &str) -> String {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging"));
    std::fs::read_to_string(root.join(path)).unwrap()
}

#[test]
fn the_dashboard_and_the_alert_rules_use_metrics_that_exist() {
    let text = scrape().text(Format::OpenMetrics);
    let names = names(&text);
    let metric = Regex::new(r"\bforebay_[a-z0-9_]+").unwrap();
    for path in [
        "prometheus/forebay.rules.yml",
        "prometheus/forebay.rules.test.yml",
        "grafana/forebay.json",
    ] {
        let used = packaged(path);
        let used: BTreeSet<&str> = metric.find_iter(&used).map(|it| it.as_str()).collect();
        assert!(used.len() > 10, "{path}: {used:?}");
        let unknown: Vec<_> = used.iter().filter(|name| !names.contains(**name)).collect();
        assert!(unknown.is_empty(), "{path} uses metrics that no scrape has: {unknown:?}");
    }
    let panels: serde_json::Value =
        serde_json::from_str(&packaged("grafana/forebay.json")).unwrap();
    assert!(panels["panels"].as_array().is_some_and(|panels| panels.len() > 10));
}

#[test]
fn every_alert_has_a_test_that_sees_it_fire() {
    let (rules, tests) =
        (packaged("prometheus/forebay.rules.yml"), packaged("prometheus/forebay.rules.test.yml"));
    let alert = Regex::new(r"- alert: (\w+)").unwrap();
    let alerts: Vec<_> = alert.captures_iter(&rules).map(|it| it[1].to_owned()).collect();
    assert!(alerts.len() > 10);
    for name in alerts {
        assert!(tests.contains(&format!("alertname=\"{name}\"")), "nothing tests {name}");
    }
}

/// A daemon with the disks a and b, each on a shard of its own, in `folder`.
async fn daemon(folder: &Path) -> Running {
    let at = |name: &str| folder.join(name).display().to_string();
    let disk = |name: &str| {
        let socket = at(&format!("{name}.sock"));
        format!(
            "[[disk]]\nname = \"{name}\"\nbackend = \"mem:1MiB\"\nram = \"1MiB\"\nnbd = [\"unix:{socket}\"]\n"
        )
    };
    let text = format!(
        "shards = 2\nhttp = \"off\"\ncontrol = \"{}\"\nstate-dir = \"{}\"\n{}{}",
        at("control.sock"),
        at("state"),
        disk("a"),
        disk("b")
    );
    let spec = file::parse(&text, "test".parse().unwrap()).unwrap();
    Running::start(spec, Inherited::default()).await.unwrap()
}

#[tokio::test]
async fn clients_of_the_http_port_share_a_scrape_until_it_is_old() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = daemon(folder.path()).await;
    let text = |format, age_max| shared(&daemon.control, format, age_max);
    let together = tokio::join!(
        text(Format::OpenMetrics, Duration::MAX),
        text(Format::OpenMetrics, Duration::MAX),
        text(Format::Prometheus, Duration::MAX)
    );
    let (first, second, other) = (together.0.unwrap(), together.1.unwrap(), together.2.unwrap());
    // No two scrapes are alike: each has the daemon's age.
    assert_eq!(first, second);
    assert_ne!(first, other, "each format has a text of its own");
    let later = text(Format::OpenMetrics, Duration::ZERO).await.unwrap();
    assert_ne!(first, later, "an old text answers nobody");
    daemon.shut_down().await.unwrap();
}

#[tokio::test]
async fn a_shard_that_hangs_holds_up_no_scrape_and_its_disks_keep_their_last_figures() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = daemon(folder.path()).await;
    let is_up = |scrape: &Scrape| -> Vec<(String, bool)> {
        scrape.disks.iter().map(|disk| (disk.name.clone(), disk.is_up)).collect()
    };
    let of = |a, b| vec![("a".to_owned(), a), ("b".to_owned(), b)];
    let state: Arc<_> = daemon.control.clone();
    let first = collect(&state).await;
    assert_eq!((is_up(&first), first.served.len()), (of(true, true), 2));

    let (release, released) = channel::<()>();
    let (hangs, is_hanging) = tokio::sync::oneshot::channel();
    let handle = daemon.disks()[0].clone();
    let hanging = tokio::spawn(async move {
        let hang = move |_: &mut _| {
            let _ = hangs.send(());
            let _ = released.recv();
        };
        handle.observe(hang).await
    });
    is_hanging.await.unwrap();
    let second = collect(&state).await;
    assert_eq!((is_up(&second), second.served.len()), (of(false, true), 2));
    // From then on the shard is known to hang: a scrape waits for the other one alone.
    let began = std::time::Instant::now();
    let third = collect(&state).await;
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    assert_eq!(is_up(&third), of(false, true));

    drop(release);
    hanging.await.unwrap().unwrap();
    // The answer that was late is old: the next scrape asks again.
    let mut last = collect(&state).await;
    while is_up(&last) != of(true, true) {
        last = collect(&state).await;
    }
    daemon.shut_down().await.unwrap();
}
