#!/usr/bin/python3
"""Runs the conformance tests: the field's own clients against a running Forebay.

    run.py [WORD...] [--server forebay|nbdkit] [--forebay PATH] [--keep] [--list]

Tests whose name or file has all of the WORDs run, each in a process and a folder of its own, one
after the other. A test that cannot run on this machine is counted as skipped, with its reason.
With --server nbdkit the tests that hold for every NBD server run against that one: what fails there
is wrong in the test. The last line is "N passed, N failed, N skipped".
"""
import argparse
import importlib
import os
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [HERE, os.path.join(ROOT, "tests", "guest")]

import bed  # noqa: E402

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", metavar="WORD")
    parser.add_argument("--server", choices=["forebay", "nbdkit"], default="forebay")
    parser.add_argument("--forebay", default=os.path.join(ROOT, "target/release/forebay"))
    parser.add_argument("--keep", action="store_true", help="keep the folders of failed tests")
    parser.add_argument("--list", action="store_true", help="only name the tests")
    options = parser.parse_args()

    tests = [t for t in collect() if all(w in t.words() for w in options.words)]
    if options.list:
        print("\n".join("%-10s %s" % (t.area, t.name) for t in tests))
        return 0
    if options.server == "forebay" and not os.access(options.forebay, os.X_OK):
        sys.exit("conformance: %s is not built: run `make build`" % options.forebay)
    counts = {PASSED: 0, FAILED: 0, SKIPPED: 0}
    started = time.monotonic()
    for test in tests:
        began = time.monotonic()
        result, text = run(test, options)
        counts[result] += 1
        mark = {PASSED: "ok     ", FAILED: "FAILED ", SKIPPED: "skipped"}[result]
        reason = ": " + text.strip() if result == SKIPPED else ""
        print("%s %s: %s (%.1f s)%s" % (mark, test.area, test.name, time.monotonic() - began, reason),
              flush=True)
        if result == FAILED:
            print("".join("        " + line for line in text.splitlines(True)), flush=True)
    print("conformance: %.0f s" % (time.monotonic() - started))
    print("%d passed, %d failed, %d skipped" % (counts[PASSED], counts[FAILED], counts[SKIPPED]))
    return 1 if counts[FAILED] or not tests else 0


def collect():
    for name in sorted(os.listdir(HERE)):
        if name.startswith("test_") and name.endswith(".py"):
            importlib.import_module(name[:-3])
    return bed.TESTS


def run(test, options):
    """Runs one test in a child process; returns its result and what to show of it."""
    if options.server != "forebay" and test.forebay_only:
        return SKIPPED, "only Forebay does this"
    directory = tempfile.mkdtemp(prefix="forebay-test.")
    log = os.path.join(directory, "log")
    child = os.fork()
    if child == 0:
        os._exit(run_child(test, directory, log, options))
    code = wait(child, test.timeout)
    if options.server == "forebay":
        bed.remove_staging(directory, options.forebay)
    with open(log, errors="replace") as f:
        text = f.read()
    if code == 0:
        result = PASSED
    elif code == bed.SKIP_CODE:
        with open(os.path.join(directory, "reason")) as f:
            result, text = SKIPPED, f.read()
    else:
        result = FAILED
        text += bed.server_logs(directory)
        if code is None:
            text += "\nstill running after %d s\n" % test.timeout
    if result == FAILED and options.keep:
        text += "\nfolder: %s\n" % directory
    else:
        bed.unmount_below(directory)
        shutil.rmtree(directory, ignore_errors=True)
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


def wait(child, timeout):
    """The exit code of `child`, or None when it had to be ended. Its group ends in any case."""
    fd = os.pidfd_open(child)
    done = select.select([fd], [], [], timeout)[0]
    os.close(fd)
    try:
        os.killpg(child, signal.SIGKILL)
    except ProcessLookupError:
        pass
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) if done else None


if __name__ == "__main__":
    sys.exit(main())
