"""A model behind an endpoint in the place of a policy: evaluated, compared, or recorded as an expert."""

import time
from collections.abc import Callable, Sequence
from functools import partial

from llamagym_tui.config import RunConfig
from llamagym_tui.config.run import turns_kept
from llamagym_tui.errors import GeneratorError
from llamagym_tui.game.agent_base import AgentBase
from llamagym_tui.game.chat import Conversation
from llamagym_tui.game.endpoint import Endpoint, Tokens
from llamagym_tui.game.environment import agent_env, episode_seed, evaluated_agent
from llamagym_tui.protocol.events import EvaluationFinished
from llamagym_tui.setup import catalog
from llamagym_tui.trainer.builders import EVALUATION_SEED
from llamagym_tui.trainer.rollout.endpoint_rollout import EndpointRollout
from llamagym_tui.trainer.rollout.episode_counts import EpisodeCounts, evaluated


class EndpointPlayer:
    """As `Player`, with replies from an endpoint; to be closed."""

    def __init__(self, config: RunConfig, notify: Callable[[str], None]) -> None:
        """Find the endpoint that a configuration names as its model; `notify` gets sentences for people."""
        self.config = config
        self.agent = catalog.player(catalog.agent_of(config))
        prompt = config.system_prompt
        self.prompt = self.agent.get_system_prompt() if prompt is None else prompt
        self._notify = notify
        self._answers = 0
        self._cut = 0
        self.endpoint = Endpoint(config.model)

    def close(self) -> None:
        self.endpoint.close()

    def play(
        self,
        episodes: int,
        greedy: bool,
        shown: Callable[[int], None] = lambda done: None,
        *,
        seed: int | None = None,
        ended: list[EpisodeCounts] | None = None,
    ) -> EvaluationFinished:
        """Play episodes and evaluate them, as `Player.play` does."""
        seed = EVALUATION_SEED + self.config.seed if seed is None else seed
        rollout = self._rollout(
            evaluated_agent(self.agent), partial(episode_seed, seed), greedy=greedy
        )
        ended = [] if ended is None else ended
        began = time.monotonic()
        for played in rollout.play(episodes, self.config.n_envs):
            ended.append(played.counts)
            shown(len(ended))
        self._warn_of_cut()
        return evaluated(
            ended,
            greedy=greedy,
            elapsed_s=time.monotonic() - began,
            dropped=rollout.failures.dropped,
        )

    @property
    def tokens(self) -> Tokens:
        """Of all replies so far."""
        return self.endpoint.tokens

    def _rollout(
        self, agent: AgentBase, seed_of: Callable[[int], int], *, greedy: bool
    ) -> EndpointRollout:
        return EndpointRollout(
            agent,
            partial(self._replies, greedy=greedy),
            system_prompt=self.prompt,
            history=turns_kept(self.config.history, agent.history),
            seed_of=seed_of,
            max_turns=self.config.max_turns,
            max_failures=self.config.max_failures,
            make_env=partial(agent_env, agent),
            warn=self._warn,
        )

    def _replies(
        self, conversations: Sequence[Conversation], seeds: Sequence[int], *, greedy: bool
    ) -> list[str | GeneratorError]:
        generation = self.config.generation
        answers = self.endpoint.replies(
            conversations,
            seeds,
            max_tokens=generation.max_new_tokens,
            temperature=0.0 if greedy else generation.temperature,
        )
        texts: list[str | GeneratorError] = []
        for answer in answers:
            if isinstance(answer, GeneratorError):
                texts.append(answer)
                continue
            self._answers += 1
            self._cut += answer.is_cut
            texts.append(answer.text)
        return texts

    def _warn(self, sentence: str) -> None:
        self._notify(f"warning: {sentence}")

    def _warn_of_cut(self) -> None:
        if self._cut:
            self._warn(
                f"{self._cut:,} of {self._answers:,} replies ended at "
                f"{self.config.generation.max_new_tokens:,} tokens, the most that they may have: "
                "--set generation.max_new_tokens=N allows more."
            )
            self._answers = 0
            self._cut = 0
