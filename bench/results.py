"""What the rounds of a scenario come to, shown and kept."""
import datetime
import json
import os
import statistics
import subprocess

from lab import HERE, ROOT


def value(result, key):
    return result[key] if key in result else result.get("reads", {}).get(key)


def summary(run, shape):
    """Medians, spreads and ratios to the base within the same round."""
    out = {}
    for name, results in run.results.items():
        row = {}
        for key in ("iops", "mean_us", "p50_us", "p99_us", "server_cpu_us_per_request",
                    "client_cpu_us_per_request"):
            values = [value(r, key) for r in results if value(r, key) is not None]
            if values:
                row[key] = {"median": round(statistics.median(values), 2), "min": min(values), "max": max(values)}
        depth = name.partition(", ")[2]
        base = shape["base"] + (", " + depth if depth else "")
        if base in run.results and base != name:
            key = shape["better"]
            pairs = zip(run.results[base], results)
            ratios = [value(b, key) / value(r, key) for b, r in pairs] if key == "iops" else \
                [value(r, key) / value(b, key) for b, r in pairs]
            row["ratio"] = {"median": round(statistics.median(ratios), 3),
                            "min": round(min(ratios), 3), "max": round(max(ratios), 3)}
        out[name] = row
    return out


def history(name):
    """Where the runs of a scenario are kept: one line each, the newest last."""
    return os.path.join(HERE, "runs", name + ".jsonl")


def kept(name):
    """The runs of a scenario that were kept, the newest last."""
    if not os.path.exists(history(name)):
        return []
    with open(history(name)) as f:
        return [json.loads(line) for line in f]


def last_kept(name):
    """The run of a scenario that was kept last; nothing, if none was."""
    return (kept(name) or [{}])[-1]


def show(rows, shape, last):
    """A line for each contestant; `last`: the run to compare with."""
    before = "kept %s" % last["date"] if last else ""
    what = "%s / this" % shape["base"] if shape["better"] == "iops" else "this / %s" % shape["base"]
    print("  %-44s %12s %21s %9s %9s %9s  %-20s %s" % (
        "", "IOPS", "(min - max)", "mean µs", "p99 µs", "CPU µs", what, before))
    def us(row, key, digits):
        return "%.*f" % (digits, row[key]["median"]) if key in row else ""

    for name, row in rows.items():
        iops = row["iops"]
        ratio = row.get("ratio")
        then = last.get("summary", {}).get(name, {})
        of_then = [format(round(then["iops"]["median"]), ",")] if "iops" in then else []
        of_then += ["%.2f" % then["ratio"]["median"]] if "ratio" in then else []
        print("  %-44s %12s %21s %9s %9s %9s  %-20s %s" % (
            name, format(round(iops["median"]), ","),
            "(%s - %s)" % (format(round(iops["min"]), ","), format(round(iops["max"]), ",")),
            us(row, "mean_us", 1), us(row, "p99_us", 1), us(row, "server_cpu_us_per_request", 2),
            "%.2f (%.2f - %.2f)" % (ratio["median"], ratio["min"], ratio["max"]) if ratio else "",
            ", ".join(of_then)))


def machine():
    with open("/proc/cpuinfo") as f:
        model = next((line.split(":", 1)[1].strip() for line in f if line.startswith("model name")), "?")
    with open("/proc/meminfo") as f:
        memory = int(f.readline().split()[1]) // 1024
    return {"cpu": model, "cpus": os.cpu_count(), "memory_mib": memory, "kernel": os.uname().release,
            "load_average_before": os.getloadavg()}


def commit():
    result = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True)
    return result.stdout.strip()


def save(name, goal, about, options, rows, results):
    command = "bench/run.py %s --rounds %d --seconds %g --threads %d" % (
        name, options.rounds, options.seconds, options.threads)
    today = datetime.date.today().isoformat()
    with open(history(name), "a") as f:
        f.write(json.dumps({"what": name, "date": today, "wanted": goal, "commit": commit(), "command": command,
                            "machine": about, "summary": rows, "rounds": results}) + "\n")
    print("  kept in %s" % os.path.relpath(history(name), ROOT))
