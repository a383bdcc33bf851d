"""What was published of host flash caches, in kind, over the modelled SAN; and its plot in docs/."""
import os
import statistics

from ab import hit_ratio
from lab import ROOT, scenario
from published import Database, hot_region

PLOT = os.path.join(ROOT, "docs", "published-results.svg")
PARTS = (0.25, 0.5, 2 / 3, 0.85, 1)
BLUE, RED, INK = "#1f6feb", "#c33", "#666"
WIDTH, HEIGHT, TOP, BOTTOM = 900, 400, 70, 330


@scenario("hit ratio in the eighties: reads 2 to 4 times faster; random reads gain nothing at p99 until all fits")
def published_results(run):
    def note(name, measured):
        reads = measured["reads"]
        hits = hit_ratio(measured) if measured["cache"] else 0.0
        run.results.setdefault(name, []).append({
            "iops": measured["iops"], "mean_us": reads["mean_ns"] / 1e3, "p50_us": reads["p50_ns"] / 1e3,
            "p99_us": reads["p99_ns"] / 1e3, "hit_ratio": hits})

    for _ in run.rounds():
        ab = hot_region(run.bed)
        note("without cache, hot region", ab.without)
        note("warm cache, hot region", ab.warm)
        database, without = Database(run.bed), []
        for part in PARTS:
            ab = database.with_cache(part)
            without.append(ab.without)
            note("%.0f %% cached, database" % (part * 100), ab.warm)
        # One of each round, for ratios within it.
        without.sort(key=lambda measured: measured["reads"]["mean_ns"])
        note("without cache, database", without[len(without) // 2])
    if not run.options.no_save:
        with open(PLOT, "w") as f:
            f.write(plot(run.results))
    return {"base": "without cache", "better": "mean_us"}


def median(results, name, key):
    return statistics.median(result[key] for result in results[name])


def text(x, y, words, *, anchor="start", size=13, colour="#222"):
    return '<text x="%.1f" y="%.1f" text-anchor="%s" font-size="%d" fill="%s">%s</text>' % (x, y, anchor, size, colour, words)


def axis(left, right, top_ms, step):
    """Lines across, a figure for each; where a time lies."""
    def y(ms):
        return BOTTOM - (BOTTOM - TOP) * ms / top_ms

    lines = []
    for n in range(int(top_ms / step) + 1):
        lines.append('<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="#ddd"/>' % (left, y(n * step), right, y(n * step)))
        lines.append(text(left - 8, y(n * step) + 4, "%g ms" % (n * step), anchor="end"))
    return lines, y


def plot(results):
    """Left: means with a hot region. Right: the database, by how much of it is cached."""
    parts = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif">' % (WIDTH, HEIGHT),
             '<rect width="%d" height="%d" fill="white"/>' % (WIDTH, HEIGHT)]
    names = ("without cache, hot region", "warm cache, hot region")
    means = [median(results, name, "mean_us") / 1e3 for name in names]
    hits = median(results, names[1], "hit_ratio") * 100
    lines, y = axis(80, 320, int(max(means) * 1.1) + 1, 1)
    parts += [text(30, 28, "A hot region: mean of reads", size=16)] + lines
    for x, mean, colour, words in zip((110, 220), means, (RED, BLUE), (("without cache", ""), ("warm cache", "hit %.0f %%" % hits))):
        parts.append('<rect x="%d" y="%.1f" width="70" height="%.1f" fill="%s"/>' % (x, y(mean), BOTTOM - y(mean), colour))
        parts.append(text(x + 35, y(mean) - 8, "%.2f ms" % mean, anchor="middle"))
        parts.append(text(x + 35, BOTTOM + 20, words[0], anchor="middle"))
        parts.append(text(x + 35, BOTTOM + 38, words[1], anchor="middle", colour=INK))
    parts.append(text(30, 50, "%.1f times faster" % (means[0] / means[1]), colour=INK))

    shares = [("without cache", 0)] + [("%.0f %% cached" % (part * 100), part) for part in PARTS]
    top = max(median(results, name + ", database", "p99_us") for name, _ in shares) / 1e3
    lines, y = axis(460, 870, (top // 5 + 1) * 5, 5)
    parts += [text(410, 28, "A database read at random, by how much of it is cached", size=16)] + lines
    for key, colour, words in (("p99_us", RED, "p99"), ("mean_us", BLUE, "mean")):
        points = [(470 + 390 * part, y(median(results, name + ", database", key) / 1e3)) for name, part in shares]
        parts.append('<polyline points="%s" fill="none" stroke="%s" stroke-width="2"/>' % (
            " ".join("%.1f,%.1f" % point for point in points), colour))
        parts += ['<circle cx="%.1f" cy="%.1f" r="4" fill="%s"/>' % (*point, colour) for point in points]
        parts.append(text(points[0][0] + 12, points[0][1] - 10, words + " of reads", colour=colour))
    for name, part in shares:
        parts.append(text(470 + 390 * part, BOTTOM + 20, "%.0f %%" % (part * 100), anchor="middle"))
        if part:
            ratio = median(results, name + ", database", "hit_ratio") * 100
            parts.append(text(470 + 390 * part, BOTTOM + 38, "hit %.0f %%" % ratio, anchor="middle", colour=INK, size=11))
    return "\n".join(parts + ["</svg>"]) + "\n"
