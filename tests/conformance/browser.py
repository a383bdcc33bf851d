"""A page as a browser has it: Chromium without a window, told what to do over a pair of pipes (DevTools protocol)."""
import base64
import json
import os
import shutil
import subprocess

from bed import Skip

BROWSERS = ("chromium-headless-shell", "chromium", "google-chrome")
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
AXE = os.path.join(ROOT, "target/tools/axe-core/axe.min.js")
# In pixels. A tablet of this width is the narrowest with whole tables. Paper is A4 between its margins of 14 mm.
PHONE, TABLET, DESKTOP, PAPER = 390, 870, 1000, 688


class Browser:
    def __init__(self, bed):
        program = next((name for name in BROWSERS if shutil.which(name)), None)
        if not program:
            raise Skip("no Chromium: apt-get install chromium-headless-shell")
        from_us, self.to = os.pipe()
        self.answers, from_it = os.pipe()
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe",
                   "--user-data-dir=" + bed.path("browser")]
        # It reads from descriptor 3 and answers at 4.
        shell = 'exec "$@" 3<&%d 4>&%d' % (from_us, from_it)
        with open(bed.path("browser-log"), "w") as log:
            self.process = subprocess.Popen(["bash", "-c", shell, "browser", program, *options, "about:blank"],
                                            pass_fds=(from_us, from_it), stdout=log, stderr=log)
        os.close(from_us)
        os.close(from_it)
        self.number, self.rest, self.session = 0, b"", None
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.ask("Page.enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self.to)
        self.process.terminate()
        self.process.wait()
        os.close(self.answers)

    def message(self):
        while b"\0" not in self.rest:
            more = os.read(self.answers, 1 << 20)
            assert more, "the browser ended"
            self.rest += more
        text, self.rest = self.rest.split(b"\0", 1)
        return json.loads(text)

    def ask(self, method, **parameters):
        """The answer of the browser; events before it are passed over."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.message()
            if answer.get("id") == self.number:
                assert "error" not in answer, (method, answer)
                return answer["result"]

    def show(self, path, width=DESKTOP, theme="light", medium="screen"):
        """Opens a file. Its scripts do not run: a report has none, and works without."""
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=1200, deviceScaleFactor=1, mobile=False)
        self.ask("Emulation.setEmulatedMedia", media=medium, features=[{"name": "prefers-color-scheme", "value": theme}])
        self.ask("Page.navigate", url="file://" + path)
        while self.message().get("method") != "Page.loadEventFired":
            pass

    def run(self, script):
        """What an expression is, also what a promise brings."""
        result = self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def colours(self):
        """How often each colour is in a picture of the whole page."""
        shot = self.ask("Page.captureScreenshot", captureBeyondViewport=True)["data"]
        counted = self.run("""(async () => {
          const image = new Image(), counts = {};
          image.src = "data:image/png;base64,%s";
          await image.decode();
          const brush = new OffscreenCanvas(image.width, image.height).getContext("2d");
          brush.drawImage(image, 0, 0);
          const pixels = brush.getImageData(0, 0, image.width, image.height).data;
          for (const pixel of new Uint32Array(pixels.buffer)) counts[pixel] = (counts[pixel] || 0) + 1;
          return counts;
        })()""" % shot)
        return {tuple(int(pixel).to_bytes(4, "little")[:3]): number for pixel, number in counted.items()}

    def pdf(self, path):
        """The page as it is printed."""
        printed = self.ask("Page.printToPDF", preferCSSPageSize=True, paperWidth=8.27, paperHeight=11.69, printBackground=False)
        with open(path, "wb") as f:
            f.write(base64.b64decode(printed["data"]))

    def overflow(self):
        """Pixels by which the page, a part of it or a part of a chart is too wide, and which part is widest."""
        return self.run("""(() => {
          const wide = document.documentElement.clientWidth;
          let most = document.documentElement.scrollWidth - wide, what = "the page";
          for (const one of document.querySelectorAll("body *")) {
            const box = one.getBoundingClientRect();
            if (!box.width || one.closest("thead") && getComputedStyle(one.closest("thead")).position == "absolute") continue;
            const inside = one.clientWidth && one.scrollWidth > one.clientWidth + 1 ? box.left + one.scrollWidth : 0;
            const drawing = one.ownerSVGElement?.getBoundingClientRect();
            const cut = drawing ? Math.max(box.right - drawing.right, drawing.left - box.left) : 0;
            const over = Math.max(Math.max(box.right, inside) - wide, cut);
            if (over > most) { most = over; what = one.tagName + " " + one.textContent.slice(0, 60); }
          }
          return [Math.round(most), what];
        })()""")

    def axe(self):
        """Violations that axe-core finds in the page: rule, what is wrong, where."""
        if not os.path.exists(AXE):
            raise Skip("axe-core is missing: make setup")
        with open(AXE) as f:
            self.run(f.read() + "; 0")
        found = self.run("axe.run().then(found => found.violations)")
        return [(one["id"], one["help"], [node["html"][:120] + " " + node["failureSummary"][:200] for node in one["nodes"][:3]])
                for one in found]
