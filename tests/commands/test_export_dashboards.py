"""`slurmopt export`: JSON on standard output, or one line that says what is missing."""

from __future__ import annotations

import json

import pytest

from slurmopt.commands import export
from slurmopt.errors import InputError


def test_dashboards_and_alarms_are_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert export.main(["grafana"]) == 0
    assert json.loads(capsys.readouterr().out)["title"] == "slurmopt"
    words = ["cloudwatch", "--namespace", "mine", "--dimension", "Experiment=gpt", "--dimension", "Team=a=b"]
    assert export.main([*words, "--region", "eu-west-1"]) == 0
    widget = json.loads(capsys.readouterr().out)["widgets"][0]["properties"]
    assert widget["metrics"] == [["mine", "StepRate", "Experiment", "gpt", "Team", "a=b"]]
    assert widget["region"] == "eu-west-1"
    assert export.main([*words, "--alarms"]) == 0
    assert {alarm["Namespace"] for alarm in json.loads(capsys.readouterr().out)} == {"mine"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["cloudwatch"], "export: cloudwatch needs --dimension Experiment=NAME"),
        (["cloudwatch", "--dimension", "gpt"], "'gpt' is not valid; valid: NAME=VALUE"),
        (["grafana", "--alarms"], "export: --alarms is for cloudwatch"),
        (["datadog"], "invalid choice: 'datadog'"),
    ],
)
def test_a_mistake_is_one_line(words: list[str], said: str) -> None:
    with pytest.raises(InputError) as error:
        export.main(words)
    assert said in str(error.value)
    assert "\n" not in str(error.value)
