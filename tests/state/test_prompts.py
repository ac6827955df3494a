"""Episodes are counted under the prompt and the mode that they were played by."""

from __future__ import annotations

from llamagym_tui.state import prompts
from llamagym_tui.state.prompts import MAX_VERSIONS, words
from llamagym_tui.state.returns import RECENT
from tests import fakes


def test_episodes_go_to_the_version_and_mode_that_played_them():
    versions = prompts.taken(prompts.taken((), 1, "old"), 2, "new")
    versions = prompts.counted(versions, fakes.counted([1.0, 1.0], 2, prompt_version=1), 7)
    versions = prompts.counted(
        versions, fakes.counted([-1.0], 3, prompt_version=2, mode="inference"), 9
    )
    old, new = versions
    assert (old.under("train").episodes, old.under("inference").episodes, old.updates) == (
        2,
        0,
        (7, 7),
    )
    assert (new.under("train").episodes, new.under("inference").last, new.updates) == (
        0,
        (-1.0, 0.0, 1),
        (9, 9),
    )


def test_a_version_is_measured_at_its_end_not_over_all_training():
    versions, half = prompts.taken((), 0, "p"), RECENT // 2
    for update, returns in enumerate(
        [[-1.0] * (RECENT + 1), [0.0] * 5_000, [1.0, -1.0] * (half // 2), [1.0] * half]
    ):
        versions = prompts.counted(versions, fakes.counted(returns, 1, prompt_version=0), update)
    (known,) = versions
    # 250 times 1 and -1, then 500 times 1.
    assert known.under("train").last is not None
    assert (known.under("train").last.mean, known.under("train").last.episodes) == (0.5, RECENT)
    assert known.updates == (0, 3)


def test_a_version_is_named_by_its_first_words_or_by_those_that_no_other_has():
    assert words("Hit  below\n17. \x1b[2J") == "“Hit below 17. ␛[2J”"
    long = "You are playing Blackjack. Get closer to 21 than the dealer."
    assert words(long) == words(long, long) == "“You are playing Blackjack. Get closer …”"
    assert words(f"{long} Never hit above 16.", long) == "“… Never hit above 16.”"
    assert words("Hit below 13.", "Hit below 17.") == "“Hit below 13.”"
    assert words("") == "(none)"
    versions = prompts.taken(prompts.taken((), 0, long), 1, f"{long} Stick.")
    assert (prompts.named(versions, 1), prompts.named(versions, 5)) == ("v1 “… Stick.”", "v5")


def test_the_oldest_versions_but_the_first_go_first():
    versions: prompts.Versions = ()
    for number in range(1, MAX_VERSIONS + 3):
        versions = prompts.taken(versions, number, str(number))
    assert [versions[0].version, versions[1].version, len(versions)] == [1, 4, MAX_VERSIONS]
