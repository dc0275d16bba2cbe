"""Makes docs/results.png: takes a picture of the page of `slurmopt results --html`.

Needs slurmopt and Pillow in this Python, and Chromium. With `--look FOLDER` it also writes the whole page there, at the
widths of a desk and of a phone, light and dark.
slurmopt describes the sweep from a real config; what its 180 points came to is computed here: training them takes days.
"""

from __future__ import annotations

import argparse
import io
import math
import os
import random
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from PIL import Image  # noqa: E402
from report.browser import Browser, browser  # noqa: E402
from sweeps.conftest import MadeSweep  # noqa: E402

from slurmopt import cli  # noqa: E402
from slurmopt.grid import points_file  # noqa: E402
from slurmopt.sweeps.definition.describe import describe_sweep  # noqa: E402

PICTURE = ROOT / "docs" / "results.png"
WIDTH = 1200
COLOURS = 256
CONFIG = """# @package _global_
task: {command: [python, train.py]}
lr: 0.001
model: vit_s
batch: 128
dropout: 0.0
seed: 0
"""
SWEEP = {
    "lr": [1e-4, 3e-4, 1e-3, 3e-3, 1e-2], "model": ["resnet18", "resnet50", "vit_s"], "batch": [64, 128, 256],
    "dropout": [0.0, 0.1], "seed": [0, 1],
}  # fmt: skip
WORSE = {"resnet18": 0.2, "resnet50": 0.08, "vit_s": 0.0}


def main() -> None:
    """Makes the sweep and takes the picture."""
    parser = argparse.ArgumentParser(description="Makes docs/results.png.")
    parser.add_argument(
        "--look", type=lambda path: Path(path).absolute(), metavar="FOLDER", help="write the whole page there too"
    )
    look = parser.parse_args().look
    with tempfile.TemporaryDirectory(prefix="slurmopt-picture-") as name:
        os.chdir(name)
        Path("conf/experiment").mkdir(parents=True)
        Path("conf/experiment/vision.yaml").write_text(CONFIG)
        swept = [f"{key}={','.join(map(str, values))}" for key, values in SWEEP.items()]
        described = describe_sweep(["+experiment=vision", *swept])
        made = MadeSweep(Path("runs").absolute(), "vision", "20261121-143000-be41", {"metric": "val_loss"}, **SWEEP)
        points_file.save(described.points, made.folder.points_file)
        made.submitted(f"0-{len(made.points) - 1}", "34")
        end_all(made)
        assert cli.main(["results", "vision", "--html", "page.html"]) == 0
        with browser() as chromium:
            chromium.show(WIDTH, 1600)
            chromium.open(Path("page.html").absolute())
            assert chromium.complaints() == []
            height = chromium.value("document.getElementById('heat-section').getBoundingClientRect().bottom")
            save(chromium.picture(WIDTH, math.ceil(height) + 16))
            if look is not None:
                write_looks(chromium, look)
    print(f"{PICTURE}: {PICTURE.stat().st_size >> 10} KiB")


def write_looks(chromium: Browser, folder: Path) -> None:
    """Pictures of the whole page."""
    folder.mkdir(parents=True, exist_ok=True)
    for width in (1280, 390):
        for dark in (False, True):
            chromium.show(width, dark=dark)
            chromium.open(Path("page.html").absolute())
            chromium.show(width, chromium.value("document.documentElement.scrollHeight"), dark)
            assert chromium.complaints() == []
            chromium.screenshot(folder / f"results-{width}-{'dark' if dark else 'light'}.png")


def save(picture: bytes) -> None:
    """Writes the picture with few colours, which makes it small."""
    with Image.open(io.BytesIO(picture)) as image:
        image.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(PICTURE, optimize=True)


def end_all(made: MadeSweep) -> None:
    """Ends every point as a training would: with a loss that has its minimum at a middling lr, or with an error."""
    chance = random.Random(1)
    for point in range(len(made.points)):
        values = made.points.values(point)
        if values["lr"] == 0.01 and values["model"] == "vit_s" and chance.random() < 0.7:
            made.ended(point, "user error", error=f"FloatingPointError: the loss is nan in step {100 + point}")
            continue
        if chance.random() < 0.02:
            made.ended(point, "user error", error="OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB")
            continue
        loss = 0.3 + 0.25 * (math.log10(values["lr"]) + 3) ** 2 + WORSE[values["model"]] + values["dropout"] / 5
        loss += abs(values["batch"] - 128) / 2000 + chance.gauss(0, 0.03)
        metrics = {"val_loss": round(loss, 4), "top1": round(100 * math.exp(-loss) + chance.gauss(0, 0.4), 2)}
        made.ended(point, metrics=metrics, seconds=600 + chance.random() * 3000)


if __name__ == "__main__":
    main()
