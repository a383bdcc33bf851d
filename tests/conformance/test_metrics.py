"""What a monitoring system reads: metrics, alert rules and the dashboard, with Prometheus itself."""
import json
import os
import re
import shutil
import signal
import socket
import time
import urllib.error
import urllib.parse
import urllib.request

import nbd

from bed import KIB, MIB, Skip, eventually, free_port, test

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
RULES = os.path.join(ROOT, "packaging/prometheus/forebay.rules.yml")
DASHBOARD = os.path.join(ROOT, "packaging/grafana/forebay.json")
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


def program(name):
    """Where scripts/setup puts it, or where it is installed."""
    path = os.path.join(ROOT, "target/tools/prometheus", name)
    found = path if os.access(path, os.X_OK) else shutil.which(name)
    if not found:
        raise Skip("%s is missing: make setup" % name)
    return found


def address_of(server):
    return re.search(r"metrics  http://(\S+)/metrics", server.said).group(1)


def get(address, path="/metrics", accept="*/*"):
    request = urllib.request.Request("http://%s%s" % (address, path), headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=30) as response:
        return response.read().decode(), response.headers["Content-Type"]


def value(text, sample):
    found = re.search(r"^%s ([0-9.e+]+)$" % re.escape(sample), text, re.M)
    assert found, "no %s in %s" % (sample, text)
    return float(found.group(1))


def client(server, disk):
    handle = nbd.NBD()
    handle.connect_uri(server.uri_of(disk))
    return handle


def disks(bed, *names, flash=True):
    config = ""
    for name in names:
        config += '[[disk]]\nname = "%s"\nbackend = "mem:16MiB"\nram = "1MiB"\nnbd = ["unix:%s"]\n' % (
            name, bed.path(name + ".sock"))
        if flash:
            config += 'mode = "write-back"\nflash = "%s:48MiB"\n' % bed.path("pool")
    return config


@test(forebay_only=True)
def metrics_count_what_clients_do_in_both_formats_and_promtool_takes_them(bed):
    config = 'http = "127.0.0.1:0"\ncontrol = "%s"\n' % bed.path("serve.control")
    server = bed.serve(config + disks(bed, "db", "web"), ["unix:" + bed.path("db.sock")])
    address = address_of(server)
    h = client(server, "db")
    for at in range(0, MIB, 64 * KIB):
        h.pwrite(b"x" * 64 * KIB, at)
        h.pread(64 * KIB, at)
    h.flush()
    # A pool that has not answered in time has no figures yet.
    answers = 'forebay_pool_up{pool="%s"}' % bed.path("pool")
    eventually(lambda: value(get(address)[0], answers) == 1, "the pool answers")
    text, kind = get(address)
    assert kind == OPENMETRICS and text.endswith("# EOF\n"), kind
    assert value(text, 'forebay_disk_writes_total{disk="db"}') == 16
    assert value(text, 'forebay_disk_written_bytes_total{disk="db"}') == MIB
    assert value(text, 'forebay_disk_reads_total{disk="db"}') == 16
    assert value(text, 'forebay_disk_clients{disk="db"}') == 1
    assert value(text, 'forebay_disk_writes_total{disk="web"}') == 0
    assert value(text, 'forebay_disk_write_latency_seconds_count{disk="db"}') == 16
    assert 0 < value(text, 'forebay_disk_write_latency_seconds_sum{disk="db"}') < 60
    assert value(text, 'forebay_disk_up{disk="db"}') == 1
    assert value(text, 'forebay_disk_mode_actual{disk="db",mode="write-back"}') == 1
    assert value(text, 'forebay_pool_capacity_bytes{pool="%s"}' % bed.path("pool")) >= 96 * MIB
    h.shutdown()
    listener = 'forebay_listener_connections{listener="unix:%s"}' % bed.path("db.sock")
    eventually(lambda: value(get(address)[0], listener) == 0, "the client is gone")
    old, kind = get(address, accept="text/plain")
    assert kind.startswith("text/plain; version=0.0.4"), kind
    bed.run([program("promtool"), "check", "metrics"], input=old)
    try:
        get(address, "/")
        raise AssertionError("there is no such path")
    except urllib.error.HTTPError as error:
        assert error.code == 404 and b"/metrics" in error.read()
    for name in ("db", "web"):
        bed.run([bed.program, "disk", "remove", name, "--control", bed.path("serve.control")])
    eventually(lambda: "forebay_pool_up{" not in get(address)[0], "a pool that is closed has no metrics")
    assert server.stop() == 0


@test(forebay_only=True)
def a_taken_port_costs_metrics_and_no_disk_until_it_is_free_again(bed):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        address = "127.0.0.1:%d" % other.getsockname()[1]
        config = 'http = "%s"\ncontrol = "%s"\n' % (address, bed.path("serve.control"))
        server = bed.serve(config + disks(bed, "db", flash=False), ["unix:" + bed.path("db.sock")])
        assert "metrics" not in server.said, server.said
        assert bytes(client(server, "db").pread(512, 0)) == bytes(512)
        events = bed.run([bed.program, "events", "--control", bed.path("serve.control")])
        assert "metrics are not served: cannot listen at %s: another server is there" % address in events, events
    server.process.send_signal(signal.SIGHUP)

    def is_served():
        try:
            return value(get(address)[0], 'forebay_disk_reads_total{disk="db"}') == 1
        except OSError:
            return False

    eventually(is_served, "SIGHUP opens the port")
    assert server.stop() == 0


@test(forebay_only=True)
def a_disk_that_is_being_opened_is_starting_in_the_metrics(bed):
    image = bed.image("db.raw", MIB)
    os.mkfifo(image + ".forebay")  # nobody writes to it: whoever reads the sidecar waits
    address = "127.0.0.1:%d" % free_port()
    with open(bed.path("f.toml"), "w") as f:
        f.write('http = "%s"\ncontrol = "%s"\nstate-dir = "%s"\n' % (address, bed.path("control"), bed.path("state")))
        f.write('[[disk]]\nname = "db"\nbackend = "file:%s"\nram = "1MiB"\nnbd = ["unix:%s"]\n' % (image, bed.path("db.sock")))
    starting = bed.spawn([bed.program, "serve", "--config", bed.path("f.toml")])

    def text():
        try:
            return get(address)[0]
        except OSError:
            return None

    came = eventually(text, "the port is open while disks are opened")
    assert value(came, 'forebay_disk_state{disk="db",state="starting"}') == 1
    assert value(came, 'forebay_disk_up{disk="db"}') == 0
    starting.kill()


@test(forebay_only=True)
def promtool_takes_the_alert_rules_and_each_alert_fires_in_its_test(bed):
    promtool = program("promtool")
    bed.run([promtool, "check", "rules", RULES])
    bed.run([promtool, "test", "rules", RULES.replace(".yml", ".test.yml")])


@test(forebay_only=True)
def prometheus_scrapes_a_daemon_and_evaluates_rules_and_dashboard(bed):
    prometheus = program("prometheus")
    config = 'http = "127.0.0.1:0"\ncontrol = "%s"\n' % bed.path("serve.control")
    server = bed.serve(config + disks(bed, "db"), ["unix:" + bed.path("db.sock")])
    with open(bed.path("prometheus.yml"), "w") as f:
        f.write("global: {scrape_interval: 1s, evaluation_interval: 1s}\nrule_files: ['%s']\n"
                "scrape_configs: [{job_name: forebay, static_configs: [{targets: ['%s']}]}]\n" % (RULES, address_of(server)))
    own = "127.0.0.1:%d" % free_port()
    bed.spawn([prometheus, "--config.file", bed.path("prometheus.yml"), "--storage.tsdb.path", bed.path("tsdb"),
               "--web.listen-address", own])

    def ask(path, **parameters):
        text, _ = get(own, "/api/v1/%s?%s" % (path, urllib.parse.urlencode(parameters)))
        return json.loads(text)["data"]

    def is_scraped():
        try:
            target, = ask("targets")["activeTargets"]
        except (OSError, ValueError):
            return False
        assert not target["lastError"], target
        return target["health"] == "up"

    eventually(is_scraped, "Prometheus scrapes the daemon")
    samples = ask("query", query='{job="forebay", __name__=~"forebay_.*"}')["result"]
    assert len(samples) > 100, samples

    def are_evaluated():
        rules = ask("rules")["groups"][0]["rules"]
        assert all(not rule.get("lastError") for rule in rules), rules
        return all(rule["health"] == "ok" for rule in rules)

    eventually(are_evaluated, "Prometheus evaluates each rule")
    with open(DASHBOARD) as f:
        panels = json.load(f)["panels"]
    queries = [target["expr"] for panel in panels for target in panel.get("targets", [])]
    assert len(queries) > 30, queries
    for query in queries:
        query = query.replace("$__rate_interval", "1m").replace("$instance", ".*").replace("$disk", ".*")
        ask("query", query=query)  # a query that is wrong is an HTTP error
    assert server.stop() == 0


@test(forebay_only=True, alone=True)
def a_scrape_of_500_disks_takes_less_than_100_ms(bed):
    config = 'http = "127.0.0.1:0"\ncontrol = "%s"\n' % bed.path("serve.control")
    for number in range(500):
        config += '[[disk]]\nname = "d%d"\nbackend = "mem:1MiB"\nram = "1MiB"\nrecorder = "0"\n' % number
    config += '[[nbd]]\nlisten = "unix:%s"\n' % bed.path("all.sock")
    server = bed.serve(config, ["unix:" + bed.path("all.sock")])
    took, last = [], None
    while len(took) < 5:
        began = time.monotonic()
        text, _ = get(address_of(server))
        if text != last:  # the port answers with the last scrape for a second, and that is not measured
            took.append(time.monotonic() - began)
        assert text.count("\nforebay_disk_reads_total{") == 500
        last = text
    print("a scrape of 500 disks: %.0f ms, %d bytes" % (1000 * min(took), len(text)))
    assert is_debug(bed) or min(took) < 0.1, took
    assert server.stop() == 0


def is_debug(bed):
    """A program that is not optimised is not measured."""
    return "/debug/" in bed.program
