"""Reports as a browser renders them: what they say, and that their charts are there to be seen."""
import html.parser
import json
import os

from bed import MIB, test
from browser import DESKTOP, PAPER, PHONE, TABLET, Browser
from traces import write_msr

# Of the first two lines of a chart, and of the sixth.
BLUE, RED, LIGHT_BLUE = (0x00, 0x72, 0xb2), (0xc2, 0x4e, 0x00), (0x2b, 0x84, 0xc0)
# Of the page and the first line in the dark theme.
DARK, DARK_BLUE = (0x14, 0x18, 0x1d), (0x56, 0xb4, 0xe9)


class Page(html.parser.HTMLParser):
    """What a page has: its text, how many charts, and where it would go for more."""

    def __init__(self, text):
        super().__init__()
        self.text, self.charts, self.elsewhere, self.hidden = "", 0, [], 0
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.charts += ("role", "img") in attributes
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
    with Browser(bed) as browser:
        browser.show(path)
        page, colours = Page(browser.run("document.documentElement.outerHTML")), browser.colours()
    assert not page.elsewhere, page.elsewhere
    for none in ("NaN", "inf", "undefined"):
        assert none not in page.text.split(), none
    return page, colours


def every_kind(bed):
    """A report of each kind, with many lines and long names: name, path."""
    trace, runs = write_msr(bed, "t.msr", 3000), []
    for n in range(5):
        # As they are called when they are not told.
        image = bed.image("a-disk-with-quite-a-long-name-%d.raw" % n, 4 * MIB, "holes")
        out = bed.path("run-%d.json" % n)
        forebay(bed, "replay", trace, "--target", "model:san?latency=200us&inner=file:" + image, "--json", out,
                "--as-fast-as-possible")
        runs.append(out)
    policies = "lru,fifo,clock,sieve,s3fifo,arc,lirs,wtinylfu,auto,belady"
    commands = {
        "compare-3": ["compare", *runs[:3]],
        "compare-5": ["compare", *runs],
        "mrc": ["mrc", trace, "--policy", policies],
        "mrc-of-blocks": ["mrc", trace, "--policy", "lru,s3fifo,auto", "--block-size", "4KiB,8KiB,16KiB,32KiB,64KiB"],
        "advise": ["advise", trace, "--ram", "16MiB", "--flash", "64MiB"],
        "advise-2": ["advise", trace, trace, "--ram", "16MiB", "--backend-latency", "5ms"],
        "info": ["info", trace],
        "histogram": ["histogram", trace],
        "replay": ["replay", trace, "--target", "mem:4MiB", "--as-fast-as-possible"],
        "simulate": ["simulate", trace, "--mode", "write-back", "--ram", "1MiB", "--flash", "16MiB"],
    }
    for name, command in commands.items():
        page = bed.path(name + ".html")
        text = forebay(bed, *command, "--html", page)
        if command[0] == "compare":
            assert "a-disk-with-quite-a-long-name-1.raw vs. a-disk-with-quite-a-long-name-0.raw" in text, text
        yield name, page


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
        assert "fast vs. slow" in said and "× shorter (" in said, said
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


@test(forebay_only=True, timeout=400)
def reports_fit_on_a_phone_a_desktop_and_paper(bed):
    with Browser(bed) as browser:
        for name, page in every_kind(bed):
            for width, medium in ((PHONE, "screen"), (TABLET, "screen"), (DESKTOP, "screen"), (PAPER, "print")):
                browser.show(page, width, medium=medium)
                over, what = browser.overflow()
                assert over == 0, (name, width, medium, over, what)
                smallest = browser.run("""Math.min(...[...document.querySelectorAll("svg text")].map(
                  text => text.ownerSVGElement.getBoundingClientRect().width / text.ownerSVGElement.viewBox.baseVal.width
                    * parseFloat(text.getAttribute("font-size"))).filter(size => size > 0))""")
                assert smallest >= 9, (name, width, medium, "text of a chart is %.1f pixels high" % smallest)
            browser.pdf(page + ".pdf")
            with open(page + ".pdf", "rb") as f:
                assert f.read(5) == b"%PDF-", name


@test(forebay_only=True, timeout=400)
def axe_finds_no_barrier_in_reports(bed):
    with Browser(bed) as browser:
        for name, page in every_kind(bed):
            for width, theme in ((DESKTOP, "light"), (DESKTOP, "dark"), (PHONE, "light")):
                browser.show(page, width, theme)
                found = browser.axe()
                assert not found, (name, width, theme, found)


@test(forebay_only=True)
def a_report_is_dark_for_those_who_want_that_and_light_on_paper(bed):
    trace, path = write_msr(bed, "t.msr", 2000), bed.path("mrc.html")
    forebay(bed, "mrc", trace, "--policy", "lru,s3fifo", "--html", path)
    colours = "[document.body, document.querySelector('svg text')].map(one => getComputedStyle(one))" \
              ".map(style => style.backgroundColor + ' ' + style.fill)"
    with Browser(bed) as browser:
        browser.show(path, theme="dark")
        drawn = browser.colours()
        assert max(drawn, key=drawn.get) == DARK and drawn.get(DARK_BLUE, 0) > 200, "the page, and a line"
        dark = browser.run(colours)
        browser.show(path, theme="light")
        light = browser.run(colours)
        browser.show(path, PAPER, theme="dark", medium="print")
        assert browser.run(colours) == light != dark, (light, dark)


@test(forebay_only=True)
def a_heading_never_skips_a_level_and_each_chart_has_a_description(bed):
    trace, path = write_msr(bed, "t.msr", 2000), bed.path("page.html")
    with Browser(bed) as browser:
        for command in (["info"], ["advise", trace, "--ram", "16MiB", "--backend-latency", "5ms"], ["mrc"]):
            forebay(bed, command[0], trace, *command[1:], "--html", path)
            browser.show(path)
            levels = browser.run("[...document.querySelectorAll('h1,h2,h3,h4')].map(one => Number(one.tagName[1]))")
            assert levels[0] == 1 and levels.count(1) == 1, levels
            assert all(after <= before + 1 for before, after in zip(levels, levels[1:])), levels
            said = browser.run("[...document.querySelectorAll('figure')].map(one => one.querySelector('[role=img]').ariaLabel)")
            assert said and all(" chart. Across: " in one or "Heat map. Across: " in one for one in said), said
            assert browser.run("document.querySelectorAll('main, header, footer').length") == 3


@test(forebay_only=True, alone=True)
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
    assert [run["name"] for run in runs] == ["no cache", "cold cache", "warm cache"]
    assert runs[0]["cache"] is None
    cold, warm = (run["cache"]["read_hits"] / run["cache"]["reads"] for run in runs[1:])
    assert 0.5 < cold < warm == 1.0, (cold, warm)
    assert runs[2]["reads"]["p50_ns"] < runs[0]["reads"]["p50_ns"] / 2
    page, _ = rendered(bed, path)
    assert runs[0]["configuration"] is None and "nbd.sock" not in page.text
    assert "write-through, RAM 16 MiB, 8 KiB blocks, policy auto, in front of " + backend in page.text
    for said in (text, page.text):
        assert "warm cache vs. no cache" in said and "100.0 %" in said
    # The image holds data by now.
    result = forebay(bed, "ab", trace, "--backend", backend, "--config", config, code=None)
    assert result.returncode == 1 and "--overwrite" in result.stderr


@test(forebay_only=True)
def ab_leaves_the_pool_and_the_journal_of_the_disk_alone(bed):
    trace, scratch = write_msr(bed, "t.msr", 500), bed.image("scratch.raw", 4 * MIB, "holes")
    flash, journal = bed.path("pool") + ":64MiB", bed.path("journal")
    disk = bed.disk("file:" + bed.image("disk.raw", 4 * MIB), flash=flash, mode="write-back", name="db",
                    extra=["--write-log", "16MiB", "--destage-journal", "file:" + journal])
    assert disk.stop() == 0
    with open(journal, "rb") as f:
        of_disk = f.read()
    assert of_disk
    show = [bed.program, "pool", "show", bed.path("pool"), "--json"]
    before, config = json.loads(bed.run(show)), bed.path("with.toml")
    with open(config, "w") as f:
        f.write('state-dir = "%s"\n[[disk]]\nname = "db"\nbackend = "mem:1MiB"\nmode = "write-back"\nram = "1MiB"\n'
                'flash = "%s"\nwrite-log = "16MiB"\ndestage-journal = "file:%s"\n' % (bed.path("state"), flash, journal))
    said = forebay(bed, "ab", trace, "--backend", "file:" + scratch, "--config", config, "--overwrite", code=None)
    assert said.returncode == 0 and "strict order" not in said.stderr, said.stderr
    with open(journal, "rb") as f:
        assert f.read() == of_disk
    assert json.loads(bed.run(show)) == before
    assert not [name for name in os.listdir(bed.directory) if name.startswith(".forebay-ab")]
    assert not os.path.exists(scratch + ".forebay")
