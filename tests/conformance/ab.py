"""Replays without cache, with a cold one and with a warm one, on the modelled SAN."""
import glob
import json


SAN = "model:san?inner=mem:%d"


class Ab:
    """What `forebay trace ab` measured with a disk that is configured so, over a modelled SAN of `size` bytes. Its bytes are in
    memory: this machine's own disk, which may hang for a moment, has no part in its times."""

    def __init__(self, bed, trace, size, settings, name, more=()):
        self.page, out, config = bed.path(name + ".html"), bed.path(name + ".json"), bed.path(name + ".toml")
        with open(config, "w") as f:
            f.write('state-dir = "%s"\n[[disk]]\nname = "db"\nbackend = "mem:1MiB"\nnbd = ["unix:%s"]\n'
                    % (bed.path("state"), bed.path("unused.sock")))
            f.writelines('%s = "%s"\n' % setting for setting in settings.items())
        backend = SAN % size
        self.text = bed.run([bed.program, "trace", "ab", trace, "--backend", backend, "--config", config, "--overwrite",
                             "--json", out, "--html", self.page, *more])
        assert not glob.glob(bed.path("state/*.events*")), "what it tells is no daemon's"
        with open(out) as f:
            self.without, self.cold, self.warm = json.load(f)["runs"]

    def times_faster(self, figure="mean_ns"):
        return self.without["reads"][figure] / self.warm["reads"][figure]


def hit_ratio(run):
    return run["cache"]["read_hits"] / run["cache"]["reads"]


def settings_of(options, pool):
    """The options of `forebay run` in an advice as the settings of a file; `pool` is the flash."""
    pairs = zip(options[::2], options[1::2])
    return {name.removeprefix("--"): value.replace("POOL:", pool + ":") for name, value in pairs}
