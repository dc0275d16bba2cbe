"""What `--model` and `plan.model` name: a public model, a config.json, or a count of parameters."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from slurmopt.errors import ConfigError, one_line, why_failed
from slurmopt.planning.models.config_file import transformer
from slurmopt.planning.models.public import NAMES, public_config, public_model
from slurmopt.planning.models.transformer import Transformer, of_parameters
from slurmopt.run_folder.access.files import read_whole

_PARAMS = re.compile(r"(?:params=)?(\d+(?:\.\d+)?)(?:e\+?(\d{1,2})|([MBT]))?", re.IGNORECASE)
_UNITS = {"M": 6, "B": 9, "T": 12}
_FEWEST, _MOST = 2e7, 1e14
_LARGEST = 1 << 20


def model_of(word: str, place: str) -> Transformer:
    """The shape of the model. Raises ConfigError, with `place`: what is wrong, and what would be valid."""
    if (public := public_model(word.lower())) is not None:
        return public
    if word.startswith("params=") or _PARAMS.fullmatch(word):
        return of_parameters(_count(word, place), name=one_line(word))
    if word.endswith(".json"):
        return _of_file(Path(word), place)
    if word and Path(word).is_dir():
        raise ConfigError(f"{one_line(word)[:80]!r} is a folder; valid: the config.json in it", place)
    valid = f"a count such as 7B, the path of a config.json, or one of {', '.join(NAMES)}"
    raise ConfigError(f"{one_line(word)[:80]!r} is no model; valid: {valid}", place)


def _count(word: str, place: str) -> float:
    match = _PARAMS.fullmatch(word)
    exponent = 0 if match is None else int(match[2] or _UNITS.get((match[3] or "").upper(), 0))
    count = 0.0 if match is None else float(match[1]) * 10.0**exponent
    if not _FEWEST <= count <= _MOST:
        raise ConfigError(f"{one_line(word)[:80]!r} is not valid; valid: 20M to 100T", place)
    return count


def config_of(word: str, place: str) -> dict[str, Any]:
    """The content of the config.json that the word names, or of a public model's. Raises ConfigError."""
    if (public := public_config(word.lower())) is not None:
        return public
    if word.endswith(".json"):
        return _content(Path(word), place)
    raise ConfigError("a count of parameters is no model to trace; valid: a config.json, or a public model", place)


def _of_file(path: Path, place: str) -> Transformer:
    name = one_line(path.parent.name or path.stem)
    return transformer(_content(path, place), name, one_line(str(path)))


def _content(path: Path, place: str) -> dict[str, Any]:
    try:
        if path.stat().st_size > _LARGEST:
            raise ConfigError("is larger than 1 MiB; valid: a config.json of transformers", one_line(str(path)))
        content = json.loads(read_whole(path.expanduser()).decode("utf-8", "replace"))
    except OSError as error:
        raise ConfigError(f"{one_line(str(path))}: {why_failed(error)}", place) from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"is no JSON: {one_line(str(error))[:200]}", one_line(str(path))) from error
    if not isinstance(content, dict):
        raise ConfigError("is not a mapping; valid: a config.json of transformers", one_line(str(path)))
    return content
