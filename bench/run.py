#!/usr/bin/python3
"""Measures Forebay beside its peers and the limit, interleaved in one run.

    run.py [WHAT...] [--rounds 5] [--seconds 3] [--threads 1] [--no-save] [--list]

Each round measures every contestant of a scenario once, one after the other, all with the same load
generator (crates/forebay-bench). Printed and kept are medians over the rounds, their spread, and
ratios within the same round. Each run is a line of bench/runs/<what>.jsonl, with machine and command.
docs/benchmarks.md says what came out. --list says what each scenario asks.
"""
import argparse
import contextlib
import os
import sys
import tempfile

from lab import FOREBAY, SCENARIOS, Bed, Run
from results import last_kept, machine, save, show, summary

import advice  # noqa: F401
import disks  # noqa: F401
import goals  # noqa: F401
import hits  # noqa: F401
import iscsi  # noqa: F401
import replay  # noqa: F401
import reproduced  # noqa: F401
import vhost  # noqa: F401
import writes  # noqa: F401


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", help="scenarios whose name has one of these words; default all")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--threads", type=int, default=1, help="threads of the load generator")
    parser.add_argument("--no-save", action="store_true")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    chosen = {n: s for n, s in SCENARIOS.items() if not options.what or any(w in n for w in options.what)}
    if options.list or not chosen:
        print("\n".join("%-34s %s" % (n, goal) for n, (_, goal) in SCENARIOS.items()))
        return 0 if options.list else 2
    for name, (function, goal) in chosen.items():
        print("%s\n  wanted: %s" % (name, goal))
        about = machine()
        with tempfile.TemporaryDirectory(prefix="forebay-bench.") as directory:
            with open(os.path.join(directory, "log"), "w") as log, contextlib.redirect_stdout(log):
                run = Run(Bed(directory, "forebay", FOREBAY), options)
                try:
                    shape = function(run)
                finally:
                    run.close()
        print(" " * 40, end="\r")
        if "figures" in shape:  # not of rounds: they repeat exactly
            rows = shape["figures"]
            print(shape["text"])
        else:
            rows = summary(run, shape)
            show(rows, shape, last_kept(name))
        if not options.no_save:
            save(name, goal, about, options, rows, run.results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
