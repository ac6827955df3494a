"""Whether the replies of a model that has learnt nothing here name actions, which is tried before the first episode."""

import dataclasses
from collections.abc import Callable

from msgspec.structs import replace

from llamagym_tui.config import MOST_UNREAD, TRIED, RunConfig
from llamagym_tui.model_registry import BUNDLED
from llamagym_tui.trainer.builders import Builders
from llamagym_tui.trainer.parts import Parts
from llamagym_tui.trainer.rollout.episode_counts import EpisodeCounts

AT_ONCE = 8
"""Replies that are tried side by side: if all of the first ones name no action, the others need not be tried."""


def unread_share(
    builders: Builders, parts: Parts, progress: Callable[[int, int], None] = lambda done, of: None
) -> float:
    """Share of sampled first replies that name no action, in environments apart from the run.

    No more are tried than it takes to know that it is `MOST_UNREAD` or more. `progress` is told how many of them were
    tried, and of how many.
    """
    config = replace(builders.config, n_envs=AT_ONCE, max_turns=1)
    tried: list[EpisodeCounts] = []

    def unread() -> int:
        return sum(bool(each.parse_failures) for each in tried)

    dataclasses.replace(builders, config=config).evaluate(
        parts.agent,
        parts.policy,
        episodes=TRIED,
        greedy=False,
        system_prompt=parts.rollout.system_prompt,
        ended=tried,
        should_stop=lambda: unread() >= MOST_UNREAD * TRIED,
        progress=lambda done: progress(done, TRIED),
    )
    return unread() / len(tried)


def is_to_be_tried(config: RunConfig, parts: Parts) -> bool:
    """Whether a run's form is not known yet, and can be given by scores: not after demonstrations, which teach it."""
    return (
        config.form == "auto"
        and not (config.resume or config.sft_warm_start)
        and config.generation.policy == "generate"
        and parts.policy.can_choose
        and parts.loaded.name != BUNDLED
    )


def chosen_by_score(config: RunConfig) -> RunConfig:
    """The settings with replies that are chosen among the admissible ones by their scores."""
    return replace(config, generation=replace(config.generation, policy="score"))
