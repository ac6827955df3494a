"""A model behind an endpoint in the place of a policy: it plays episodes by text alone, and is evaluated."""

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial

from llamagym_tui.demos.demonstration import PlayedTurn, conversation
from llamagym_tui.game.chat import Conversation, user
from llamagym_tui.game.endpoint import Endpoint
from llamagym_tui.game.environment import (
    agent_env,
    episode_seed,
    evaluated_agent,
    turn_limit,
)
from llamagym_tui.game.game import EpisodeFault, Game, require_finite
from llamagym_tui.game.observed import Observed
from llamagym_tui.protocol.events import EvaluationFinished
from llamagym_tui.settings import RunConfig
from llamagym_tui.settings.run import turns_kept
from llamagym_tui.setup import catalog
from llamagym_tui.trainer.builders import EVALUATION_SEED
from llamagym_tui.trainer.rollout.episode_counts import EpisodeCounts, evaluated
from llamagym_tui.trainer.rollout.failures import Failures, Notices


@dataclass(slots=True, eq=False)
class Table:
    """A game, and the endpoint's episode in it."""

    game: Game
    seed: int
    counts: EpisodeCounts
    shown: Observed
    """The state that awaits a reply."""
    turns: list[PlayedTurn]


class EndpointPlayer:
    """As `Player`, with replies from an endpoint; to be closed."""

    def __init__(self, config: RunConfig, notify: Callable[[str], None]) -> None:
        """Connect to the endpoint that a configuration names as its model; `notify` gets sentences for people."""
        self.config = config
        self.agent = evaluated_agent(catalog.player(catalog.agent_of(config)))
        prompt = config.system_prompt
        self.prompt = self.agent.get_system_prompt() if prompt is None else prompt
        self._history = turns_kept(config.history, self.agent.history)
        self._warn = lambda sentence: notify(f"warning: {sentence}")
        self._notices = Notices(self.agent, self._warn)
        self.endpoint = Endpoint(config.model)

    def close(self) -> None:
        self.endpoint.close()

    def play(
        self,
        episodes: int,
        greedy: bool,
        progress: Callable[[int], None] = lambda done: None,
    ) -> EvaluationFinished:
        """Play episodes on the seeds of an evaluation, and evaluate them; `progress` gets the number that has ended.

        A dropped episode is replaced by one of a later number.

        Raises:
            EnvError: the environment cannot be made, or too many episodes in a row were dropped.
            GeneratorError: a reply does not come.
        """
        began = time.monotonic()
        failures = Failures(self.config.max_failures, self._warn)
        ended: list[EpisodeCounts] = []
        started = 0
        with ExitStack() as stack:
            idle = []
            for _ in range(min(self.config.n_envs, episodes)):
                idle.append(Game(self.agent, partial(agent_env, self.agent)))
                stack.callback(idle[-1].close)
            playing: list[Table] = []
            while len(ended) < episodes:
                while idle and len(ended) + len(playing) < episodes:
                    game = idle.pop()
                    try:
                        playing.append(self._table(game, started))
                    except EpisodeFault as fault:
                        game.is_broken = True
                        idle.append(game)
                        failures.add(started, f"Episode {started:,}", fault)
                    started += 1
                texts = self._replies(playing, greedy=greedy)
                for table, text in list(zip(playing, texts, strict=True)):
                    is_over = True
                    try:
                        is_over = self._turn(table, text)
                        if is_over:
                            ended.append(table.counts)
                            progress(len(ended))
                    except EpisodeFault as fault:
                        table.game.is_broken = True
                        failures.add(table.counts.number, f"Episode {table.counts.number:,}", fault)
                    if is_over:
                        playing.remove(table)
                        idle.append(table.game)
        return evaluated(
            ended,
            greedy=greedy,
            elapsed_s=time.monotonic() - began,
            dropped=failures.dropped,
        )

    def _table(self, game: Game, number: int) -> Table:
        seed = episode_seed(EVALUATION_SEED + self.config.seed, number)
        game.reset(seed)
        counts = EpisodeCounts(mode="inference", number=number)
        return Table(game, seed, counts, game.look(), [])

    def _replies(self, tables: list[Table], *, greedy: bool) -> list[str]:
        generation = self.config.generation
        return self.endpoint.replies(
            [self._conversation(table) for table in tables],
            [table.seed + table.counts.length for table in tables],
            max_tokens=generation.max_new_tokens,
            temperature=0.0 if greedy else generation.temperature,
        )

    def _conversation(self, table: Table) -> Conversation:
        first = 0 if self._history is None else max(0, len(table.turns) - self._history)
        return [*conversation(self.prompt, table.turns[first:]), user(table.shown.text)]

    def _turn(self, table: Table, text: str) -> bool:
        """Play a reply; true if that ended the episode."""
        agent = self.agent
        game = table.game
        before = table.counts
        shown = table.shown
        reading = agent.read(text)
        self._notices.of_reading(text, reading)
        action = agent.fallback_action if reading.failed else reading.action
        outcome = game.step(action, is_fallback=reading.failed)
        total = before.episode_return + outcome.reward
        require_finite(agent, total, outcome.reward)
        table.turns.append(PlayedTurn(shown.text, shown.actions, text, action, outcome.reward))
        table.shown = game.look()
        limit = self.config.max_turns or turn_limit(game.env)
        length = before.length + 1
        is_cut = not outcome.is_over and length >= limit
        table.counts = replace(
            before,
            episode_return=total,
            length=length,
            parse_failures=before.parse_failures + int(reading.failed),
            refusals=before.refusals + int(outcome.is_refused and not reading.failed),
            is_truncated=(is_cut or outcome.truncated) and not outcome.terminated,
        )
        if is_cut:
            self._notices.of_cut(f"after {limit:,} turns: --set max_turns=N sets another number")
        return is_cut or outcome.is_over
