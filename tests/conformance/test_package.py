"""The Debian package: its unit, what is in it, and what it does to a clean Debian.

The last needs root and a package, as `make deb-test` has them."""
import fcntl
import glob
import hashlib
import os
import re
import shutil
import subprocess
import tomllib

from bed import MIB, Skip, pattern, test
import nbd

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PACKAGING = os.path.join(ROOT, "packaging")
UNIT = os.path.join(PACKAGING, "forebay.service")
EXPOSURE_MAX = 3.0
SUITE = "bookworm"


def analyze(bed, *arguments, units=""):
    """What systemd says; of these `units` before those of the host."""
    if not shutil.which("systemd-analyze"):
        raise Skip("systemd-analyze is not installed")
    return bed.run(["env", "SYSTEMD_UNIT_PATH=%s:" % units, "systemd-analyze", *arguments], code=None)


def settings():
    """The unit's lines, without comments."""
    with open(UNIT) as f:
        return [line.strip() for line in f if line.strip() and not line.startswith(("#", "["))]


@test(forebay_only=True)
def the_unit_is_exposed_to_little(bed):
    said = analyze(bed, "security", "--offline=true", "--no-pager", UNIT)
    found = re.search(r"Overall exposure level for forebay.service: ([\d.]+)", said.stdout)
    if not found and "offline" in said.stderr:
        raise Skip("systemd-analyze is too old: it knows no --offline")
    assert float(found.group(1)) <= EXPOSURE_MAX, said.stdout


@test(forebay_only=True)
def systemd_understands_every_line_of_the_unit(bed):
    unit = bed.path("forebay.service")
    with open(UNIT) as f, open(unit, "w") as out:
        out.write(f.read().replace("/usr/bin/forebay", os.path.abspath(bed.program)))
    said = analyze(bed, "verify", "--man=no", unit)
    about_it = [line for line in said.stderr.splitlines() if "forebay" in line]
    assert said.returncode == 0 and not about_it, said.stderr


@test(forebay_only=True)
def a_host_starts_everything_with_an_initiator_before_forebay_or_behind_it(bed):
    """As the page of the service has it, with Debian's order of open-iscsi."""
    with open(os.path.join(ROOT, "docs/operating/service.md")) as f:
        page = f.read().split("## Other hypervisors")[1]
    order = page.split("```")[1]
    assert "take `remote-fs.target` out of `After=`" in page and order.count("Before=") == 1, page
    network = "[Unit]\nDefaultDependencies=no\nBefore=remote-fs-pre.target\nWants=remote-fs-pre.target\n"
    runs = "[Service]\nExecStart=/bin/true\n"
    with open(UNIT) as f:
        unit = f.read().replace("/usr/bin/forebay", os.path.abspath(bed.program))
    wants = "forebay.service iscsid.service open-iscsi.service remote-fs.target"

    def cycles(unit, order):
        for name, text in {
            "forebay.service": unit,
            "forebay.service.d/order.conf": order,
            "iscsid.service": network + "After=network-online.target\n" + runs,
            "open-iscsi.service": network + "After=iscsid.service\n" + runs,
            "host.target": "[Unit]\nWants=%s\nAfter=%s\n" % (wants, wants),
        }.items():
            path = bed.path("units/" + name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w") as out:
                out.write(text)
        said = analyze(bed, "verify", "--man=no", bed.path("units/host.target"), units=bed.path("units"))
        return re.findall("Job .* deleted to break ordering cycle", said.stderr)
    assert cycles(unit, order) == []
    behind = order.replace("Before=", "Before=iscsid.service ")
    assert cycles(unit, behind), "an edit alone is not enough"
    assert cycles(unit.replace(" remote-fs.target", ""), behind) == []


@test(forebay_only=True)
def the_unit_keeps_what_forebay_rests_on(bed):
    lines = settings()
    for needed in ["Type=notify", "User=forebay", "LimitMEMLOCK=infinity", "Restart=on-failure", "KillMode=mixed"]:
        assert needed in lines, needed
    assert not [line for line in lines if line.startswith("RemoveIPC=")], "staging files outlive the service"
    before = " ".join(line for line in lines if line.startswith("Before="))
    for starts in ["libvirt-guests.service", "pve-guests.service", "pve-ha-lrm.service"]:
        assert starts in before, "guests of %s start later, and end before" % starts


@test(forebay_only=True)
def the_unit_allows_every_system_call_that_forebay_makes(bed):
    """All of them but those of a start: a start, I/O, a write log, a change, an end, on io_uring and on epoll."""
    if not shutil.which("strace"):
        raise Skip("strace is not installed")
    sets = {}
    for line in analyze(bed, "syscall-filter", "--no-pager").stdout.splitlines():
        if line.startswith("@"):
            name = line.strip()
            sets[name] = set()
        elif line.strip() and not line.strip().startswith("#"):
            sets[name].add(line.strip())

    def all_of(word):
        return set().union(*map(all_of, sets[word])) if word in sets else {word}
    allowed = set()
    for line in settings():
        if line.startswith("SystemCallFilter="):
            words = line.removeprefix("SystemCallFilter=")
            named = set().union(*(all_of(word) for word in words.lstrip("~").split()))
            allowed = allowed - named if words.startswith("~") else allowed | named
    assert "io_uring_enter" in allowed and "mount" not in allowed

    image = bed.image("disk.raw", 4 * MIB)
    for reactor in ["io_uring", "epoll"]:
        trace = bed.path("trace-" + reactor)
        bed.prefix = ["strace", "-D", "-f", "-qq", "-e", "signal=none", "-o", trace]
        disk = bed.disk("file:" + image, mode="write-back", flash=bed.path("flash") + ":64MiB", name=reactor,
                        extra=["--reactor", reactor, "--vhost-user", bed.path("vhost-" + reactor), "--iscsi", "127.0.0.1:0"])
        h = nbd.NBD()
        h.connect_uri(disk.uri)
        h.pwrite(pattern(0, MIB), 0)
        h.flush()
        assert bytes(h.pread(MIB, 0)) == pattern(0, MIB)
        h.trim(MIB, MIB)
        h.shutdown()
        bed.run([bed.program, "disk", "flush", reactor, "--control", bed.path(reactor + ".control")])
        assert disk.stop() == 0
        with open(trace) as f:
            made = set(re.findall(r"^\d+ +(\w+)\(", f.read(), re.M))
        assert len(made) > 30, made
        assert made - allowed <= {"execve"}, "%s: not allowed: %s" % (reactor, sorted(made - allowed))


@test(forebay_only=True)
def the_package_has_what_an_administrator_needs(bed):
    folder = os.path.join(ROOT, "crates/forebay")
    with open(os.path.join(folder, "Cargo.toml"), "rb") as f:
        package = tomllib.load(f)["package"]["metadata"]["deb"]
    places = {}
    for source, place, mode in package["assets"]:
        made = "target/" in source
        assert made or glob.glob(os.path.join(folder, source)), "%s is missing" % source
        # One that is made has no file here yet.
        for name in glob.glob(os.path.join(folder, source)) or [source]:
            places[place + (os.path.basename(name) if place.endswith("/") else "")] = mode
    for place, mode in [("usr/bin/forebay", "755"), ("etc/forebay/forebay.toml", "644"),
                        ("usr/lib/systemd/system/forebay.service", "644"), ("usr/lib/sysusers.d/forebay.conf", "644"),
                        ("usr/share/man/man1/forebay.1", "644"), ("usr/share/zsh/vendor-completions/_forebay", "644"),
                        ("usr/share/bash-completion/completions/forebay", "644"),
                        ("usr/share/fish/vendor_completions.d/forebay.fish", "644"),
                        ("usr/share/doc/forebay/prometheus/forebay.rules.yml", "644"),
                        ("usr/share/doc/forebay/grafana/forebay.json", "644")]:
        assert places.get(place) == mode, place
    assert package["conf-files"] == ["/etc/forebay/forebay.toml"]
    for script in os.listdir(os.path.join(PACKAGING, "scripts")):
        bed.run(["sh", "-n", os.path.join(PACKAGING, "scripts", script)])
    # Both the example as it is and with its comments taken away.
    with open(os.path.join(PACKAGING, "forebay.toml")) as f:
        text = f.read()
    assert "no disk is configured" in bed.run([bed.program, "serve", "--check", "--config",
                                              os.path.join(PACKAGING, "forebay.toml")])
    disk = text[text.index("# [[disk]]"):].replace("\n# ", "\n").removeprefix("# ")
    with open(bed.path("forebay.toml"), "w") as f:
        f.write(disk.replace("/san/db.raw", bed.image("db.raw", MIB)).replace("/nvme/forebay/pool", bed.path("pool"))
                .replace("64GiB", "64MiB").replace("&group=kvm", ""))
    assert "1 disk" in bed.run([bed.program, "serve", "--check", "--config", bed.path("forebay.toml")])


@test(forebay_only=True)
def a_removal_names_a_pool_that_is_not_there(bed):
    """With stubs of what would change this host."""
    programs, state, pool = bed.path("bin"), bed.path("state"), bed.path("pool")
    os.mkdir(programs)
    os.symlink(bed.program, os.path.join(programs, "forebay"))
    with open(os.path.join(programs, "systemctl"), "w") as f:
        f.write("#!/bin/sh\n[ \"$1\" != --quiet ]\n")
    os.chmod(os.path.join(programs, "systemctl"), 0o755)
    with open(os.path.join(PACKAGING, "scripts/prerm")) as f:
        script = f.read().replace("/var/lib/forebay", state)

    def remove():
        return bed.run(["sh", "-c", script, "prerm", "remove"], env={"PATH": programs + ":/usr/bin:/bin"})
    disk = bed.disk("mem:16MiB", flash=pool + ":64MiB", mode="write-back")
    assert disk.stop() == 0
    assert glob.glob(state + "/*.pool"), os.listdir(state)
    assert "COMPLETE" not in remove()
    os.rename(pool, pool + "-of-flash-that-is-not-mounted")
    said = remove()
    assert "THESE IMAGES MAY NOT BE COMPLETE" in said, said
    assert "any disk in %s, which is not there now, may hold what primary storage lacks" % pool in said, said


# ---- in a clean Debian

class Debian:
    """A root of its own, above one that is kept for the next time. No systemd runs in it."""

    def __init__(self, bed):
        if not os.environ.get("FOREBAY_DEBIAN"):
            raise Skip("it takes a package and a clean Debian: make deb-test")
        if os.geteuid() != 0 or not shutil.which("debootstrap"):
            raise Skip("it takes root and debootstrap")
        packages = glob.glob(os.path.join(ROOT, "target/debian/forebay_*.deb"))
        assert packages, "make deb"
        self.bed, self.root, self.package = bed, bed.path("root"), max(packages, key=os.path.getmtime)
        clean = os.path.join(ROOT, "target/debian", SUITE)
        with open(clean + ".lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.make(clean)
        os.makedirs(self.root)
        for part in ["upper", "work"]:
            os.makedirs(bed.path(part))
        # Not on the overlay of a container: that cannot be the upper part of another one.
        bed.run(["mount", "-t", "tmpfs", "tmpfs", bed.path("upper")])
        for part in ["upper/upper", "upper/work"]:
            os.makedirs(bed.path(part))
        bed.run(["mount", "-t", "overlay", "overlay", "-o", "lowerdir=%s,upperdir=%s,workdir=%s"
                 % (clean, bed.path("upper/upper"), bed.path("upper/work")), self.root])

    def make(self, clean):
        if os.path.exists(clean):
            return
        begun = clean + ".new"
        shutil.rmtree(begun, ignore_errors=True)
        made = self.bed.run(["debootstrap", "--variant=minbase", "--include=systemd", SUITE, begun], code=None, timeout=600)
        if made.returncode != 0:
            raise Skip("debootstrap cannot make a clean Debian: " + made.stdout.splitlines()[-1])
        os.rename(begun, clean)

    def mount(self):
        """What a process needs where nothing boots. Not the host's own: the folder is removed in the end."""
        self.bed.run(["mount", "-t", "proc", "proc", self.path("proc")])
        self.bed.run(["mount", "-t", "tmpfs", "tmpfs", self.path("dev/shm")])

    def path(self, path):
        return os.path.join(self.root, path.lstrip("/"))

    def run(self, *command, code=0):
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
        return self.bed.run(["chroot", self.root, *command], code=code, env=environment)

    def install(self, package):
        """As an upgrade does that nobody watches: the administrator's configuration stays."""
        shutil.copy(package, self.path("/forebay.deb"))
        return self.run("dpkg", "--force-confold", "-i", "/forebay.deb")

    def write(self, path, text):
        with open(self.path(path), "w") as f:
            f.write(text)

    def serve(self):
        """As the unit does: the user, and the folders that systemd makes."""
        process = self.bed.spawn(
            ["chroot", "--userspec=forebay:forebay", self.root, "env", "-i", "RUNTIME_DIRECTORY=/run/forebay",
             "STATE_DIRECTORY=/var/lib/forebay", "/usr/bin/forebay", "serve", "--config", "/etc/forebay/forebay.toml"],
            stdout=subprocess.PIPE, text=True)
        said = []
        while "ready\n" not in said:
            said.append(process.stdout.readline())
            assert said[-1], "it did not start: %s" % said
        return process

    def hashes(self):
        return [hashlib.file_digest(open(self.path(path), "rb"), "sha256").hexdigest() for path in ["/nvme/pool", "/san/disk.raw"]]


def end(process):
    process.terminate()
    assert process.wait(60) == 0


def next_version(bed, package):
    """The same package one revision later, with another unit."""
    folder = bed.path("next")
    bed.run(["dpkg-deb", "-R", package, folder])
    with open(os.path.join(folder, "DEBIAN/control")) as f:
        control = f.read()
    version = re.search(r"^Version: (.*)$", control, re.M).group(1)
    with open(os.path.join(folder, "DEBIAN/control"), "w") as f:
        f.write(control.replace("Version: " + version, "Version: %s+next" % version))
    with open(os.path.join(folder, "usr/lib/systemd/system/forebay.service"), "a") as f:
        f.write("# the next version\n")
    # A revision has another text of the configuration, and the administrator has one of his own.
    with open(os.path.join(folder, "etc/forebay/forebay.toml"), "a") as f:
        f.write("# the next version\n")
    sums = os.path.join(folder, "DEBIAN/md5sums")
    if os.path.exists(sums):
        os.unlink(sums)
    bed.run(["dpkg-deb", "-b", "-Zgzip", "-z1", folder, bed.path("next.deb")])
    return bed.path("next.deb")


@test(forebay_only=True, timeout=900)
def the_package_is_installed_upgraded_removed_and_purged(bed):
    debian = Debian(bed)
    debian.mount()
    said = debian.install(debian.package)
    assert "systemctl enable --now forebay" in said, said
    debian.run("forebay", "--version")
    assert "kvm" in debian.run("id", "-nG", "forebay").split()
    assert int(debian.run("id", "-u", "forebay")) < 1000, "a system user: its files in /dev/shm stay"
    assert not os.path.lexists(debian.path("/etc/systemd/system/multi-user.target.wants/forebay.service"))
    for folder in ("/run/forebay", "/var/lib/forebay"):
        assert debian.run("stat", "-c", "%U %G", folder).split() == ["forebay", "forebay"], folder
    debian.run("systemctl", "enable", "forebay")
    assert os.path.lexists(debian.path("/etc/systemd/system/multi-user.target.wants/forebay.service"))
    # A fresh install serves nothing, and says so.
    process = debian.serve()
    end(process)

    config = ('[[disk]]\nname = "db"\nbackend = "file:/san/disk.raw"\nram = "16MiB"\nflash = "/nvme/pool:64MiB"\nmode = "write-back"\n'
              'nbd = ["unix:/run/forebay/db.sock?mode=0660&group=kvm"]\n')
    debian.write("/etc/forebay/forebay.toml", config)
    debian.run("install", "-d", "-o", "forebay", "/san", "/nvme")
    with open(debian.path("/san/disk.raw"), "wb") as f:
        f.truncate(4 * MIB)
    debian.run("chown", "forebay", "/san/disk.raw")
    process = debian.serve()
    assert os.stat(debian.path("/run/forebay/db.sock")).st_gid == int(debian.run("getent", "group", "kvm").split(":")[2])
    assert "db" in debian.run("forebay", "disk", "list"), "root finds the service's disks"
    debian.run("forebay", "disk", "pause", "db")
    h = nbd.NBD()
    h.connect_uri("nbd+unix:///db?socket=" + debian.path("/run/forebay/db.sock"))
    h.pwrite(pattern(0, MIB), 0)
    h.shutdown()
    end(process)

    assert "does not start the service" not in debian.install(next_version(bed, debian.package))
    with open(debian.path("/etc/forebay/forebay.toml")) as f:
        assert f.read() == config, "an upgrade leaves the administrator's file alone"
    with open(debian.path("/usr/lib/systemd/system/forebay.service")) as f:
        assert "# the next version" in f.read()
    before = debian.hashes()
    said = debian.run("dpkg", "-r", "forebay")
    assert "THESE IMAGES ARE NOT COMPLETE" in said and "disk db in /nvme/pool" in said, said
    assert debian.hashes() == before and os.path.exists(debian.path("/etc/forebay/forebay.toml"))
    assert "does not start the service" in debian.install(debian.package)
    debian.run("dpkg", "-r", "forebay")
    said = debian.run("dpkg", "-P", "forebay")
    assert "these flash pools stay" in said and "/nvme/pool" in said, said
    assert debian.hashes() == before and os.path.exists(debian.path("/var/lib/forebay"))
    assert not os.path.exists(debian.path("/etc/forebay/forebay.toml"))
    assert not os.path.lexists(debian.path("/etc/systemd/system/multi-user.target.wants/forebay.service"))

    # What the message says to do completes the image.
    debian.install(debian.package)
    debian.write("/etc/forebay/forebay.toml", config)
    process = debian.serve()
    debian.run("forebay", "disk", "resume", "db", code=None)
    debian.run("forebay", "disk", "flush", "db")
    end(process)
    with open(debian.path("/san/disk.raw"), "rb") as f:
        assert f.read(MIB) == pattern(0, MIB)
    said = debian.run("dpkg", "-r", "forebay")
    assert "COMPLETE" not in said, said
    os.unlink(debian.path("/nvme/pool"))
    # It may be on flash that is not mounted.
    said = debian.run("dpkg", "-P", "forebay")
    assert "/nvme/pool (not there now)" in said and os.path.exists(debian.path("/var/lib/forebay")), said
    debian.install(debian.package)
    for link in glob.glob(debian.path("/var/lib/forebay/*.pool")):
        os.unlink(link)
    debian.run("dpkg", "-P", "forebay")
    assert not os.path.exists(debian.path("/var/lib/forebay")), "nothing is left that says whose a pool is"


PROBE = """#!/bin/bash
exec > /probe.log 2>&1
show() { systemctl show forebay -p "$1" --value; }
await() { for _ in $(seq 600); do eval "$1" && return; sleep 0.1; done; echo "not: $1"; }
say() { echo "$1=$2"; }

systemctl enable --now forebay
say fresh "$? $(show ActiveState): $(show StatusText)"

install -d -o forebay /san /nvme
truncate -s 16M /san/disk.raw
chown forebay /san/disk.raw
cp /with-a-disk.toml /etc/forebay/forebay.toml
forebay doctor --config /etc/forebay/forebay.toml > /doctor.txt
say doctor "$?"
runuser -u forebay -- forebay doctor --config /etc/forebay/forebay.toml > /doctor-forebay.txt
say rights "$?"
systemctl restart forebay
say disk "$? $(show StatusText)"
say socket "$(stat -c '%U %G %a' /run/forebay/db.sock)"
say reactor "$(journalctl -u forebay --no-pager | grep -o 'on io_uring' | tail -n 1)"
say limits "$(show LimitMEMLOCK)"
systemctl reload forebay
say reload "$?"
await 'forebay events | grep -q "reload: .* says what is in force"'

systemctl kill -s KILL forebay
await '[ "$(show NRestarts)" = 1 ] && [ "$(show ActiveState)" = active ]'
say killed "$(show StatusText)"
mkdir -p /etc/systemd/system/forebay.service.d
printf '[Service]\\nWatchdogSec=3\\n' > /etc/systemd/system/forebay.service.d/quick.conf
systemctl daemon-reload
systemctl restart forebay
# Longer than the watchdog waits: it is fed.
before=$(show MainPID)
sleep 7
[ "$before" = "$(show MainPID)" ]
say fed "$?"
kill -STOP "$before"
await '[ "$before" != "$(show MainPID)" ] && [ "$(show ActiveState)" = active ]'
say watchdog "$(journalctl -u forebay --no-pager -p warning | grep -c 'Watchdog timeout')"

systemctl stop forebay
printf '[Socket]\\nListenStream=/run/forebay/db.sock\\nSocketMode=0660\\nSocketGroup=kvm\\n' > /etc/systemd/system/forebay.socket
systemctl daemon-reload
# As a boot does it.
rm -r /run/forebay
systemd-tmpfiles --create forebay.conf
systemctl start forebay.socket
systemctl start forebay.service
say passed "$(stat -c '%U %G %a' /run/forebay/db.sock)"
inode=$(stat -c %i /run/forebay/db.sock)
systemctl restart forebay
[ "$inode" = "$(stat -c %i /run/forebay/db.sock)" ]
say kept "$?"
say listed "$(forebay disk list)"
say own "$(runuser -u forebay -- forebay disk list)"
systemctl stop forebay.socket forebay.service
say end "$(show Result) $(show ExecMainStatus)"
dpkg -r forebay
say gone "$(systemctl is-active forebay)"
kill -RTMIN+4 1
"""


@test(forebay_only=True, timeout=900)
def a_debian_that_boots_runs_the_service(bed):
    debian = Debian(bed)
    if not shutil.which("systemd-nspawn"):
        raise Skip("systemd-nspawn is not installed")
    debian.install(debian.package)
    debian.write("/probe", PROBE)
    os.chmod(debian.path("/probe"), 0o755)
    debian.write("/with-a-disk.toml", '[[disk]]\nname = "db"\nbackend = "file:/san/disk.raw"\nram = "16MiB"\n'
                 'flash = "/nvme/pool:64MiB"\nmode = "write-back"\n'
                 'nbd = ["unix:/run/forebay/db.sock?mode=0660&group=kvm"]\n')
    debian.write("/etc/systemd/system/probe.service", "[Unit]\nAfter=multi-user.target\n[Service]\nType=oneshot\n"
                 "ExecStart=/probe\n[Install]\nWantedBy=default.target\n")
    debian.run("systemctl", "enable", "probe")
    booted = bed.run(["systemd-nspawn", "--register=no", "--keep-unit", "--private-network", "--quiet", "--boot",
                      "--directory", debian.root], code=None, timeout=300, stdin=subprocess.DEVNULL)
    if not os.path.exists(debian.path("/probe.log")):
        raise Skip("a Debian does not boot here: " + (booted.stderr + booted.stdout).strip()[-200:])
    with open(debian.path("/probe.log")) as f:
        log = f.read()
    print(log)
    said = dict(line.split("=", 1) for line in log.splitlines() if re.match(r"[a-z]+=", line))
    for key, expected in [("fresh", "0 active: no disk is configured"), ("doctor", "0"), ("rights", "0"),
                          ("disk", "0 1 of 1 disks served"), ("socket", "forebay kvm 660"),
                          ("reactor", "on io_uring"), ("limits", "infinity"), ("reload", "0"),
                          ("killed", "1 of 1 disks served"), ("fed", "0"), ("watchdog", "1"), ("passed", "root kvm 660"),
                          ("kept", "0"), ("listed", "db  16 MiB"), ("own", "db  16 MiB"), ("end", "success 0"), ("gone", "inactive")]:
        assert said.get(key, "").startswith(expected), "%s=%s, not %s" % (key, said.get(key), expected)
    assert "not: " not in log
