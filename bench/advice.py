"""The advisor, the default policy and sampled curves on real traces: figures that repeat exactly, as tables.

    FOREBAY_TRACES=FOLDER bench/run.py advisor     measures, keeps the figures, prints the tables of docs/benchmarks.md
    bench/advice.py FILE                           prints the tables of figures that were kept
"""
import json
import statistics
import subprocess
import sys

from lab import ROOT, scenario

SWEEP = ["cargo", "run", "--release", "--locked", "--quiet", "-p", "forebay-trace", "--example", "advisor_sweep"]
WANTED = 1.03


@scenario("the mean of reads with the advised cache: within 3 % of the best of a sweep; auto: within 2 points of the best policy")
def advisor(run):
    words = ["--", "build"] if run.options.quick else []  # one trace, to see that it works
    result = subprocess.run(SWEEP + words, cwd=ROOT, stdout=subprocess.PIPE, stderr=sys.__stderr__, text=True)
    if result.returncode:
        raise RuntimeError("the sweep failed")
    figures = json.loads(result.stdout)
    return {"figures": figures, "text": tables(figures)}


def size(size_bytes):
    for unit, name in ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size_bytes >= unit:
            of_unit = size_bytes / unit
            return ("%.0f %s" if of_unit >= 100 else "%.3g %s") % (of_unit, name)
    return "none"


def cache(of):
    if not of:
        return "no cache"
    tiers = [size(of[tier]) + " of " + name for tier, name in (("ram", "RAM"), ("flash", "flash")) if of[tier]]
    if not tiers:
        return "no cache"
    return "%s at %s, %s" % (" over ".join(tiers), size(of["block_size"]), of["policy"])


def limits(of):
    if not of["ram"]:
        return "flash" if of["flash"] >= 1 << 40 else "%s of flash" % size(of["flash"])
    return "%s of RAM, flash" % size(of["ram"])


def table(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def by_trace(rows):
    found = {}
    for row in rows:
        found.setdefault(row["trace"], []).append(row)
    return found


def advised(rows):
    lines = []
    for row in rows:
        why = "" if row["advised"] else " (%s)" % row["verdict"]["kind"]
        lines.append([row["trace"], limits(row["limits"]), cache(row["advised"]) + why, "%.1f µs" % (row["mean_ns"] / 1e3),
                      "%.1f µs, %s" % (row["best_mean_ns"] / 1e3, cache(row["best"])), "%.3f" % row["ratio"]])
    head = ["trace", "what there is", "advised", "mean of reads", "the best there is", "over it"]
    text = table(head, lines)
    for what, is_meant in (("A cache", True), ("No cache", False)):
        ratios = [row["ratio"] for row in rows if bool(row["advised"]) == is_meant]
        if ratios:
            text += "\n%s is advised %d times: at most %.3f of the best, median %.3f, %d above %.2f.\n" % (
                what, len(ratios), max(ratios), statistics.median(ratios), sum(of > WANTED for of in ratios), WANTED)
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
    parts = [("Advised", advised), ("Policies", policies), ("Sampled curves, mean and largest difference", sampled)]
    return "\n".join("%s\n\n%s" % (title, make(figures[make.__name__])) for title, make in parts)


if __name__ == "__main__":
    with open(sys.argv[1]) as f:
        print(tables(json.load(f)["summary"]))
