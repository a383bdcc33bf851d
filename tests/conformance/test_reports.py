"""Reports as a browser renders them: what they say, and that their charts are there to be seen."""
import html.parser
import json
import os
import shutil
import struct
import zlib

from bed import MIB, Skip, test
from traces import write_msr

BROWSERS = ("chromium-headless-shell", "chromium", "google-chrome")
# Of the first two lines of a chart.
BLUE, RED = (0, 114, 178), (213, 94, 0)
# Of the sixth.
LIGHT_BLUE = (86, 180, 233)


class Page(html.parser.HTMLParser):
    """What a page has: its text, how many charts, and where it would go for more."""

    def __init__(self, text):
        super().__init__()
        self.text, self.charts, self.elsewhere, self.hidden = "", 0, [], 0
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.charts += tag == "svg"
        self.hidden += tag in ("style", "script")
        self.elsewhere += [value for name, value in attributes if name in ("src", "href", "xlink:href")]
        if tag == "script":
            self.elsewhere.append("script")

    def handle_endtag(self, tag):
        self.hidden -= tag in ("style", "script")

    def handle_data(self, data):
        if not self.hidden:
            self.text += " " + " ".join(data.split())


def rendered(bed, path):
    """The page as the browser has it."""
    browser = next((name for name in BROWSERS if shutil.which(name)), None)
    if not browser:
        raise Skip("no Chromium: apt-get install chromium-headless-shell")
    shot = path + ".png"
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=800,2800",
               "--user-data-dir=" + bed.path("browser")]
    dom = bed.run([browser, *options, "--dump-dom", "file://" + path])
    bed.run([browser, *options, "--screenshot=" + shot, "file://" + path])
    page = Page(dom)
    assert not page.elsewhere, page.elsewhere
    for none in ("NaN", "inf", "undefined"):
        assert none not in page.text.split(), none
    return page, pixels(shot)


def overflow_on_paper(bed, path):
    """By how many pixels a page is wider than A4 between its margins (182 mm), as it would be printed; what is widest."""
    browser = next((name for name in BROWSERS if shutil.which(name)), None)
    if not browser:
        raise Skip("no Chromium: apt-get install chromium-headless-shell")
    with open(path) as f:
        page = f.read()
    assert page.count("@media print") == 1
    measure = """<script>
      let most = 0, what = "";
      for (const one of document.querySelectorAll("body *")) {
        const box = one.getBoundingClientRect();
        const inside = one.clientWidth && one.scrollWidth > one.clientWidth + 1 ? box.left + one.scrollWidth : 0;
        const over = Math.max(box.right, inside) - document.documentElement.clientWidth;
        if (over > most) { most = over; what = one.tagName + " " + one.textContent.slice(0, 60); }
      }
      document.title = "over " + Math.round(most) + " " + what;
    </script>"""
    paper = path + ".paper.html"
    with open(paper, "w") as f:
        f.write(page.replace("@media print", "@media all").replace("</body>", measure + "</body>"))
    dom = bed.run([browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=688,2800",
                   "--user-data-dir=" + bed.path("browser"), "--dump-dom", "file://" + paper])
    said = dom.split("<title>", 1)[1].split("</title>", 1)[0]
    assert said.startswith("over "), said
    return int(said.split()[1]), said


def pixels(path):
    """How often each colour is in an image: PNG, 8 bits, RGB or RGBA."""
    with open(path, "rb") as f:
        data = f.read()
    at, packed = 8, b""
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at:at + 8])
        if kind == b"IHDR":
            width, _, depth, colour = struct.unpack(">IIBB", data[at + 8:at + 18])
            assert depth == 8 and colour in (2, 6)
        if kind == b"IDAT":
            packed += data[at + 8:at + 8 + length]
        at += 12 + length
    size = 3 if colour == 2 else 4
    raw, stride, counts = zlib.decompress(packed), width * size, {}
    above = bytearray(stride)
    for start in range(0, len(raw), stride + 1):
        how, line = raw[start], bytearray(raw[start + 1:start + 1 + stride])
        for n in range(stride if how else 0):
            left, up = line[n - size] if n >= size else 0, above[n]
            corner = above[n - size] if n >= size else 0
            if how == 4:
                near = left + up - corner
                guess = min((left, up, corner), key=lambda value: abs(near - value))
            else:
                guess = (0, left, up, (left + up) // 2)[how]
            line[n] = (line[n] + guess) & 255
        above = line
        for n in range(0, stride, size):
            pixel = tuple(line[n:n + 3])
            counts[pixel] = counts.get(pixel, 0) + 1
    return counts


def forebay(bed, *arguments, **more):
    return bed.run([bed.program, "trace", *arguments], **more)


def results(bed, trace, target, name, *more):
    out = bed.path(name + ".json")
    forebay(bed, "replay", trace, "--target", target, "--name", name, "--json", out, *more)
    with open(out) as f:
        return out, json.load(f)["runs"][0]


@test(forebay_only=True, alone=True)
def a_replay_is_shown_with_its_figures_and_charts(bed):
    trace, path = write_msr(bed, "a&b.msr", 5000), bed.path("replay.html")
    _, run = results(bed, trace, "model:san?latency=300us&inner=mem:4MiB", "x", "--html", path)
    page, colours = rendered(bed, path)
    assert page.charts == 2 + 2 + 2 + 6, page.charts
    for part in ("Replay of a&b.msr", "5,000 requests", "on the trace's clock", "issued late",
                 "{:,}".format(run["reads"]["count"]), "Requests per second", "Length of requests"):
        assert part in page.text, part
    assert colours.get(BLUE, 0) > 200 and colours.get(RED, 0) > 200, "lines are drawn"


@test(forebay_only=True, alone=True)
def a_comparison_says_what_differs_and_what_does_not(bed):
    trace, path = write_msr(bed, "t.msr", 8000), bed.path("compare.html")
    slow = "model:san?latency=2ms&inner=mem:4MiB"
    one, _ = results(bed, trace, slow, "slow")
    two, _ = results(bed, trace, "model:san?latency=200us&inner=mem:4MiB", "fast")
    three, _ = results(bed, trace, slow, "slow again")
    text = forebay(bed, "compare", one, two, three, "--html", path)
    page, colours = rendered(bed, path)
    for said in (text, page.text):
        assert "fast instead of slow" in said and "times shorter (95 % interval:" in said, said
    assert "circular block bootstrap" in page.text and "the same slices" in page.text
    assert page.charts == 4 + 4 + 1 and colours.get(RED, 0) > 200
    told = json.loads(forebay(bed, "compare", one, two, three, "--json"))
    mean = next(d for d in told[0]["differences"] if d["figure"] == "read-mean")
    low, high = mean["interval"]
    assert low <= mean["ratio"] <= high and high < 0.5, mean


@test(forebay_only=True)
def a_comparison_refuses_what_is_no_result(bed):
    trace = write_msr(bed, "t.msr", 100)
    good, _ = results(bed, trace, "mem:4MiB", "good", "--as-fast-as-possible")
    other = bed.path("other.json")
    for text, expect in (("{}", "not the results of a replay"), ("hello", "not JSON"),
                         ('{"schema":"forebay-replay","version":9,"runs":[]}', "version 9")):
        with open(other, "w") as f:
            f.write(text)
        result = forebay(bed, "compare", good, other, code=None)
        assert result.returncode == 1 and expect in result.stderr and other in result.stderr, result.stderr
    result = forebay(bed, "compare", good, code=None)
    assert result.returncode == 1 and "name another file" in result.stderr


@test(forebay_only=True)
def a_trace_is_shown_with_its_histograms_and_curves(bed):
    trace = write_msr(bed, "t.msr", 5000)
    expected = {
        "info": ("What t.msr is", "5,000 requests", "Working set", "Reuse distances", "Hottest regions", "aligned to 4 KiB",
                 "Reads of device 0", "Writes of device 0"),
        "histogram": ("Histograms of t.msr", "Length of requests", "IO lengths of Read commands", "8192"),
        "mrc": ("Miss ratios of t.msr", "lru, 8 KiB blocks", "s3fifo, 8 KiB blocks", "2 MiB"),
    }
    charts = {"info": 6, "histogram": 6, "mrc": 2}
    for command, parts in expected.items():
        path = bed.path(command + ".html")
        more = ["--policy", "lru,s3fifo"] if command == "mrc" else []
        forebay(bed, command, trace, "--html", path, *more)
        page, colours = rendered(bed, path)
        assert page.charts == charts[command], page.charts
        for part in parts:
            assert part in page.text, part
        assert colours.get(BLUE, 0) > 200, command


@test(forebay_only=True)
def an_advice_is_shown_with_its_curves_and_the_advised_cache(bed):
    trace, path = write_msr(bed, "t.msr", 5000), bed.path("advice.html")
    told = json.loads(forebay(bed, "advise", trace, "--ram", "64MiB", "--backend-latency", "5ms", "--html", path, "--json"))
    page, colours = rendered(bed, path)
    assert page.charts == 2 and colours.get(BLUE, 0) > 200 and colours.get(LIGHT_BLUE, 0) > 50, "lines, and rings"
    sentence = told["disks"][0]["sentence"]
    for part in ("Advice for t.msr", sentence[1:40], "--policy ", "64 KiB blocks", "advised", "a hit in RAM", "5.00 ms"):
        assert part in page.text, part
    forebay(bed, "advise", trace, trace, "--ram", "64MiB", "--html", path)
    page, _ = rendered(bed, path)
    assert page.charts == 4 and "2 disks share what there is" in page.text


@test(forebay_only=True, alone=True)
def reports_fit_on_paper(bed):
    trace, page = write_msr(bed, "t.msr", 3000), bed.path("page.html")
    runs = []
    for n in range(5):
        # As they are called when they are not told.
        image = bed.image("a-disk-with-quite-a-long-name-%d.raw" % n, 4 * MIB, "holes")
        out = bed.path("run-%d.json" % n)
        forebay(bed, "replay", trace, "--target", "model:san?latency=200us&inner=file:" + image, "--json", out,
                "--as-fast-as-possible")
        runs.append(out)
    commands = {
        "compare 3": ["compare", *runs[:3]],
        "compare 5": ["compare", *runs],
        "mrc": ["mrc", trace, "--policy", "lru,fifo,clock,sieve,s3fifo,arc,lirs,wtinylfu,auto,belady"],
        "mrc of blocks": ["mrc", trace, "--policy", "lru,s3fifo,auto", "--block-size", "4KiB,8KiB,16KiB,32KiB,64KiB"],
        "advise": ["advise", trace, "--ram", "16MiB", "--flash", "64MiB"],
        "info": ["info", trace],
        "histogram": ["histogram", trace],
        "replay": ["replay", trace, "--target", "mem:4MiB", "--as-fast-as-possible"],
    }
    for name, command in commands.items():
        text = forebay(bed, *command, "--html", page)
        over, what = overflow_on_paper(bed, page)
        assert over == 0, (name, what)
        if command[0] == "compare":
            assert "a-disk-with-quite-a-long-name-1.raw instead of a-disk-with-quite-a-long-name-0.raw" in text, text


@test(forebay_only=True)
def ab_replays_without_cache_cold_and_warm(bed):
    trace, path, out = write_msr(bed, "t.msr", 4000), bed.path("ab.html"), bed.path("ab.json")
    image, config = bed.image("disk.raw", 4 * MIB, "holes"), bed.path("with.toml")
    with open(config, "w") as f:
        f.write('state-dir = "%s"\n[[disk]]\nname = "db"\nbackend = "mem:1MiB"\nram = "16MiB"\nnbd = ["unix:%s"]\n'
                % (bed.path("state"), bed.path("unused.sock")))
    backend = "model:san?latency=1ms&inner=file:" + image
    text = forebay(bed, "ab", trace, "--backend", backend, "--config", config, "--html", path, "--json", out)
    with open(out) as f:
        runs = json.load(f)["runs"]
    assert [run["name"] for run in runs] == ["without cache", "cold cache", "warm cache"]
    assert runs[0]["cache"] is None
    cold, warm = (run["cache"]["read_hits"] / run["cache"]["reads"] for run in runs[1:])
    assert 0.5 < cold < warm == 1.0, (cold, warm)
    assert runs[2]["reads"]["p50_ns"] < runs[0]["reads"]["p50_ns"] / 2
    page, _ = rendered(bed, path)
    for said in (text, page.text):
        assert "warm cache instead of without cache" in said and "100.0 %" in said
    # The image holds data by now.
    result = forebay(bed, "ab", trace, "--backend", backend, "--config", config, code=None)
    assert result.returncode == 1 and "--overwrite" in result.stderr


@test(forebay_only=True)
def ab_leaves_the_pool_of_the_disk_alone(bed):
    trace, scratch = write_msr(bed, "t.msr", 500), bed.image("scratch.raw", 4 * MIB, "holes")
    flash = bed.path("pool") + ":16MiB"
    disk = bed.disk("file:" + bed.image("disk.raw", 4 * MIB), flash=flash, mode="write-back", name="db",
                    extra=["--write-log", "4MiB"])
    assert disk.stop() == 0
    show = [bed.program, "pool", "show", bed.path("pool"), "--json"]
    before, config = json.loads(bed.run(show)), bed.path("with.toml")
    with open(config, "w") as f:
        f.write('state-dir = "%s"\n[[disk]]\nname = "db"\nbackend = "mem:1MiB"\nmode = "write-back"\nram = "1MiB"\n'
                'flash = "%s"\nwrite-log = "4MiB"\n' % (bed.path("state"), flash))
    forebay(bed, "ab", trace, "--backend", "file:" + scratch, "--config", config, "--overwrite")
    assert json.loads(bed.run(show)) == before
    assert not [name for name in os.listdir(bed.directory) if name.startswith(".forebay-ab")]
    assert not os.path.exists(scratch + ".forebay")
