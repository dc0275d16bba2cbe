"""What is wrong with variables: pure functions of the settings, the versions and the table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from slurmopt.network import versions as version
from slurmopt.network.lint.contradictions import contradictions
from slurmopt.network.lint.setting import WARN, Finding, Setting
from slurmopt.network.lint.spelling import unknown
from slurmopt.network.lint.table import UNKNOWN, Problem, Table, Variable, holds, table
from slurmopt.network.lint.values import wrong_value
from slurmopt.network.lint.versions import FIELDS, TITLES, Versions

_DELETE = "delete it"


def findings(settings: Iterable[Setting], versions: Versions) -> list[Finding]:
    """All findings, by place in the order of the settings, then by line."""
    places: dict[str, list[Setting]] = {}
    for setting in settings:
        places.setdefault(setting.place, []).append(setting)
    found: list[Finding] = []
    for of_place in places.values():
        found += sorted(_of_place(of_place, versions, table()), key=lambda one: one.setting.line or 0)
    return found


def _of_place(settings: list[Setting], versions: Versions, known: Table) -> Iterator[Finding]:
    names = {setting.name for setting in settings}
    for setting in dict.fromkeys(settings):
        variable = known.variables.get(setting.name)
        if variable is not None:
            yield from _of_known(setting, variable, versions, names)
        elif (finding := unknown(setting, known)) is not None:
            yield finding
    yield from contradictions(settings, known)


def _of_known(setting: Setting, variable: Variable, versions: Versions, names: set[str]) -> Iterator[Finding]:
    if not variable.documented:
        what = f"is not documented by {_title(variable)}: it changes without notice"
        yield Finding(setting, WARN, what, _DELETE, variable.source)
        return
    here = versions.of(FIELDS[variable.library])
    gone = _removed(setting, variable, here)
    if gone is not None:
        yield gone
        return
    yield from filter(None, (_too_new(setting, variable, here), _deprecated(setting, variable, here)))
    if setting.value is None:
        yield from _problems(setting, variable, versions, names)
        return
    wrong = list(filter(None, (_wrong(setting, variable, here), _newer_word(setting, variable, here))))
    yield from wrong
    if not wrong:
        yield from _problems(setting, variable, versions, names)


def _title(variable: Variable) -> str:
    return TITLES[FIELDS[variable.library]]


def _since(variable: Variable, since: str) -> str:
    return "" if since == UNKNOWN else f" in {_title(variable)} {since}"


def _reached(limit: str | None, here: version.Version | None) -> bool:
    """Whether a version has come to a limit; one that is not known is taken to be a late one."""
    if limit is None or limit == UNKNOWN:
        return limit is not None
    return here is None or not version.is_before(here, version.parse(limit))


def _removed(setting: Setting, variable: Variable, here: version.Version | None) -> Finding | None:
    if not _reached(variable.removed, here):
        return None
    what = variable.removed_what or f"was removed{_since(variable, variable.removed or UNKNOWN)}, and has no effect"
    instead = f"{_DELETE}; {variable.replaced_by} took its place" if variable.replaced_by else _DELETE
    return Finding(setting, variable.removed_verdict, what, variable.mend.get("removed", instead), variable.source)


def _deprecated(setting: Setting, variable: Variable, here: version.Version | None) -> Finding | None:
    if not _reached(variable.deprecated, here):
        return None
    what = f"is deprecated{_since(variable, variable.deprecated or UNKNOWN).replace(' in ', ' since ')}"
    value = "" if setting.value is None else f"={setting.value}"
    instead = f"{variable.replaced_by}{value}" if variable.replaced_by else _DELETE
    return Finding(setting, WARN, what, variable.mend.get("deprecated", instead), variable.source)


def _too_new(setting: Setting, variable: Variable, here: version.Version | None) -> Finding | None:
    """Says that a version ignores a variable, only where the version is known."""
    if variable.since is None or here is None or not version.is_before(here, version.parse(variable.since)):
        return None
    what = f"came with {_title(variable)} {variable.since}; {version.text(here)} ignores it"
    return Finding(setting, WARN, what, f"{_DELETE}, or {_title(variable)} {variable.since}", variable.source)


def _wrong(setting: Setting, variable: Variable, here: version.Version | None) -> Finding | None:
    wrong = wrong_value(variable, setting.value or "")
    if wrong is None:
        return None
    what, likely = wrong
    instead = (
        f"{setting.name}={likely}" if likely is not None else variable.mend.get("value", f"{_DELETE}, or a valid value")
    )
    verdict = WARN if variable.kind == "path_type" else variable.invalid
    return Finding(setting, verdict, what, instead, variable.source)


def _newer_word(setting: Setting, variable: Variable, here: version.Version | None) -> Finding | None:
    for word, since in variable.words_since.items():
        is_there = word.lower() in (setting.value or "").lower().replace(";", ",").replace(":", ",").split(",")
        if is_there and here is not None and version.is_before(here, version.parse(since)):
            what = f"{word} came with {_title(variable)} {since}; here is {version.text(here)}"
            return Finding(setting, variable.invalid, what, _DELETE, variable.source)
    return None


def _problems(setting: Setting, variable: Variable, versions: Versions, names: set[str]) -> Iterator[Finding]:
    for problem in variable.problems:
        if problem.unless in names or not _has(problem, setting.value) or not _applies(problem, versions):
            continue
        known = [f"{TITLES[one]} {version.text(here)}" for one in problem.versions if (here := versions.of(one))]
        what = f"{problem.what} (here: {', '.join(known)})" if known else problem.what
        yield Finding(setting, problem.verdict, what, problem.mend, problem.source)


def _has(problem: Problem, value: str | None) -> bool:
    if value == "" and problem.matches != "":  # the same as unset
        return False
    return holds(problem.when if problem.matches is None else problem.matches, value)


def _applies(problem: Problem, versions: Versions) -> bool:
    for field, condition in problem.versions.items():
        here = versions.of(field)
        if problem.only_known if here is None else not version.satisfies(here, condition):
            return False
    return True
