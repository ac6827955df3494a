"""What is reported of the episodes that ended, with their mean return in the agent's words."""

from __future__ import annotations

from llamagym_tui.trainer.rollout.episode_counts import EpisodeCounter, EpisodeCounts, Stopwatch


def test_the_last_returns_under_a_prompt_are_put_in_words_when_those_are_others():
    counter = EpisodeCounter(
        Stopwatch(lambda: 0.0), lambda: 0.0, describe=lambda mean: f"earns {mean:.1f}"
    )

    def words(*returns: float, prompt: int = 1) -> list[str]:
        counter.add(EpisodeCounts(each, 1, mode="train", prompt_version=prompt) for each in returns)
        return [event.words for event in counter.take_events(0)]

    counter.begin_again("train", 1)
    assert words(1.0, 0.0) == ["earns 0.5"]
    assert words(0.5) == [""]
    assert words(*[0.0] * 999) == ["earns 0.0"]  # of the last 1,000
    counter.begin_again("train", 2)
    assert words(1.0, prompt=1) == [""]  # under the prompt of before
    assert words(-1.0, prompt=2) == ["earns -1.0"]
    counter.begin_again("train", 2)  # other settings, a roll back
    assert words(-1.0, prompt=2) == ["earns -1.0"]
