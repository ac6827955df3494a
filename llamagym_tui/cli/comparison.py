"""`compare` without a screen: two models, or two prompts or temperatures of one, on the same episodes.

Episode by episode both have the same seed, so that the difference is known better than either mean. As many are played
as its 95 % confidence interval needs, within a bound; where the agent has a policy map, both are printed side by side.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from llamagym_tui.cli.headless import Player, quiet_progress
from llamagym_tui.config import RunConfig
from llamagym_tui.errors import UsageError
from llamagym_tui.protocol.events import PolicyMapLaidOut, PolicyMapped
from llamagym_tui.protocol.literal import echo, echo_json
from llamagym_tui.returns import MeanReturn, counted, margin, mean_return, signed, with_unit
from llamagym_tui.screens.policy_map.mapped_policy import MappedPolicy, Spot
from llamagym_tui.setup.catalog import agent_name
from llamagym_tui.state.prompts import words

if TYPE_CHECKING:
    from llamagym_tui.trainer.rollout.episode_counts import EndedEpisode

NAMES = ("A", "B")
FIRST, ROUNDS = 256, 8
"""Pairs of episodes from which is known how many are needed; times that some are played, at most."""
SHARE, HALF_WIDTH = 0.1, 0.05
"""Half an interval that is enough: of the distance between the baselines, or where there are none."""


class Pairs(NamedTuple):
    """Episodes of A and B, pair by pair on the same seed."""

    a: list[EndedEpisode]
    b: list[EndedEpisode]

    @property
    def difference(self) -> MeanReturn:
        """By how much B earns more."""
        both = zip(self.a, self.b, strict=True)
        return mean_return([b.episode_return - a.episode_return for a, b in both]) or MeanReturn(0.0, 0.0, 0)

    def shares(self, action: int) -> list[float]:
        """Of the turns of A and of B, the share in which the reply names an action."""
        return [sum(each.actions[action] for each in side) / sum(each.length for each in side) for side in self]


def compare(
    configs: tuple[RunConfig, RunConfig],
    *,
    greedy: bool,
    half_width: float | None,
    most: int,
    json_output: bool = False,
    debug: bool = False,
) -> int:
    """Measure how much more B earns than A, and print it on stdout; the exit code, 0.

    As many episodes are played as half the interval of `half_width` needs, and `most` of them at most.

    Raises:
        UsageError: both are the same, or play different games.
        LlamaGymError: agent or model do not load, or the environment failed.
    """
    if configs[0] == configs[1]:
        raise UsageError("A and B are the same: give --b-model, --b-prompt-file or --b-temperature.")
    envs = [config.env for config in configs]
    if envs[0] != envs[1]:
        raise UsageError(f"A and B play different games, {envs[0]} and {envs[1]}: --env NAME=VALUE sets one for both.")
    with quiet_progress(debug) as progress:
        first = Player(configs[0], progress)
        players, agent = (first, Player(configs[1], progress, first)), first.agent
        known = agent.baselines.values()
        enough = half_width or (SHARE * (max(known) - min(known)) if known else HALF_WIDTH)
        pairs = played(players, greedy, enough, most, progress.update)
        maps = [policy for player in players if (policy := mapped(player)) is not None]
    means = [mean_return([episode.episode_return for episode in side]) for side in pairs]
    if json_output:
        sides = zip(NAMES, players, means, strict=True)
        of = {name: {"model": each.config.model, "system_prompt": each.prompt, "mean_return": mean and mean.mean}
            for name, each, mean in sides}  # fmt: skip
        found: dict[str, Any] = {"difference": pairs.difference.mean, "half_width_95": margin(pairs.difference.stderr)}
        found |= {"pairs": len(pairs.a), "agreeing_states": [policy.count.agreeing for policy in maps]}
        echo_json({"agent": agent_name(first.config.agent), **of, **found})
        return 0
    echo(sentence(agent.action_names, pairs, agent.return_unit, enough))
    for name, player, mean in zip(NAMES, players, means, strict=True):
        earned = with_unit(mean.text, agent.return_unit) if mean else "nothing"
        echo(f"{name}  {earned} · {player.config.model}, {words(player.prompt, most=60)}")
    if len(maps) == 2:
        agreeing = [f"{name}  {each.words}" for name, each in zip(NAMES, maps, strict=True)]
        echo("\n".join([*agreeing, *side_by_side(*maps)]), lines=True)
    return 0


def played(
    players: tuple[Player, Player], greedy: bool, enough: float, most: int, show: Callable[[str], None]
) -> Pairs:
    """Pairs of episodes until half the interval is narrow enough, or there are `most` of them."""
    pairs, wanted = Pairs([], []), min(FIRST, most)
    for seed in range(ROUNDS):
        sides: list[dict[int, EndedEpisode]] = []
        for name, player in zip(NAMES, players, strict=True):
            ended: list[EndedEpisode] = []
            show(f"{name}: {counted(wanted, 'episode')} after {len(pairs.a):,}")
            player.play(wanted, greedy, seed=seed, ended=ended)
            sides.append({episode.number: episode for episode in ended})
        for number in sorted(sides[0].keys() & sides[1].keys()):  # an episode that failed has no pair
            for pair, side in zip(pairs, sides, strict=True):
                pair.append(side[number])
        count, half = pairs.difference.episodes, margin(pairs.difference.stderr)
        wanted = min(math.ceil(1.1 * count * (half / enough) ** 2), most) - count
        if half <= enough or wanted <= 0:
            break
    return pairs


def sentence(names: tuple[str, ...], pairs: Pairs, unit: str, enough: float) -> str:
    """What B does otherwise, what it earns by that, and how sure that is."""
    mean, half, doing = pairs.difference.mean, margin(pairs.difference.stderr), "against A"
    if names and all(episode.actions for side in pairs for episode in side):
        action = max(range(len(names)), key=lambda each: abs(pairs.shares(each)[1] - pairs.shares(each)[0]))
        before, after = pairs.shares(action)
        more = "as A never does"
        if before:
            more = f"{abs(after / before - 1):.0%} {'more' if after > before else 'less'} often"
        doing = f"takes {names[action]} {more}" if before != after else "takes each action as often as A"
    chance = ", which may be chance" if abs(mean) <= half else ""
    wide = f"; not yet ± {enough:.3g}, --episodes plays more" if half > enough else ""
    found = with_unit(f"{signed(mean)} ± {half:,.3f}", unit)
    return f"B {doing}: {found}{chance} (95 %, {counted(len(pairs.a), 'pair')} of episodes on the same seeds{wide})."


def mapped(player: Player) -> MappedPolicy | None:
    """The policy on its agent's map; None: there is none, or the policy cannot be evaluated on it."""
    from llamagym_tui.trainer.probes.policy_map import PolicyMapper

    found: dict[type, Any] = {}
    mapper = PolicyMapper(player.agent, player.policy, lambda event: found.update({type(event): event}), time.monotonic)
    player.policy.generation = player.config.generation
    mapper.lay_out()
    mapper.watch(on=True)
    mapper.map(player.prompt, 0, 0, should_stop=lambda: False)
    return MappedPolicy(found[PolicyMapLaidOut], found[PolicyMapped]) if PolicyMapped in found else None


def side_by_side(a: MappedPolicy, b: MappedPolicy) -> Iterator[str]:
    """The likeliest actions of both, panel by panel, and those of B that are others."""
    signs = a.layout.signs
    for number, panel in enumerate(a.layout.panels):
        names = max(len(panel.title), *map(len, panel.rows))
        wide = 2 * len(panel.columns)
        yield f"\n{panel.title:<{names}}  {'A':<{wide}}  {'B':<{wide}}  B where it differs"
        for row, label in enumerate(panel.rows):
            rows = ["", "", ""]
            for column in range(len(panel.columns)):
                cells = [policy.cells.get(Spot(number, row, column)) for policy in (a, b)]
                both = [" " if cell is None else cell.cell.sign or signs[cell.choice or 0] for cell in cells]
                other = both[1] if both[0] != both[1] else "·"
                rows = [f"{line}{sign} " for line, sign in zip(rows, [*both, other], strict=True)]
            yield "  ".join([label.rjust(names), *rows])
