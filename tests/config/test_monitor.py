"""The group `monitor`: what is refused, and what the ranks are told."""

from __future__ import annotations

import json
from typing import Any

import pytest

from slurmopt.config.monitor import Monitor, Sampling, from_word, sampling_of
from slurmopt.errors import ConfigError


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"every": "0s"}, "monitor.every"),
        ({"every": "6m"}, "valid: 1s to 5m"),
        ({"every": "often"}, "not a time: 'often'"),
        ({"every": None}, "valid: 1s to 5m"),
        ({"sources": ["gpus"]}, "did you mean 'gpu'?); valid: gpu, node, network, ranks"),
        ({"sources": ["gpu", "3"]}, "valid: gpu, node, network, ranks"),
        ({"sources": []}, "monitor.sampler=false"),
        ({"heartbeat": "never"}, "monitor.heartbeat"),
    ],
)
def test_what_no_sampler_can_do_is_refused_with_what_is_valid(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Monitor(**given)
    assert said in str(refused.value)


def test_ranks_are_told_in_one_word_and_only_what_they_need() -> None:
    assert sampling_of(Monitor()).to_json_arg() == '{"every":5}'
    told = sampling_of(Monitor(every="30s", sources=["node", "ranks", "node"])).to_json_arg()
    assert json.loads(told) == {"every": 30, "sources": ["node", "ranks"]}
    assert from_word(told) == Sampling(every=30, sources=["node", "ranks"])
    assert from_word('{"every": 2, "of_a_newer_version": 1}').every == 2
    with pytest.raises(ValueError, match="not a JSON object"):
        from_word("[]")
