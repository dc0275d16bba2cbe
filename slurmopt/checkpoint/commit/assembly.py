"""Assembles the manifest of a save from what the ranks have written."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from slurmopt.checkpoint.format import rank_payload as parts
from slurmopt.checkpoint.format.manifest import FORMAT, File, Held, Index, Manifest, Spread
from slurmopt.checkpoint.format.rank_payload import RankPayload
from slurmopt.errors import CheckpointError


class Summary(NamedTuple):
    """What one rank has written, where the items are described in its payload file. Sizes are bytes."""

    files: list[File]
    place: Index
    objects: list[str]
    elements: int
    written: int
    held: int


def payload_from_message(values: dict[str, Any]) -> RankPayload | Summary:
    """A rank's part, from the JSON message of its writer."""
    if "place" not in values:
        return parts.from_json(values)
    files = [File(*file) for file in values["files"]]
    places, *rest = values["place"]
    return Summary(**{**values, "files": files, "place": Index(tuple(places), *rest)})


def assemble_manifest(
    known: dict[str, Any], written: Sequence[RankPayload | Summary], own: Sequence[dict[str, Any]]
) -> tuple[Manifest, tuple[int, int] | None]:
    """Returns the manifest, and the sizes for its commit where the manifest does not contain the items.

    `known` are rank 0's fields, `written` is what each rank wrote, `own` the type and shape of the tensors that only
    one rank has, by rank. Raises CheckpointError where something is missing.
    """
    tensors = {**known["tensors"], **{name: each for of_rank in own for name, each in of_rank.items()}}
    whole = [each for each in written if isinstance(each, RankPayload)]
    if len(whole) == len(written):
        merged = parts.merged(whole)
        inline = {name: value for name, value in known.items() if name != "spread"}
        manifest = Manifest(**{**inline, "tensors": tensors}, files=merged.files, items=merged.items)
        if lacking := manifest.lacking():
            raise CheckpointError(f"{lacking} is not whole in what the ranks have written")
        return manifest, None
    summaries = [each for each in written if isinstance(each, Summary)]
    spread = _spread(known["spread"], summaries, own)
    _check_whole(spread, summaries)
    files, indexes = _merged(summaries)
    values = {**known, "tensors": tensors, "spread": spread, "format": FORMAT}
    manifest = Manifest(**values, files=files, items=[], parts=indexes)
    return manifest, (sum(each.written for each in summaries), sum(each.held for each in summaries))


def _spread(values: list[Any], summaries: list[Summary], own: Sequence[dict[str, Any]]) -> Spread:
    """Rank 0's spread of the shared tensors, extended by the tensors that only one rank has."""
    tensors, layouts, _ = values
    tensors, layouts = dict(tensors), list(layouts)
    for rank, of_rank in enumerate(own):
        for name, (_, shape) in of_rank.items():
            tensors[name] = len(layouts)
            layouts.append([Held((0,) * len(shape), tuple(shape), rank)])
    return Spread(tensors, layouts, {name: rank for rank, each in enumerate(summaries) for name in each.objects})


def _check_whole(spread: Spread, summaries: list[Summary]) -> None:
    used = Counter(spread.tensors.values())
    expected: Counter[int] = Counter()
    for layout, held in enumerate(spread.layouts):
        for _, sizes, part in held:
            expected[part] += used[layout] * math.prod(sizes)
    for rank, each in enumerate(summaries):
        if each.elements != expected[rank]:
            raise CheckpointError(
                f"rank {rank} has written {each.elements:,} elements, and its share has {expected[rank]:,}"
            )


def _merged(summaries: list[Summary]) -> tuple[list[File], list[Index]]:
    files: dict[File, int] = {}
    indexes = []
    for each in summaries:
        places = [files.setdefault(file, len(files)) for file in each.files]
        indexes.append(each.place._replace(files=tuple(places[place] for place in each.place.files)))
    return list(files), indexes
