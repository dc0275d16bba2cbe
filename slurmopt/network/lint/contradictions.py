"""Settings of one place that do not fit together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from slurmopt.network.lint.setting import WARN, Finding, Setting
from slurmopt.network.lint.table import Contradiction, Table, holds
from slurmopt.network.lint.values import wrong_value


def contradictions(settings: Iterable[Setting], known: Table) -> Iterator[Finding]:
    """What the variables of a place say against each other."""
    last = _last(settings)
    for one in known.contradictions:
        yield from _listed(one, last, known)
    for low, high in known.ordered:
        yield from _out_of_order(low, high, last)
    for (first, second), most in known.products:
        yield from _too_large(first, second, most, last)
    for setting in last.values():
        yield from _old_beside_new(setting, last, known)


def _last(settings: Iterable[Setting]) -> dict[str, Setting]:
    """The last setting of each name; its value is not known where the place has several, as branches of a script."""
    last: dict[str, Setting] = {}
    for setting in settings:
        before = last.get(setting.name, setting)
        last[setting.name] = setting if before.value == setting.value else replace(setting, value=None)
    return last


def _listed(one: Contradiction, last: dict[str, Setting], known: Table) -> Iterator[Finding]:
    if not all(_is_so(name, condition, last, known) for name, condition in one.conditions.items()):
        return
    beside = [name for name in one.beside if name in last]
    if one.beside and not beside:
        return
    setting = last[beside[0] if beside else list(one.conditions)[-1]]
    others = f"; nor has {', '.join(beside[1:])}" if len(beside) > 1 else ""
    yield Finding(setting, one.verdict, one.what + others, one.mend)


def _is_so(name: str, condition: str, last: dict[str, Setting], known: Table) -> bool:
    """Whether a variable is set, as a condition wants it, to something that its library understands."""
    if name not in last or not holds(condition, last[name].value):
        return False
    variable, value = known.variables.get(name), last[name].value
    return variable is None or value is None or wrong_value(variable, value) is None


def _out_of_order(low: str, high: str, last: dict[str, Setting]) -> Iterator[Finding]:
    least, most = _number(low, last), _number(high, last)
    if least is not None and most is not None and least > most:
        yield Finding(last[low], WARN, f"is more than {high}={most}", f"{low} up to {most}, or a larger {high}")


def _too_large(first: str, second: str, most: int, last: dict[str, Setting]) -> Iterator[Finding]:
    one, two = _number(first, last), _number(second, last)
    if one is not None and two is not None and one * two > most:
        yield Finding(last[second], WARN, f"times {first}={one} is more than {most}", "smaller values")


def _number(name: str, last: dict[str, Setting]) -> int | None:
    value = last[name].value if name in last else None
    return int(value) if value is not None and value.isdecimal() and len(value) < 20 else None


def _old_beside_new(setting: Setting, last: dict[str, Setting], known: Table) -> Iterator[Finding]:
    variable = known.variables.get(setting.name)
    new = last.get(variable.replaced_by) if variable is not None and variable.replaced_by else None
    if new is not None and None not in (new.value, setting.value) and new.value != setting.value:
        yield Finding(setting, WARN, f"contradicts {new.shown()}, the newer name", f"delete {setting.name}")
