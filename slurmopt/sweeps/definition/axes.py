"""Parses overrides into the columns of a sweep's axes; Hydra's grammar says which are swept, and over which values."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from hydra.core.override_parser.types import IntervalSweep, Override, RangeSweep, Transformer
from hydra.errors import HydraException

from slurmopt.errors import ConfigError, one_line
from slurmopt.grid.axes import Column, Interval, Steps
from slurmopt.grid.override_syntax import is_text, override_value

if TYPE_CHECKING:
    from slurmopt.sweeps.definition.hydra_compositions import Composer

_LONGEST = 10_000_000
"""More values than this on one axis are taken for a mistake."""


@dataclass(frozen=True)
class Fixed:
    """An override that all points share."""

    override: Override

    @property
    def key(self) -> str:
        return key_of(self.override)

    @property
    def typed(self) -> str:
        return self.override.input_line or ""

    @property
    def word(self) -> str:
        """The override as Hydra's own sweeper would pass it on."""
        return f"{self.override.get_key_element()}={self.override.get_value_element_as_str()}"


def key_of(override: Override) -> str:
    """The key or group without prefix, with the package where one was typed."""
    package = "" if override.package is None else f"@{override.package}"
    return f"{override.key_or_group}{package}"


def parse_overrides(overrides: list[str], composer: Composer) -> list[Fixed | Column]:
    """The overrides, in order. ConfigError for what is not an override, and for a sweep without values."""
    return [parse_override(override, composer) for override in composer.parse(overrides)]


def parse_override(override: Override, composer: Composer) -> Fixed | Column:
    """One override: fixed, or a column of values."""
    key = key_of(override)
    if not override.key_or_group:
        raise ConfigError(f"{override.input_line!r} is not an override; valid: key=value")
    if not override.is_sweep_override():
        return Fixed(override)
    if override.is_hydra_override():
        raise ConfigError("settings of Hydra itself are the same for all points; give one value", key)
    if override.is_delete():
        raise ConfigError(f"{override.input_line!r} deletes a key, which cannot have several values", key)
    group = composer.is_group(override.key_or_group)
    try:
        values, texts = _values(override)
    except (HydraException, ValueError, TypeError, ArithmeticError) as error:
        raise ConfigError(f"{override.input_line!r}: {one_line(str(error).splitlines()[0])}", key) from error
    if not isinstance(values, Interval) and not values:
        raise ConfigError(f"{override.input_line!r} has no values{_options(override, composer, group)}", key)
    if group:
        _check_choices(values, key)
    prefix = "+" if override.is_add() else "++" if override.is_force_add() else ""
    return Column(key=key, values=values, prefix=prefix, group=group, words=texts, tags=_tags(override))


def _options(override: Override, composer: Composer, group: bool) -> str:
    if not group:
        return "" if override.is_range_sweep() else "; globs are for config groups, and this is none"
    return f"; available: {', '.join(composer.options(override.key_or_group))}"


def _check_choices(values: Sequence[Any] | Interval, key: str) -> None:
    for value in values if not isinstance(values, Interval) else [values]:
        if not isinstance(value, (str, list, dict)):
            raise ConfigError(f"{value!r} is not a name of a config; this is a config group", key)


def _tags(override: Override) -> tuple[str, ...]:
    return tuple(sorted(getattr(override._value, "tags", ())))


def _values(override: Override) -> tuple[Sequence[Any] | Interval, dict[int, str]]:
    sweep: Any = override._value
    if isinstance(sweep, IntervalSweep):
        assert sweep.start is not None
        assert sweep.end is not None
        if not sweep.start < sweep.end:
            raise ValueError(f"the interval from {sweep.start} to {sweep.end} is empty")
        return Interval(sweep.start, sweep.end), {}
    if isinstance(sweep, RangeSweep):
        return _range(sweep), {}
    return _choices(list(override.sweep_iterator()))


def _choices(elements: list[Any]) -> tuple[list[Any], dict[int, str]]:
    values = [Override._convert_value(element) for element in elements]
    texts = {}
    for index, (element, value) in enumerate(zip(elements, values, strict=True)):
        typed = Transformer.str(element)
        # `str(1,2)` gives text; Hydra's own form of it would be read as a number again.
        if typed != override_value(value) and (not isinstance(element, str) or is_text(element)):
            texts[index] = typed
    return values, texts


def _range(sweep: RangeSweep) -> Sequence[Any]:
    _refuse_endless(sweep)
    numbers = sweep.range()
    values: Sequence[Any] = numbers if isinstance(numbers, range) else _steps(sweep, list(numbers))
    if not sweep.shuffle:
        return values
    mixed = list(values)
    random.shuffle(mixed)
    return mixed


def _refuse_endless(sweep: RangeSweep) -> None:
    """ValueError for a range that is endless or has too many values."""
    start, stop, step = (Decimal(number or 0) for number in (sweep.start, sweep.stop, sweep.step))
    if not step:
        raise ValueError("the step of a range cannot be 0")
    if not all(number.is_finite() for number in (start, stop, step)) or (stop - start) / step > _LONGEST:
        raise ValueError(f"the range has too many values; valid: up to {_LONGEST}")


def _steps(sweep: RangeSweep, values: list[float]) -> Sequence[Any]:
    """The values as a formula where that gives exactly the same floats: Hydra adds the step repeatedly, with
    rounding."""
    steps = Steps(str(Decimal(sweep.start or 0)), str(Decimal(sweep.step)), len(values))
    return steps if all(computed == listed for computed, listed in zip(steps, values, strict=True)) else values
