"""A benchmark of collectives as a PNG, through matplotlib."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from slurmopt.collectives.recording import Recording
from slurmopt.collectives.summary import collectives, fit_curve, head, main_rows
from slurmopt.errors import InputError
from slurmopt.run_folder.access.files import replace_bytes
from slurmopt.units import human_bytes

_COLOURS = ("#1c7ed6", "#e67700", "#2f9e44", "#7048e8", "#d6336c")
_MARKERS = ("o", "s", "^", "D", "v")


def require(path: Path) -> None:
    """InputError without matplotlib."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise InputError(
            f"bench collectives: --plot {str(path)!r} needs matplotlib, which is not installed here ({error}); "
            "a name that ends in .html needs nothing"
        ) from error


def draw(recording: Recording, path: Path) -> None:
    """Writes the bus bandwidths over the sizes, with the fits as lines. InputError without matplotlib; OSError where
    the file cannot be written."""
    require(path)
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5), layout="constrained")
    FigureCanvasAgg(figure)
    _panel(figure.add_subplot(), recording)
    picture = io.BytesIO()
    figure.savefig(picture, dpi=120, format="png")
    replace_bytes(path, picture.getvalue(), mode=0o644)


def _panel(axes: Any, recording: Recording) -> None:
    for at, name in enumerate(collectives(recording)):
        rows = [row for row in main_rows(recording) if row.collective == name]
        colour, curve = _COLOURS[at % len(_COLOURS)], fit_curve(recording, name)
        sizes, marker = [row.size for row in rows], _MARKERS[at % len(_MARKERS)]
        axes.plot(sizes, [row.busbw for row in rows], marker, color=colour, label=name)
        axes.plot([size for size, _ in curve], [value for _, value in curve], color=colour, linewidth=1, alpha=0.6)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.xaxis.set_major_formatter(lambda size, _: human_bytes(size))
    axes.set_xlabel("size")
    axes.set_ylabel("busbw, GB/s")
    axes.set_title(head(recording).replace("$", r"\$"), fontsize=9)
    axes.legend(fontsize=8)
    axes.grid(alpha=0.3)
