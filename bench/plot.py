#!/usr/bin/python3
"""Draws the kept runs of `goals` into docs/benchmarks/goals.svg: each figure over what is wanted of it, 1 is the goal."""
import os
import re

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams.update({"svg.hashsalt": "forebay", "svg.fonttype": "none", "font.size": 9})
from matplotlib import pyplot  # noqa: E402

from lab import ROOT  # noqa: E402
from results import kept  # noqa: E402

PLOT = os.path.join(ROOT, "docs", "benchmarks", "goals.svg")
REACHED, MISSED, BEFORE = "#1f6feb", "#c33", "#aaa"


def reached(row):
    """How far a figure is beyond its goal: 1 is just reached, 2 is twice as good; None without a goal."""
    goal = re.match(r"([≥≤]) ([\d.,]+)", row["goal"])
    if not goal:
        return None
    wanted = float(goal.group(2).replace(",", ""))
    # A rate is wanted for itself, beside whatever it was measured.
    figure = row["forebay"] if wanted > 1000 else row["figure"]
    return figure / wanted if goal.group(1) == "≥" else wanted / figure


def draw(runs):
    last = runs[-1]
    rows = [(name, row) for name, row in last["summary"].items() if reached(row) is not None]
    figure, axes = pyplot.subplots(figsize=(8.5, 0.3 * len(rows) + 1.2))
    for at, (name, row) in enumerate(rows):
        for run in runs[:-1]:
            if name in run["summary"]:
                axes.plot(reached(run["summary"][name]), at, ".", color=BEFORE)
        value = reached(row)
        axes.plot(value, at, "o" if value >= 1 else "X", color=REACHED if value >= 1 else MISSED)
    axes.axvline(1, color="#444", linewidth=1)
    axes.set_xscale("log", base=2)
    axes.set_xticks([0.125, 0.25, 0.5, 1, 2, 4, 8, 16, 32], ["1/8", "1/4", "1/2", "goal", "2 ×", "4 ×", "8 ×", "16 ×", "32 ×"])
    axes.set_yticks(range(len(rows)), ["%s  (%s)" % (name, row["goal"]) for name, row in rows])
    axes.set_xlim(1 / 12, 64)
    axes.invert_yaxis()
    axes.grid(axis="x", color="#e5e5e5")
    axes.set_xlabel("beside its goal. Circle: reached. Cross: missed, on %s. Grey: earlier runs." % last["date"])
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    figure.savefig(PLOT, bbox_inches="tight", metadata={"Date": None, "Creator": None})


if __name__ == "__main__":
    draw(kept("goals"))
    print("drawn in %s" % os.path.relpath(PLOT, ROOT))
