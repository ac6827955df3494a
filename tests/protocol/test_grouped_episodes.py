"""Episodes that were counted at once take as many bytes as there are different ones, and keep their returns."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from statistics import fmean

import msgspec
import pytest

from llamagym_tui.errors import RunStoreError
from llamagym_tui.protocol import event_log
from llamagym_tui.protocol.event_log import apart, grouped
from llamagym_tui.protocol.events import EpisodesCounted
from tests import fakes


def counted(returns: list[float], lengths: list[int]) -> EpisodesCounted:
    return msgspec.structs.replace(fakes.counted(returns, len(returns)), lengths=lengths)


def test_each_return_and_length_stands_once_with_its_number() -> None:
    event = grouped(counted([1.0, -1.0, -1.0, 1.0] * 30, [1, 1, 2, 1] * 30))
    assert (event.returns, event.lengths, event.counts) == (
        [1.0, -1.0, -1.0],
        [1, 1, 2],
        [60, 30, 30],
    )


def test_read_again_they_are_the_same_episodes_in_a_random_order_that_is_always_the_same() -> None:
    returns, lengths = [1.0] * 600 + [-1.0] * 300 + [0.0] * 100, [1] * 600 + [2] * 400
    event = apart(together := grouped(counted(returns, lengths)))
    assert Counter(zip(event.returns, event.lengths, strict=True)) == Counter(
        zip(returns, lengths, strict=True)
    )
    assert (event.counts, event) == ([], apart(together))
    for part in (event.returns[:500], event.returns[250:750], event.returns[500:]):
        assert fmean(part) == pytest.approx(0.3, abs=0.08)


@pytest.mark.parametrize("counts", [[1], [10**15, 1], [0, 1], [-5, 6]])
def test_numbers_that_belong_to_no_episodes_are_no_event(tmp_path: Path, counts: list[int]) -> None:
    event = msgspec.structs.replace(counted([1.0, -1.0], [1, 2]), counts=counts)
    (path := tmp_path / "events.jsonl").write_bytes(msgspec.json.encode(event) + b"\n" * 2)
    with pytest.raises(RunStoreError, match="is no event"):
        list(event_log.read(path))
