"""`match` without a screen: two players of a game for two against each other, on equal seeds with sides swapped."""

import math
from collections.abc import Mapping, Sequence
from contextlib import closing
from types import MappingProxyType
from typing import Any

from llamagym_tui.cli.headless import Player, quiet_progress, return_text
from llamagym_tui.protocol.literal import echo, echo_json
from llamagym_tui.settings import RunConfig
from llamagym_tui.setup.catalog import agent_name
from llamagym_tui.state.returns import counted, mean_return
from llamagym_tui.trainer.builders import EVALUATION_SEED
from llamagym_tui.trainer.rollout.episode_counts import EpisodeCounts

SIDES = {"player": "begins", "opponent": "comes second"}
"""A's part, by who begins."""


def outcomes(returns: Sequence[float]) -> dict[str, int]:
    """The numbers of games won, drawn and lost, from their returns."""
    won = sum(each > 0 for each in returns)
    lost = sum(each < 0 for each in returns)
    return {"won": won, "drawn": len(returns) - won - lost, "lost": lost}


def match(
    config: RunConfig,
    names: tuple[str, str],
    *,
    episodes: int,
    greedy: bool,
    is_swapped: bool,
    json_output: bool = False,
    debug: bool = False,
) -> int:
    """Play games, half of which each begins, and print how many A has won; returns the exit code, 0.

    Args:
        config: of the player whose weights are here, against the other one as its opponent.
        names: of A and B.
        episodes: games; an odd number is made even.
        is_swapped: whether that player is B.
    """
    by_side: dict[str, list[float]] = {}
    with (
        quiet_progress(debug, episodes=episodes) as progress,
        closing(Player(config, progress)) as player,
    ):
        for side in SIDES:
            ended: list[EpisodeCounts] = []
            player.play(
                math.ceil(episodes / 2),
                greedy,
                progress.evaluated,
                seed=EVALUATION_SEED + config.seed,
                ended=ended,
                held_out=False,
                env={"begins": side},
            )
            sign = -1.0 if is_swapped else 1.0
            other = "opponent" if side == "player" else "player"
            by_side[other if is_swapped else side] = [sign * each.episode_return for each in ended]
    returns = [each for side in SIDES for each in by_side[side]]
    mean = mean_return(returns)
    assert mean is not None, "games were played"
    found: Mapping[str, int] = MappingProxyType(outcomes(returns))
    if json_output:
        figures: dict[str, Any] = {
            "agent": agent_name(config.agent),
            "models": list(names),
            "games": len(returns),
            **found,
            "not_lost": 1 - found["lost"] / len(returns),
            "mean_return": mean.mean,
            "return_stderr": mean.stderr,
            "sides": {words: outcomes(by_side[side]) for side, words in SIDES.items()},
            "policy": "greedy" if greedy else "sampled",
        }
        echo_json(figures)
        return 0
    how = "greedy" if greedy else "sampled"
    echo(
        f"A has not lost {1 - found['lost'] / len(returns):.1%} of {counted(len(returns), 'game')}, {how}: "
        f"{_words(found)}; mean return {return_text(mean, 3)}."
    )
    for side, words in SIDES.items():
        echo(f"A {words}: {_words(outcomes(by_side[side]))}.")
    for letter, name in zip("AB", names, strict=True):
        echo(f"{letter}  {name}")
    return 0


def _words(found: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in found.items())
