"""The page of `slurmopt results --html` in a real browser: what it says, shows, sorts and filters; hostile and odd
values, and many."""

from __future__ import annotations

import json
import math
import shlex
import stat
from pathlib import Path
from typing import Any

import pytest
from report.browser import CONTRAST, Browser

from slurmopt.cli import main
from slurmopt.grid import points_file
from slurmopt.grid.point_folder import make_point
from slurmopt.sweeps.definition.describe import describe_sweep

NETS = ["small", "large", "huge"]
ROWS = "[...document.querySelectorAll('#table tbody tr')].map(row => [...row.cells].map(cell => cell.innerText))"
EVIL = "</script><script>document.title='owned'</script><img src=x onerror=document.title='owned'>\"'\x1b[31m\u202e"


@pytest.fixture
def trained(make_sweep: Any) -> Any:
    """The loss falls with lr and with the net; the two seeds hardly differ. Of the largest lr `huge` fails."""
    made = make_sweep(sweep={"metric": "loss"}, lr=[1e-4, 1e-3, 1e-2, 1e-1], net=NETS, seed=[0, 1])
    made.submitted("0-23", "7")
    for point in range(24):
        values = made.points.values(point)
        if values["lr"] == 0.1 and values["net"] == "huge":
            made.ended(point, "user error", error=f"FloatingPointError: the loss is inf in step {point}")
            continue
        loss = -math.log10(values["lr"]) - NETS.index(values["net"]) / 4 + values["seed"] / 100
        made.ended(point, metrics={"loss": loss, "speed": 10.0 + point}, seconds=60.0 + point)
    return made


def opened(browser: Browser, *words: str, width: int = 1280, dark: bool = False) -> str:
    """Writes the page and opens it; returns its text."""
    assert main(["results", "mine", "--html", "page.html", *words]) == 0
    browser.show(width, dark=dark)
    browser.open(Path("page.html").absolute())
    browser.value("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    return str(browser.value("document.body.innerText"))


def in_order(browser: Browser) -> list[str]:
    return [row[0] for row in browser.value(ROWS)]


def click(browser: Browser, head: str) -> None:
    buttons = "[...document.querySelectorAll('#table thead button')]"
    browser.value(f"{buttons}.find(button => button.innerText === {json.dumps(head)}).click()")


def choose(browser: Browser, control: str, value: str, event: str = "change") -> None:
    told = f"control.value = {json.dumps(value)}; control.dispatchEvent(new Event('{event}'))"
    browser.value(f"(() => {{ const control = document.getElementById('{control}'); {told}; }})()")


def test_what_is_on_the_page(trained: Any, chromium: Browser) -> None:
    text = opened(chromium)
    for words in (
        "22 finished · 2 failed", "the smallest loss is the best", "smallest loss, of point 20", "What explains loss",
        "0.1 (mean", "no clear effect", "2 points, 22-23", "FloatingPointError: the loss is inf in step 22", "Two axes",
        "lr logarithmic", "points/00020",
    ):  # fmt: skip
        assert words in text, words
    assert "net logarithmic" not in text
    assert chromium.complaints() == []
    assert chromium.requests() == [Path("page.html").absolute().as_uri()]


def test_the_charts_are_drawn_with_failed_points_as_failed(trained: Any, chromium: Browser) -> None:
    opened(chromium)
    words = chromium.value("[...document.querySelectorAll('#parallel text')].map(text => text.textContent)")
    assert {"lr", "net", "seed", "loss", "1e-4", "0.001", *NETS} <= set(words)
    lines = "[...document.querySelectorAll('#parallel path[fill=none]')]"
    dashed = f"{lines}.filter(line => line.getAttribute('stroke-dasharray') === '6,4').length"
    assert chromium.value(dashed) == 2
    cells = chromium.value("[...document.querySelectorAll('#heat text')].map(text => text.textContent)")
    assert "✕ 2" in cells
    table = "[...document.querySelectorAll('#heat-table tr')].map(row => [...row.cells].map(cell => cell.textContent))"
    assert chromium.value(table)[1] == ["small", "4.005", "3.005", "2.005", "1.005"], "means of two seeds"


def test_another_metric_is_chosen_for_the_charts(trained: Any, chromium: Browser) -> None:
    opened(chromium)
    shown = "document.getElementById('parallel').ariaLabel"
    assert "net, seed, loss; the best is point 20;" in chromium.value(shown)
    chromium.value("document.getElementById('metric').focus()")
    chromium.press("ArrowDown")
    assert chromium.value("document.getElementById('direction').value") == "largest"
    assert "net, seed, speed; the best is point 21;" in chromium.value(shown)
    assert "mean speed" in chromium.value("document.getElementById('heat-what').innerText")
    assert "speed over each axis" in chromium.value("document.getElementById('each-keys').innerText")
    choose(chromium, "direction", "")
    assert "speed; the best is point 0;" in chromium.value(shown)
    choose(chromium, "metric", "0")
    assert "loss; the best is point 20;" in chromium.value(shown)
    assert in_order(chromium)[:2] == ["20", "21"], "the table keeps the sweep's order"
    assert chromium.complaints() == []


def test_a_metric_is_chosen_where_the_sweep_names_none(make_sweep: Any, chromium: Browser) -> None:
    made = make_sweep(lr=[0.1, 0.2], seed=[0, 1]).submitted("0-3", "7")
    for point in range(4):
        made.ended(point, metrics={"loss": float(point), "top1": 10.0 * point})
    opened(chromium)
    assert not chromium.value("document.getElementById('each-section').checkVisibility()")
    choose(chromium, "metric", "1")
    assert "lr, seed, top1; the best is point 3" in chromium.value("document.getElementById('parallel').ariaLabel")
    assert chromium.value("document.getElementById('each-section').checkVisibility()")
    choose(chromium, "metric", "")
    assert not chromium.value("document.getElementById('each-section').checkVisibility()")
    assert chromium.complaints() == []


def test_a_marked_range_filters_the_table(trained: Any, chromium: Browser) -> None:
    opened(chromium)
    axis = "model.getComponent('parallelAxis', 0).id"
    marked = f"{{type: 'axisAreaSelect', parallelAxisId: {axis}, intervals: [[-1.5, 0]]}}"
    chromium.value(
        "(() => { const chart = made.get(document.getElementById('parallel')), model = chart.getModel();"
        f" chart.dispatchAction({marked}); }})()"
    )
    assert chromium.value("document.getElementById('picked').innerText").startswith("6 of 24 points lie within")
    assert {row[1] for row in chromium.value(ROWS)} == {"0.1"}
    chromium.value("document.querySelector('#picked button').click()")
    assert len(chromium.value(ROWS)) == 24


def test_the_table_sorts_and_filters(trained: Any, chromium: Browser) -> None:
    opened(chromium)
    assert in_order(chromium)[:2] == ["20", "21"], "the best first"
    click(chromium, "speed")
    assert in_order(chromium)[0] == "0"
    assert in_order(chromium)[-2:] == ["22", "23"], "those without a value come last"
    click(chromium, "speed")
    assert in_order(chromium)[0] == "21"
    assert in_order(chromium)[-2:] == ["22", "23"]
    assert chromium.value("document.querySelectorAll('[aria-sort=descending]').length") == 1
    choose(chromium, "filter", "lr<0.01 net=large", "input")
    assert {tuple(row[1:3]) for row in chromium.value(ROWS)} == {("1e-4", "large"), ("0.001", "large")}
    choose(chromium, "filter", "floatingpoint", "input")
    assert in_order(chromium) == ["22", "23"]
    choose(chromium, "filter", "", "input")
    choose(chromium, "filter-state", "failed")
    assert in_order(chromium) == ["22", "23"]


def test_without_javascript_the_table_is_there(trained: Any, chromium: Browser) -> None:
    chromium.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        text = opened_without_script(chromium)
    finally:
        chromium.call("Emulation.setScriptExecutionDisabled", value=False)
    assert '<th scope="row">20</th>' in text
    assert "failed: FloatingPointError: the loss is inf in step 22" in text


def opened_without_script(browser: Browser) -> str:
    assert main(["results", "mine", "--html", "page.html"]) == 0
    browser.open(Path("page.html").absolute())
    root = browser.call("DOM.getDocument")["root"]["nodeId"]
    table = browser.call("DOM.querySelector", nodeId=root, selector="#table")["nodeId"]
    return str(browser.call("DOM.getOuterHTML", nodeId=table)["outerHTML"])


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (1280, True), (390, False), (390, True)])
def test_light_and_dark_at_the_desk_and_on_the_phone(trained: Any, chromium: Browser, width: int, dark: bool) -> None:
    opened(chromium, width=width, dark=dark)
    assert chromium.value("document.documentElement.scrollWidth") <= width
    assert chromium.value(CONTRAST) == []
    ground = sum(chromium.value("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)"))
    assert ground < 150 if dark else ground > 700
    assert chromium.value("document.querySelectorAll('#parallel path').length") > 24
    assert chromium.complaints() == []


def test_a_screen_reader_gets_names(trained: Any, chromium: Browser) -> None:
    opened(chromium)
    nodes = chromium.call("Accessibility.getFullAXTree")["nodes"]
    roles = {
        (node["role"]["value"], node.get("name", {}).get("value", "")) for node in nodes if not node.get("ignored")
    }
    pictures = [name for role, name in roles if role in ("image", "img")]
    assert any("Parallel coordinates of 24 points over lr, net, seed, loss" in name for name in pictures)
    named = ("image", "img", "region", "combobox", "searchbox", "button", "checkbox")
    assert not [role for role, name in roles if role in named and not name]
    assert "2 failed" in chromium.value("document.getElementById('heat-table').textContent")


def test_hostile_words_stay_words(make_sweep: Any, chromium: Browser) -> None:
    made = make_sweep(**{"trick": [EVIL, "=1+1", {"a": [EVIL]}, None], "other</script>": [1, 2]}).submitted("0-7", "7")
    for point in range(7):
        made.ended(point, metrics={f"<img src=x>{EVIL}": float(point)}, error=EVIL)
    made.ended(7, "user error", error=EVIL)
    text = opened(chromium)
    assert "owned" not in chromium.value("document.title")
    assert chromium.value("document.images.length") == 0
    assert chromium.value("document.scripts.length") == 2
    assert text.count("onerror") > 5
    assert "\x1b" not in text
    assert "\u202e" not in text
    chromium.value("pick(0); showTip({event: {event: {clientX: 9, clientY: 9}}}, {lines: pointLines(7)})")
    assert chromium.value("document.images.length") == 0
    assert chromium.complaints() == []


def test_a_script_that_got_into_the_page_would_not_run(trained: Any, chromium: Browser) -> None:
    opened(chromium)
    page = Path("page.html")
    page.write_text(page.read_text().replace("<main>", "<main><script>document.title = 'owned'</script>"))
    chromium.open(page.absolute())
    assert chromium.value("document.title") != "owned"


def test_odd_sweeps_have_pages(make_sweep: Any, chromium: Browser) -> None:
    """One point; no metric; all failed; numbers that are not finite, and too large; values that are missing."""
    one = make_sweep(sweep_id="20261121-120001-aaaa", lr=[0.1]).submitted("0", "7")
    one.ended(0, metrics={"loss": 2.5})
    assert "smallest loss, of point 0" in opened(chromium)
    none = make_sweep(sweep_id="20261121-120002-aaaa").submitted("0-5", "7")
    none.ended(0)
    assert "No point has reported a metric" in opened(chromium)
    all_failed = make_sweep(sweep_id="20261121-120003-aaaa", sweep={"metric": "loss"}).submitted("0-5", "7")
    for point in range(6):
        all_failed.ended(point, "user error", error="no")
    assert "6 points, 0-5: no" in opened(chromium)
    assert chromium.complaints() == []
    odd = make_sweep(sweep_id="20261121-120004-aaaa", sweep={"metric": "loss"}, x=[1, math.inf, 1e308, True], y=[1, -1])
    odd.submitted("0-7", "7")
    for point, loss in enumerate((math.nan, math.inf, -math.inf, 1e305, -1e305, 0.0, -0.0)):
        odd.ended(point, metrics={"loss": loss})
    text = opened(chromium)
    assert chromium.complaints() == []
    assert {"nan", "inf", "-inf"} <= {cell for row in chromium.value(ROWS) for cell in row}
    assert "1 point has not started" in text


def test_too_few_points_are_said_to_be_too_few(make_sweep: Any, chromium: Browser) -> None:
    made = make_sweep(sweep={"metric": "loss"}).submitted("0-5", "7")
    for point in range(6):
        made.ended(point, metrics={"loss": float((3, 1, 4, 1, 5, 9)[point])})
    assert opened(chromium).count("too few points to tell") == 2


def test_a_search_with_pruned_trials(make_sweep: Any, chromium: Browser) -> None:
    made = make_sweep(search=3, sweep={"metric": "loss"}, lr=[0.1, 0.2]).submitted("0-2", "7", tasks=1)
    run = made.task(0, 0)
    for point, lr in enumerate((0.15, 0.17, 0.11)):
        make_point(made.folder, made.points, point, "7_0", None, {"lr": lr})
        made.packed_end(run, point, metrics={"loss": lr}, pruned=point == 2)
    text = opened(chromium)
    assert "smallest loss, of point 0" in text
    assert [row[-1] for row in chromium.value(ROWS)] == ["finished", "finished", "pruned"]
    assert "1 without a result" in text


def test_an_axis_that_only_some_points_have(make_sweep: Any, chromium: Browser) -> None:
    made = make_sweep(search=4, sweep={"metric": "loss"}, lr=[0.1, 0.2], warm=[1, 2]).submitted("0-3", "7", tasks=1)
    run = made.task(0, 0)
    for point in range(4):
        make_point(made.folder, made.points, point, "7_0", None, {"lr": 0.1 + point / 50, "warm": point})
        made.packed_end(run, point, metrics={"loss": float(point)})
        journal = made.folder.point(point).events
        if point % 2:
            journal.write_text(journal.read_text().replace(', "warm":', ', "cold":'))
    opened(chromium)
    assert [row[2] for row in chromium.value(ROWS)] == ["0", "", "2", ""]
    assert chromium.complaints() == []


def test_many_points_are_thinned_and_said_to_be(make_sweep: Any, chromium: Browser) -> None:
    made = make_sweep(sweep={"metric": "loss"}, lr=[0.1, 0.2], seed=list(range(3000)))
    made.submitted("0-5999", "7", per_task=6000)
    run = made.task(0, 0)
    for point in range(6000):
        made.packed_end(run, point, metrics={"loss": float(point)})
    text = opened(chromium)
    assert "5,000 of 6,000 points are on this page" in text
    assert Path("page.html").stat().st_size < 3_000_000
    assert in_order(chromium)[0] == "0"
    assert len(chromium.value(ROWS)) == 100
    choose(chromium, "filter", "seed>2990 lr=0.2", "input")
    assert {row[1] for row in chromium.value(ROWS)} == {"0.2"}
    assert chromium.complaints() == []


def test_long_values_do_not_make_a_large_page(make_sweep: Any) -> None:
    made = make_sweep(**{f"key{at}": [f"{at}-{value}-" + "x" * 5000 for value in range(2)] for at in range(9)})
    made.submitted("0-511", "7", per_task=512)
    run = made.task(0, 0)
    for point in range(512):
        made.packed_end(run, point, "user error", error="y" * 20_000)
    assert main(["results", "mine", "--html", "page.html"]) == 0
    assert Path("page.html").stat().st_size < 3_000_000


def test_the_command_of_the_best_point_works(make_sweep: Any, chromium: Browser, tmp_path: Path, capsys: Any) -> None:
    made = make_sweep(sweep={"metric": "loss"}, seed=[0, 1, 2, 3]).submitted("0-3", "7")
    words = ["+experiment=quickstart", "+text='it is',\"a 'word'\"", "resources.time=5", "launch.backend=local"]
    described = describe_sweep([*words, "sweep.metric=loss", "+key={a:1},{b:[2]}"])
    points_file.save(described.points, made.folder.points_file)
    for point in range(4):
        made.ended(point, metrics={"loss": float(-point)})
    opened(chromium)
    command = shlex.split(chromium.value("document.getElementById('command').innerText"))
    assert command[:2] == ["slurmopt", "launch"]
    capsys.readouterr()
    assert main([*command[1:], "--cfg", "job"]) == 0
    composed = capsys.readouterr().out
    assert "text: a 'word'" in composed
    assert "b:" in composed


def test_the_file_is_private_and_the_way_to_it_is_told(
    trained: Any, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    assert main(["results", "mine", "--open"]) == 0
    told = capsys.readouterr()
    path = Path(told.out.strip())
    assert path == Path(f"{trained.folder.id}-results.html")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert f":{path.absolute()} ." in told.err
    assert "scp " in told.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--open", "--json"], "--open needs a page in a file"),
        (["--open", "--html", "-"], "--open needs a page in a file"),
        (["--html", "no/such/page.html"], "there is no folder no/such"),
        (["--html", "folder.html"], "is no regular file"),
        (["--html", "mine"], "valid: a name that ends in .html, or -"),
        (["--html", "a.html", "--csv"], "not allowed with"),
    ],
)
def test_bad_words_of_the_page(trained: Any, capsys: Any, words: list[str], said: str) -> None:
    Path("folder.html").mkdir()
    assert main(["results", "mine", *words]) == 2
    assert said in capsys.readouterr().err
