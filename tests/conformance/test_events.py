"""Events: in the journal, in a file that outlives the daemon, followed over a restart."""
import json
import os
import signal
import subprocess
import time

from bed import MIB, eventually, test


def config(bed, more=""):
    return ('control = "%s"\n[[disk]]\nname = "a"\nbackend = "mem:16MiB"\nram = "16MiB"\nnbd = ["unix:%s"]\n%s'
            % (bed.path("serve.control"), bed.path("a.sock"), more))


def events(bed, *options):
    said = bed.run([bed.program, "events", "--control", bed.path("serve.control"), "--json", *options])
    return [json.loads(line) for line in said.splitlines()]


@test(forebay_only=True)
def events_are_kept_over_restarts_and_kills(bed):
    server = bed.serve(config(bed), ["unix:" + bed.path("a.sock")])
    assert events(bed) == []
    server.stop()
    server.start()
    texts = [event["text"] for event in events(bed)]
    assert any("SIGTERM" in text for text in texts) and "ended: everything" in texts[-1], texts
    bed.run([bed.program, "disk", "set", "a", "--mode", "write-around", "--control", bed.path("serve.control")])
    file = bed.path("state/forebay.events")
    eventually(lambda: open(file).read().count("write-around") == 2, "the file has both events of the change")
    server.kill()
    # The host died as well: the last line is torn, and the next one stands alone.
    with open(file, "r+") as f:
        f.truncate(os.path.getsize(file) - 5)
    server.start()
    kept = events(bed)
    assert len(kept) == len(texts) + 1 and [it["text"] for it in kept][:len(texts)] == texts, kept
    server.stop()
    server.start()
    numbers = [event["number"] for event in events(bed)]
    assert numbers == sorted(set(numbers)) and len(numbers) == len(texts) + 3, numbers
    whole = [line for line in open(file).read().splitlines() if line.endswith("}")]
    assert len(whole) == len(numbers), "the torn line is alone"


@test(forebay_only=True)
def a_file_of_garbage_keeps_no_daemon_from_starting(bed):
    os.mkdir(bed.path("state"))
    with open(bed.path("state/forebay.events"), "wb") as f:
        f.write(os.urandom(3 * MIB))
    server = bed.serve(config(bed), ["unix:" + bed.path("a.sock")])
    assert events(bed) == []
    server.stop()
    server.start()
    assert len(events(bed)) == 2
    # What is no file is no place for events, and the daemon says so.
    server.stop()
    os.unlink(bed.path("state/forebay.events"))
    os.mkfifo(bed.path("state/forebay.events"))
    server.start()
    assert "events are not kept over a restart" in events(bed)[0]["text"]


@test(forebay_only=True)
def who_follows_events_sees_those_of_the_next_run(bed):
    server = bed.serve(config(bed), ["unix:" + bed.path("a.sock")])
    follower = bed.spawn([bed.program, "events", "--follow", "--json", "--control", bed.path("serve.control")],
                         stdout=subprocess.PIPE, text=True)
    server.process.send_signal(signal.SIGHUP)
    assert "reload" in json.loads(follower.stdout.readline())["text"]
    server.stop()
    server.start()
    server.process.send_signal(signal.SIGHUP)
    seen = []
    while "reload" not in (seen[-1]["text"] if seen else ""):
        seen.append(json.loads(follower.stdout.readline()))
    numbers = [event["number"] for event in seen]
    assert numbers == list(range(2, 2 + len(numbers))), "each of them, once"


@test(forebay_only=True)
def since_leaves_out_what_is_older(bed):
    server = bed.serve(config(bed), ["unix:" + bed.path("a.sock")])
    server.process.send_signal(signal.SIGHUP)
    first = eventually(lambda: events(bed), "an event")[0]
    assert events(bed, "--since", "1h") == [first]
    day = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(first["time_ms"] / 1000 + 2))
    assert events(bed, "--since", day) == []
    wrong = bed.run([bed.program, "events", "--since", "yesterday"], code=None)
    assert wrong.returncode == 2 and "30min or 2h" in wrong.stderr, wrong.stderr


@test(forebay_only=True)
def what_a_daemon_has_left_is_found_in_the_state_folder_that_is_named(bed):
    server = bed.serve(config(bed), ["unix:" + bed.path("a.sock")])
    server.stop()
    command = [bed.program, "events", "--json", "--control", bed.path("serve.control")]
    said = bed.run(command, code=None)
    assert said.returncode == 1 and "nobody listens" in said.stderr and not said.stdout, said
    said = bed.run([*command, "--state-dir", bed.path("state")], code=None)
    texts = [json.loads(line)["text"] for line in said.stdout.splitlines()]
    assert said.returncode == 0 and any("SIGTERM" in text for text in texts), said
    assert "these are the events of earlier runs" in said.stderr, said
    # One that answers knows all of them.
    server.start()
    assert [event["text"] for event in events(bed, "--state-dir", bed.path("none"))] == texts


@test(forebay_only=True)
def the_journal_gets_severities_and_no_dates(bed):
    path = bed.path("journal")
    out = open(path, "a")
    found = os.fstat(out.fileno())
    with open(bed.path("forebay.toml"), "w") as f:
        f.write('state-dir = "%s"\nhttp = "off"\n' % bed.path("state") + config(bed))
    environment = dict(os.environ, JOURNAL_STREAM="%d:%d" % (found.st_dev, found.st_ino))
    command = [bed.program, "serve", "--config", bed.path("forebay.toml")]
    process = bed.spawn(command, stdout=subprocess.DEVNULL, stderr=out, env=environment)
    said = lambda: open(path).read()
    eventually(lambda: os.path.exists(bed.path("a.sock")), "it serves")
    with open(bed.path("forebay.toml"), "a") as f:
        f.write("colour = 3\n")
    process.send_signal(signal.SIGHUP)
    eventually(lambda: "\n<3>reload: nothing changes" in "\n" + said(), "an error")
    process.terminate()
    assert process.wait(60) == 0
    assert "\n<6>SIGTERM: finishing" in said(), said()
    assert all(line.startswith("<") for line in said().splitlines()), "each line has its severity"
