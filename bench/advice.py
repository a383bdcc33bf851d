"""The advisor, the default policy and sampled curves on real traces: figures that repeat exactly, as tables.

    FOREBAY_TRACES=FOLDER bench/run.py advisor     measures, keeps the figures, prints the tables of docs/benchmarks/policy.md
    bench/advice.py                                prints the tables of the figures that were kept last
"""
import json
import math
import statistics
import subprocess
import sys

from lab import ROOT, scenario
from results import last_kept

EXAMPLE = ["cargo", "run", "--release", "--locked", "--quiet", "-p", "forebay-trace", "--example"]


@scenario("advice from one part of a trace, judged on the next: the range of hits is right in 9 of 10 cases, the mean within a tenth of "
          "the best; auto: within 2 points of the best policy")
def advisor(run):
    figures = example("advisor_sweep") | {"windows": example("advisor_windows")}
    return {"figures": figures, "text": tables(figures)}


def example(name):
    result = subprocess.run(EXAMPLE + [name], cwd=ROOT, stdout=subprocess.PIPE, stderr=sys.__stderr__, text=True)
    if result.returncode:
        raise RuntimeError("%s failed" % name)
    return json.loads(result.stdout)


def size(size_bytes):
    for unit, name in ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size_bytes >= unit:
            of_unit = size_bytes / unit
            return ("%.0f %s" if of_unit >= 100 else "%.3g %s") % (of_unit, name)
    return "none"


def table(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def by_trace(rows):
    found = {}
    for row in rows:
        found.setdefault(row["trace"], []).append(row)
    return found


def interval(hits, of):
    """Wilson's, of two standard deviations, in percent."""
    ratio, square = hits / of, 4.0
    middle, half = ratio + square / (2 * of), 2 * math.sqrt(ratio * (1 - ratio) / of + square / (4 * of * of))
    return [100 * (middle + sign * half) / (1 + square / of) for sign in (-1, 1)]


def is_told(row):
    return row["expected"] and row["expected"]["is_steady"]


def is_within(row):
    low, high = row["expected"]["hit_ratio_range"]
    return low <= row["hit_ratio"] <= high


def beside_best(row):
    return row["mean_ns"] / row["best_ns"]


def window_cells(rows):
    told = [row for row in rows if is_told(row)]
    within = sum(map(is_within, told))
    widths = [row["expected"]["hit_ratio_range"][1] - row["expected"]["hit_ratio_range"][0] for row in told]
    ratios = [beside_best(row) for row in rows]
    return [str(len(rows)), str(sum(bool(row["expected"]) for row in rows)), str(len(told)),
            "%d (%.0f %%)" % (within, 100 * within / len(told)) if told else "–",
            "%.0f" % (100 * statistics.mean(widths)) if told else "–",
            "%.2f" % statistics.median(ratios), "%.2f" % statistics.mean(ratios), "%.2f" % max(ratios)]


def windows(rows):
    names = {}
    for row in rows:
        name = row["trace"]
        kind = name.rsplit(" ", 1)[0] if name.rsplit(" ", 1)[-1].isdigit() else name
        names.setdefault((kind, row["is_tuned"]), []).append(row)
    head = ["trace", "advices", "caches", "ranges", "right", "width", "median", "mean", "worst"]
    lines = [["%s%s" % (name, " *" if tuned else "")] + window_cells(of) for (name, tuned), of in names.items()]
    for title, meant in (("all that the range was tuned with *", True), ("**all that judge it**", False)):
        lines.append([title] + window_cells([row for row in rows if row["is_tuned"] == meant]))
    text = table(head, lines)
    for what, meant in (("chosen with", True), ("judged by", False)):
        told = [row for row in rows if is_told(row) and row["is_tuned"] == meant]
        within = sum(map(is_within, told))
        text += "\n%s: %d of %d ranges were right, interval %.0f to %.0f %%." % (
            (what, within, len(told)) + tuple(interval(within, len(told))))
    pairs = len({(row["trace"], row["window"]) for row in rows})
    text += "\n%d windows, three budgets each." % pairs
    text += "\n\nFarthest from the best:\n"
    for row in sorted(rows, key=beside_best, reverse=True)[:12]:
        text += "- %.2f: %s, window %d, %s and %s: advised '%s', mean %.2f ms; best '%s', %.2f ms; without %.2f ms\n" % (
            beside_best(row), row["trace"], row["window"], size(row["limits"][0]), size(row["limits"][1]), row["options"],
            row["mean_ns"] / 1e6, row["best"] or "none", row["best_ns"] / 1e6, row["without_ns"] / 1e6)
    return text


def policies(rows):
    shares = sorted({row["percent"] for row in rows})
    lines = [[name] + ["%.4f (%+.2f %s) %.4f" % (row["auto"], row["above_best"], row["best"], row["belady"]) for row in of]
             for name, of in by_trace(rows).items()]
    above = [row["above_best"] for row in rows]
    means = {"auto": statistics.mean(above)}
    for policy in rows[0]["classics"]:
        means[policy] = statistics.mean((row["classics"][policy] - min(row["classics"].values())) * 100 for row in rows)
    text = ", ".join("%s %.2f" % pair for pair in sorted(means.items(), key=lambda pair: pair[1]))
    return table(["trace"] + ["%d %%" % share for share in shares], lines) + \
        "\nPoints above the best, mean of %d: %s. Of auto %d are above 2, at most %.2f.\n" % (
            len(above), text, sum(points > 2 for points in above), max(above))


def sampled(rows):
    names = list(dict.fromkeys(row["policy"] for row in rows))
    lines = []
    for trace, of in by_trace(rows).items():
        cells = ["all looked at" if row["share"] >= 1 else "%.4f, %.4f" % (row["mean"], row["most"]) for row in of]
        lines.append([trace, format(of[0]["requests"], ",")] + cells)
    return table(["trace", "requests"] + names, lines)


def tables(figures):
    parts = [("Advised from one window, judged on the next", windows), ("Policies", policies), ("Sampled curves, mean and largest difference", sampled)]
    return "\n".join("%s\n\n%s" % (title, make(figures[make.__name__])) for title, make in parts)


if __name__ == "__main__":
    print(tables(last_kept("advisor")["summary"]))
