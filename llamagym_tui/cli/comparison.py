"""`compare` without a screen: two models, or two prompts or temperatures of one, on the same seeds."""

import sys
import time
from contextlib import ExitStack, closing
from typing import Any

import msgspec

from llamagym_tui.cli.headless import (
    Player,
    quiet_progress,
)
from llamagym_tui.config import RunConfig
from llamagym_tui.errors import UsageError
from llamagym_tui.model_registry import is_endpoint
from llamagym_tui.protocol.literal import echo, echo_json
from llamagym_tui.returns import counted, evaluated_return, with_unit
from llamagym_tui.screens.policy_map.mapped_policy import compared_maps
from llamagym_tui.setup.catalog import agent_name
from llamagym_tui.state.comparison import compared_text, unread_text
from llamagym_tui.state.prompts import words
from llamagym_tui.trainer.builders import EVALUATION_SEED
from llamagym_tui.trainer.probes.map_policy import PolicyMapper
from llamagym_tui.trainer.rollout.episode_counts import EpisodeCounts
from llamagym_tui.trainer.rollout.evaluation import Pairs, compared, enough_for, played

NAMES = ("A", "B")


def compare(
    configs: tuple[RunConfig, RunConfig],
    *,
    greedy: bool,
    half_width: float | None,
    most: int,
    json_output: bool = False,
    debug: bool = False,
) -> int:
    """Measure how much more B earns than A, and print it on stdout; returns the exit code, 0.

    Episodes are played until half the confidence interval is `half_width`, but at most `most` of each.

    Raises:
        UsageError: both are the same, one is an endpoint, or they play different games.
        LlamaGymError: agent or model do not load, or the environment failed.
    """
    if configs[0] == configs[1]:
        raise UsageError(
            "A and B are the same: give --b-model, --b-prompt-file or --b-temperature."
        )
    if any(is_endpoint(config.model) for config in configs):
        raise UsageError(
            "`compare` needs models that are loaded; an endpoint plays in `eval`, `match` and as an opponent."
        )
    env, other_env = (config.env for config in configs)
    if env != other_env:
        raise UsageError(
            f"A and B play different games, {env} and {other_env}: --env NAME=VALUE sets one for both."
        )
    with quiet_progress(debug) as progress, ExitStack() as stack:
        first = stack.enter_context(closing(Player(configs[0], progress)))
        players = (first, stack.enter_context(closing(Player(configs[1], progress, first))))
        agent = first.agent
        layouts: list[Any] = []

        def play(side: int, episodes: int, seed: int, ended: list[EpisodeCounts]) -> bool:
            progress.update(f"{NAMES[side]}: {counted(episodes, 'episode')}")
            seed += EVALUATION_SEED + first.config.seed
            found = players[side].play(episodes, greedy, seed=seed, ended=ended)
            return found is not None

        began_at = time.monotonic()
        enough = half_width or enough_for(agent.baselines)
        pairs: Pairs = ([], [])
        played(play, enough, most, pairs)
        maps = []
        for each in players:
            mapper = PolicyMapper(each.agent, each.policy, layouts.append, time.monotonic)
            each.policy.generation = each.config.generation
            mapper.lay_out()
            maps += mapper.under(each.prompt, 0, 0)
    elapsed_s = time.monotonic() - began_at
    found = compared(
        pairs,
        [{"system_prompt": player.prompt} for player in players],
        elapsed_s=elapsed_s,
        greedy=greedy,
        enough=enough,
        maps=maps,
    )
    if json_output:
        figures: dict[str, Any] = {
            "agent": agent_name(first.config.agent),
            "models": [player.config.model for player in players],
        }
        echo_json(figures | msgspec.to_builtins(found))
        if unread := unread_text(found):
            echo(f"warning:{unread}", to=sys.stderr)
        return 0
    echo(compared_text(found, agent.return_unit))
    for name, player, side in zip(NAMES, players, (found.a, found.b), strict=True):
        earned = with_unit(evaluated_return(side).text, agent.return_unit)
        model = f"{player.config.model}, {words(player.prompt, most=60)}"
        echo(f"{name}  {earned} · {model}")
    for line in compared_maps(layouts[0] if layouts else None, found.maps):
        echo(line)
    return 0
