"""`eval`, `compare` and `match` without a screen: models that play and are measured.

Stdout has the result alone. Progress goes to stderr; what libraries print goes nowhere, or with ``--debug`` to stderr.
"""

import math
import sys
import time
from collections.abc import Sequence
from functools import partial
from typing import Any, Self

import msgspec

from llamagym_tui.cli.progress import Progress, quiet_progress
from llamagym_tui.demos.human_game import MATCH
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.errors import UsageError
from llamagym_tui.protocol import events
from llamagym_tui.protocol.literal import echo, echo_json
from llamagym_tui.runs import model_registry
from llamagym_tui.screens.play.classroom import ClassRecord
from llamagym_tui.settings import RunConfig
from llamagym_tui.setup import catalog
from llamagym_tui.state.prompts import words
from llamagym_tui.state.returns import counted, evaluated_return, mean_return, with_unit
from llamagym_tui.state.texts import compared_text, unread_text
from llamagym_tui.trainer.builders import EVALUATION_SEED, Builders
from llamagym_tui.trainer.evaluations import returns_by_number
from llamagym_tui.trainer.rollout.episode_counts import EpisodeCounts
from llamagym_tui.trainer.rollout.evaluation import Pairs, compared, enough_for, played


class Player:
    """A policy that plays under a prompt."""

    def __init__(self, config: RunConfig, progress: Progress, other: Self | None = None) -> None:
        """Load what a configuration names, except for a model that the `other` player has loaded."""
        self._builders = Builders(config)
        self.config = config
        self.agent = self._builders.agent()
        if other is not None and other.config.model == config.model:
            self.policy: Policy = other.policy
        elif model_registry.is_endpoint(config.model):
            self.policy = self._builders.endpoint_policy(self.agent)
        else:
            self._builders.fetch_model(progress.stage)
            progress.stage("loading the model")
            self._builders.require_memory(learns=False)
            loaded = self._builders.model()
            self.policy = self._builders.policy(self.agent, loaded)
            self._builders.threads(self.policy, loaded)
        prompt = config.system_prompt
        self.prompt = self.agent.get_system_prompt() if prompt is None else prompt
        self.play = partial(
            self._builders.evaluate,
            self.agent,
            self.policy,
            system_prompt=self.prompt,
            warn=lambda sentence: progress.notify(f"warning: {sentence}"),
        )
        """Plays episodes and evaluates them, as `Builders.evaluate`."""


def evaluate(
    config: RunConfig,
    *,
    episodes: int,
    greedy: bool,
    json_output: bool = False,
) -> None:
    """Measure the mean return of an `evaluated_config`'s model, and print it.

    Raises:
        LlamaGymError: agent or model do not load, or the environment or the endpoint failed.
    """
    with quiet_progress(episodes=episodes) as progress:
        player = Player(config, progress)
        found = player.play(episodes=episodes, greedy=greedy, progress=progress.evaluated)
    assert found is not None, "nothing stops it"
    if json_output:
        names = {"agent": catalog.agent_name(config.agent), "model": config.model}
        echo_json(names | msgspec.to_builtins(found))
        return
    refused = ""
    if found.refusal_rate:
        refused = f"{found.refusal_rate:.1%} named an action that was refused; "
    mean = with_unit(evaluated_return(found).text, player.agent.return_unit)
    echo(
        f"Mean return {mean} over {counted(found.episodes, 'episode')}, {_policy_word(greedy)}, "
        f"prompt {words(player.prompt)}; {found.parse_failure_rate:.1%} of replies named no action; "
        f"{refused}{found.elapsed_s:.0f} s."
    )


def _policy_word(greedy: bool) -> str:
    return "greedy" if greedy else "sampled"


def class_record(config: RunConfig, seats: int) -> ClassRecord:
    """Play the model's part of a class greedily, in the environment of training, as people do."""
    seed = EVALUATION_SEED + config.seed
    ended: list[EpisodeCounts] = []
    with quiet_progress(episodes=MATCH) as progress:
        player = Player(config, progress)
        found = player.play(
            episodes=MATCH,
            greedy=True,
            progress=progress.evaluated,
            seed=seed,
            ended=ended,
            held_out=False,
        )
    assert found is not None, "nothing stops it"
    returns = returns_by_number(MATCH, ended)
    return ClassRecord(
        config=msgspec.structs.replace(config, system_prompt=player.prompt),
        match=events.MatchPlayed(seed=seed, returns=returns, played=found),
        seats=seats,
        return_unit=player.agent.return_unit,
    )


def compare(
    configs: tuple[RunConfig, RunConfig],
    *,
    greedy: bool,
    half_width: float | None,
    most: int,
    json_output: bool = False,
) -> None:
    """Measure how much more B earns than A, and print it.

    Episodes are played until half the confidence interval is `half_width`, but at most `most` of each.

    Raises:
        UsageError: both are the same, one is an endpoint, or they play different games.
        LlamaGymError: agent or model do not load, or the environment failed.
    """
    config, other = configs
    if config == other:
        raise UsageError(
            "A and B are the same: give --b-model, --b-prompt-file or --b-temperature."
        )
    if any(model_registry.is_endpoint(each.model) for each in configs):
        raise UsageError(
            "`compare` needs models that are loaded; an endpoint plays in `eval`, `match` and as an opponent."
        )
    if config.env != other.env:
        raise UsageError(
            f"A and B play different games, {config.env} and {other.env}: --env NAME=VALUE sets one for both."
        )
    with quiet_progress() as progress:
        first = Player(config, progress)
        players = (first, Player(other, progress, first))
        agent = first.agent

        def play(side: int, episodes: int, seed: int, ended: list[EpisodeCounts]) -> bool:
            progress.show(f"{'AB'[side]}: {counted(episodes, 'episode')}")
            player = players[side]
            player.policy.generation = player.config.generation
            seed += EVALUATION_SEED + config.seed
            player.play(episodes=episodes, greedy=greedy, seed=seed, ended=ended)
            return True

        began_at = time.monotonic()
        enough = half_width or enough_for(agent.baselines)
        pairs: Pairs = ([], [])
        played(play, enough, most, pairs)
    found = compared(
        pairs,
        [{"system_prompt": player.prompt} for player in players],
        elapsed_s=time.monotonic() - began_at,
        greedy=greedy,
        enough=enough,
    )
    if json_output:
        names = {
            "agent": catalog.agent_name(config.agent),
            "models": [each.model for each in configs],
        }
        echo_json(names | msgspec.to_builtins(found))
        if unread := unread_text(found):
            echo(f"warning:{unread}", to=sys.stderr)
        return
    echo(compared_text(found, agent.return_unit))
    for letter, player, side in zip("AB", players, (found.a, found.b), strict=True):
        earned = with_unit(evaluated_return(side).text, agent.return_unit)
        echo(f"{letter}  {earned} · {player.config.model}, {words(player.prompt, most=60)}")


SIDES = {"player": "begins", "opponent": "comes second"}
"""A's part, by who begins."""


def match(
    config: RunConfig,
    other: str,
    *,
    episodes: int,
    greedy: bool,
    json_output: bool = False,
) -> None:
    """Play games, half of which each begins, and print how many A has won.

    Args:
        config: settings of A, which plays against B as its opponent.
        other: the name of B.
        episodes: number of games; an odd number is made even.
    """
    by_side: dict[str, list[float]] = {}
    with quiet_progress(episodes=episodes) as progress:
        player = Player(config, progress)
        for begins, side in SIDES.items():
            ended: list[EpisodeCounts] = []
            player.play(
                episodes=math.ceil(episodes / 2),
                greedy=greedy,
                progress=progress.evaluated,
                seed=EVALUATION_SEED + config.seed,
                ended=ended,
                held_out=False,
                env={"begins": begins},
            )
            by_side[side] = [each.episode_return for each in ended]
    returns = [each for side in by_side.values() for each in side]
    mean = mean_return(returns)
    assert mean is not None, "games were played"
    found = outcomes(returns)
    not_lost = 1 - found["lost"] / len(returns)
    if json_output:
        figures: dict[str, Any] = {
            "agent": catalog.agent_name(config.agent),
            "models": [config.model, other],
            "games": len(returns),
            **found,
            "not_lost": not_lost,
            "mean_return": mean.mean,
            "return_stderr": mean.stderr,
            "sides": {side: outcomes(each) for side, each in by_side.items()},
            "policy": _policy_word(greedy),
        }
        echo_json(figures)
        return
    echo(
        f"A has not lost {not_lost:.1%} of {counted(len(returns), 'game')}, {_policy_word(greedy)}: "
        f"{_outcomes_text(returns)}; mean return {mean.text}."
    )
    for side, each in by_side.items():
        echo(f"A {side}: {_outcomes_text(each)}.")
    echo(f"A  {config.model}")
    echo(f"B  {other}")


def outcomes(returns: Sequence[float]) -> dict[str, int]:
    """The numbers of games won, drawn and lost, from their returns."""
    won = sum(each > 0 for each in returns)
    lost = sum(each < 0 for each in returns)
    return {"won": won, "drawn": len(returns) - won - lost, "lost": lost}


def _outcomes_text(returns: Sequence[float]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in outcomes(returns).items())
