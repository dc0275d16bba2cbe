#!/usr/bin/env python3
"""Writes docs/configuration.md from the config dataclasses: each field with its type, default and docstring.

scripts/configuration_reference.py            write the file
scripts/configuration_reference.py --check    exit 1 if the file is out of date or a field has no docstring
"""

from __future__ import annotations

import sys
from dataclasses import MISSING, Field, fields, is_dataclass
from pathlib import Path
from typing import Any

from slurmopt.config.field_docs import field_docs
from slurmopt.config.schema import GROUPS
from slurmopt.config.storage import ENTRIES

TARGET = Path(__file__).resolve().parent.parent / "docs" / "configuration.md"
HEAD = """# Configuration reference

Generated from the dataclasses in `slurmopt/config/` by `scripts/configuration_reference.py`; do not edit it by hand.

Every launch has one Hydra config. The groups below are typed: an unknown key is an error that lists the valid ones.
All other keys at the root are yours (`lr`, `model`, …) and are passed to the task. `oc.env` is stored unresolved in the
run folder and is resolved in the job, so that no secret is written; `${hydra:…}` is resolved at launch, with the run
folder as Hydra's output folder (`${hydra:runtime.output_dir}`).

On the command line, a key that does not exist yet (a variable, an `extra` option, a key of your own) needs a `+`:
`+environment.variables.OMP_NUM_THREADS=8`.
"""


def default(field: Field[Any]) -> str:
    value = field.default if field.default is not MISSING else field.default_factory()  # type: ignore[misc]
    if is_dataclass(value):
        return ""
    return {"None": "null", "False": "false", "True": "true", "": '""'}.get(str(value), str(value))


def rows(kind: type[Any], path: str) -> list[str]:
    """Returns a table row for each field; fields of nested dataclasses have a dotted path."""
    docs, lines = field_docs(kind), []
    order = [*docs]
    for field in sorted(fields(kind), key=lambda field: order.index(field.name) if field.name in docs else -1):
        if is_dataclass(nested := field.default_factory):
            lines += rows(nested, f"{path}.{field.name}")
            continue
        if field.name not in docs:
            raise SystemExit(f"{path}.{field.name} has no docstring")
        kind_text = str(field.type).replace("|", "\\|")
        text = docs[field.name].replace("|", "\\|")
        lines.append(f"| `{path}.{field.name}` | {kind_text} | `{default(field)}` | {text} |")
        if (entries := field.metadata.get(ENTRIES)) is not None:
            lines += rows(entries[1], f"{path}.{field.name}.{entries[0]}")
    return lines


def reference() -> str:
    parts = [HEAD]
    for name, kind in GROUPS.items():
        table = rows(kind, name)
        parts.append(f"\n## {name}\n\n{' '.join((kind.__doc__ or '').split())}\n")
        if table:
            parts.append("\n".join(["", "| key | type | default | meaning |", "|---|---|---|---|", *table]) + "\n")
    return "".join(parts)


def main() -> int:
    text = reference()
    if "--check" not in sys.argv[1:]:
        TARGET.write_text(text, encoding="utf-8")
        return 0
    if TARGET.read_text(encoding="utf-8") == text:
        return 0
    print(f"{TARGET.name} is out of date; run scripts/configuration_reference.py", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
