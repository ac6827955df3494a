"""Episodes are counted under the prompt and the mode that they were played by."""

from __future__ import annotations

import pytest

from llamagym_tui.state import prompts
from llamagym_tui.state.prompts import MAX_VERSIONS, Totals
from tests import fakes


def test_mean_and_standard_error_by_hand():
    mean = Totals().add([1.0, -1.0]).add([1.0, -1.0, float("nan")]).mean_return
    assert mean is not None
    assert (mean.mean, mean.episodes) == (0.0, 4)
    assert mean.stderr == pytest.approx((4 / 3) ** 0.5 / 2)
    assert Totals().mean_return is None


def test_episodes_go_to_the_version_and_mode_that_played_them():
    versions = prompts.taken(prompts.taken((), 1, "old"), 2, "new")
    versions = prompts.counted(versions, fakes.counted([1.0, 1.0], 2, prompt_version=1))
    versions = prompts.counted(versions, fakes.counted([-1.0], 3, prompt_version=2, mode="inference"))
    old, new = versions
    assert (old.train.episodes, old.inference.episodes) == (2, 0)
    assert (new.under("train").episodes, new.under("inference").total) == (0, -1.0)


def test_a_prompt_that_is_told_twice_keeps_its_episodes():
    versions = prompts.counted(prompts.taken((), 1, "old"), fakes.counted([1.0], 1))
    assert prompts.taken(versions, 1, "old") is versions
    assert prompts.taken(versions, 1, "another")[0].train.episodes == 0


def test_the_oldest_versions_go_first():
    versions: prompts.Versions = ()
    for number in range(1, MAX_VERSIONS + 3):
        versions = prompts.taken(versions, number, str(number))
    assert [versions[0].version, len(versions)] == [3, MAX_VERSIONS]
