#!/usr/bin/python3
"""Runs the conformance tests: the field's own clients against a running Forebay.

    run.py [WORD...] [--server forebay|nbdkit] [--forebay PATH] [--beside COMMAND] [--jobs N] [--keep] [--list]

Tests whose name or file has all of the WORDs run, each in a process and a folder of its own, one more
at a time than twice the CPUs; those that measure time run last, one after the other. A test that cannot
run on this machine is counted as skipped, with its reason. With --beside a command runs beside them, at a lower
priority: many tests wait, and leave CPUs idle. Those that measure time wait for its end; it counts as a test.
With --server nbdkit the tests that hold for every NBD server run against that one: what fails there
is wrong in the test. The last line is "N passed, N failed, N skipped".
"""
import argparse
import importlib
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [HERE, os.path.join(ROOT, "tests", "guest")]

import bed  # noqa: E402

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"
BESIDE = "beside"


def main():
    # Under nohup it is ignored, and by everything that is started here as well.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", metavar="WORD")
    parser.add_argument("--server", choices=["forebay", "nbdkit"], default="forebay")
    parser.add_argument("--forebay", type=os.path.abspath, default=os.path.join(ROOT, "target/debug/forebay"))
    parser.add_argument("--beside", metavar="COMMAND", help="run this beside the tests")
    parser.add_argument("--jobs", type=int, default=2 * len(os.sched_getaffinity(0)) + 1, metavar="N",
                        help="tests at a time (one more than twice the CPUs: many wait)")
    parser.add_argument("--keep", action="store_true", help="keep the folders of failed tests")
    parser.add_argument("--longest", type=int, default=10, metavar="N", help="name so many of the longest tests at the end (10)")
    parser.add_argument("--said", action="store_true", help="show what tests say that pass, too: their figures")
    parser.add_argument("--list", action="store_true", help="only name the tests")
    options = parser.parse_args()

    tests = [t for t in collect() if all(w in t.words() for w in options.words)]
    if options.list:
        print("\n".join("%-10s %s" % (t.area, t.name) for t in tests))
        return 0
    if options.server == "forebay" and not os.access(options.forebay, os.X_OK):
        sys.exit("conformance: %s is not built: run `make conformance`" % options.forebay)
    counts = {PASSED: 0, FAILED: 0, SKIPPED: 0}
    durations = []
    started = time.monotonic()
    for test, seconds, cpu, result, text in run_all(tests, options):
        counts[result] += 1
        durations.append((seconds, cpu, test))
        mark = {PASSED: "ok     ", FAILED: "FAILED ", SKIPPED: "skipped"}[result]
        reason = ": " + text.strip() if result == SKIPPED else ""
        print("%s %s: %s (%.1f s)%s" % (mark, test.area, test.name, seconds, reason),
              flush=True)
        if result == FAILED or options.said or test.area == BESIDE:
            print("".join("        " + line for line in text.splitlines(True)), flush=True)
    print("conformance: %.0f s, %.0f s of CPU, the longest tests:"
          % (time.monotonic() - started, sum(cpu for _, cpu, _ in durations)))
    for seconds, cpu, test in sorted(durations, key=lambda d: -d[0])[:options.longest]:
        print("%7.1f s %7.1f s of CPU  %s: %s" % (seconds, cpu, test.area, test.name))
    print("%d passed, %d failed, %d skipped" % (counts[PASSED], counts[FAILED], counts[SKIPPED]))
    return 1 if counts[FAILED] or not tests else 0


def collect():
    for name in sorted(os.listdir(HERE)):
        if name.startswith("test_") and name.endswith(".py"):
            importlib.import_module(name[:-3])
    return bed.TESTS


def run_all(tests, options):
    """Runs tests; yields each with its seconds, those of CPU, its result and what to show of it, as they end."""
    # Those that may take long come first: what begins last should be short.
    waiting = sorted(tests, key=lambda test: (test.alone, -test.timeout))
    running = [Running(beside(options.beside), options)] if options.beside else []
    while waiting or running:
        alone = any(test.alone for test in [r.test for r in running] + waiting[:1])
        while waiting and len(running) < (1 if alone else options.jobs + any(r.test.area == BESIDE for r in running)):
            test = waiting.pop(0)
            if options.server != "forebay" and test.forebay_only:
                yield test, 0, 0, SKIPPED, "only Forebay does this"
            else:
                running.append(Running(test, options))
            alone = any(test.alone for test in [r.test for r in running] + waiting[:1])
        if running:
            next_end = min(r.ends for r in running)
            select.select(running, [], [], max(next_end - time.monotonic(), 0))
        for one in [r for r in running if r.is_over()]:
            running.remove(one)
            result, text = one.finish()
            yield one.test, time.monotonic() - one.began, one.cpu_seconds, result, text


def beside(command):
    """A command as a test."""
    def run(_bed):
        os.nice(5)
        os.chdir(ROOT)
        subprocess.run(command, shell=True, check=True)
    test = bed.Test(run, forebay_only=False, alone=False, timeout=1500)
    test.area, test.name = BESIDE, command
    return test


class Running:
    """A test under way, in a process and a folder of its own."""

    def __init__(self, test, options):
        self.test, self.options = test, options
        self.directory = tempfile.mkdtemp(prefix="forebay-test.")
        self.log = os.path.join(self.directory, "log")
        self.began = time.monotonic()
        self.ends = self.began + test.timeout
        self.child = os.fork()
        if self.child == 0:
            os._exit(run_child(test, self.directory, self.log, options))
        self.pidfd = os.pidfd_open(self.child)

    def fileno(self):
        return self.pidfd

    def has_ended(self):
        return bool(select.select([self], [], [], 0)[0])

    def is_over(self):
        return self.has_ended() or time.monotonic() >= self.ends

    def exit_code(self):
        """Of the process, None when it had to be ended. Its group ends in any case."""
        done = self.has_ended()
        os.close(self.pidfd)
        try:
            os.killpg(self.child, signal.SIGKILL)
        except ProcessLookupError:
            pass
        _, status, usage = os.wait4(self.child, 0)
        self.cpu_seconds = usage.ru_utime + usage.ru_stime
        return os.waitstatus_to_exitcode(status) if done else None

    def finish(self):
        """Its result and what to show of it."""
        code = self.exit_code()
        if self.options.server == "forebay":
            bed.remove_staging(self.directory, self.options.forebay)
        with open(self.log, errors="replace") as f:
            text = f.read()
        if code == 0:
            result = PASSED
        elif code == bed.SKIP_CODE:
            with open(os.path.join(self.directory, "reason")) as f:
                result, text = SKIPPED, f.read()
        else:
            result = FAILED
            text += bed.server_logs(self.directory)
            if code is None:
                text += "\nstill running after %d s\n" % self.test.timeout
        if result == FAILED and self.options.keep:
            text += "\nfolder: %s\n" % self.directory
        else:
            bed.unmount_below(self.directory)
            shutil.rmtree(self.directory, ignore_errors=True)
        return result, text


def run_child(test, directory, log, options):
    os.setsid()  # the test's processes form a group, so that none outlives it
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(out, 1)
    os.dup2(out, 2)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.chdir(directory)
    code = 1
    one = bed.Bed(directory, options.server, options.forebay)
    try:
        test.function(one)
        one.check_servers()
        code = 0
    except bed.Skip as skip:
        with open(os.path.join(directory, "reason"), "w") as f:
            f.write(str(skip))
        code = bed.SKIP_CODE
    except BaseException:
        traceback.print_exc()
    finally:
        one.close()
        sys.stdout.flush()
        sys.stderr.flush()
    return code


if __name__ == "__main__":
    sys.exit(main())
