"""The policy map of a run: the agent's states laid out once, and the policy scored on all of them again and again.

States are scored in slices between two turns, so a model that reads slowly plays on meanwhile. The first map under a
prompt is read by count, because the run's memory keeps what it reads: a seeded run then reads the same prompts in the
same batches, and learns the same to the bit. It is emitted slice by slice. Later maps are emitted whole: where a model
scores them fast, one after each update of the first minute, when most changes, and one a second after that. If weights
move before a map is whole, its states are of several updates, and another map follows.
"""

import logging
import math
from collections.abc import Callable, Collection, Sequence
from typing import Any

from llamagym_tui.engine.own_torch import own_torch
from llamagym_tui.engine.policy.decisions import probabilities_of_actions
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.errors import RAISED, described
from llamagym_tui.game.agent_base import AgentBase
from llamagym_tui.game.observed import names_by_turn
from llamagym_tui.game.pictures import Landmark, PolicyMap
from llamagym_tui.protocol.events import Event, PolicyMapLaidOut, PolicyMapped, WarningRaised
from llamagym_tui.settings import GenerationConfig
from llamagym_tui.trainer.map_layout import lay_out, state_texts

FIRST_S = 60.0
"""Seconds under a prompt in which each update is mapped."""
FIRST_SHARE = 0.1
"""Share of that time that maps may take."""
REST_S = 1.0
"""Seconds between two maps at least, after that."""
SHARE = 0.05
"""Share of the time that maps may take then."""
FIRST_SLICE = 64
"""States of the first map under a prompt that are scored between two turns."""
SLICE_S = 0.5
"""Seconds after which the rest of a later map waits for the next turn."""
CHEAP_S = 2.0
"""Seconds of a map that nobody notices."""
AT_ONCE = 16
"""States in one piece."""
MOST_OTHER = 0.01
"""Probability of replies in other words, up to which a mean return is computed; they may name an action as well."""
log = logging.getLogger(__name__)


class PolicyMapper:
    """Action probabilities in the states of the agent's map."""

    def __init__(
        self,
        agent: AgentBase,
        policy: Policy,
        emit: Callable[[Event], object],
        clock: Callable[[], float],
        *,
        turns: int | None = None,
    ) -> None:
        """A mapper of an agent's policy.

        Args:
            turns: after which an episode is cut off. None: episodes are not worded as the map is.
        """
        self._agent = agent
        self._policy = policy
        self._emit = emit
        self._clock = clock
        self._turns = turns
        self._states: list[str] = []
        """Text of each state, panel by panel, row by row."""
        self._observations: list[Any] = []
        """The states themselves; empty: the agent computes no mean return from them."""
        self._possible: list[Collection[int]] = []
        """The actions that can be taken in each state; empty: all of them."""
        self._conditions: tuple[GenerationConfig, int] | None = None
        """Sampling and version of the prompt of the last map. None: no map was begun."""
        self._version: int | None = None
        """The policy's version in the last whole map. None: there is none under these conditions."""
        self._begun_by: int | None = None
        """The policy's version at the beginning of the map under way."""
        self._shares: list[list[float]] = []
        """The map under way."""
        self._took_s = 0.0
        """Seconds that the map under way has taken."""
        self._next_at = -math.inf
        """When to go on, by the clock."""
        self._first_until = math.inf
        """The end of the first minute under these conditions, by the clock."""
        self.is_cheap = False
        """The last map took no time that anybody noticed."""
        self.reads_fast = False
        """Nor did the last first one under a prompt, for which the model reads new prompts."""

    def lay_out(self) -> None:
        """Emit the layout; nothing, if the agent has no map."""
        try:
            policy_map = self._agent.policy_map()
            if policy_map is None:
                return
            laid_out = lay_out(self._agent, policy_map)
            if not self._policy.trie:
                laid_out = PolicyMapLaidOut(
                    why_not="This agent names no discrete actions, so none can be mapped."
                )
            elif _is_played_as_mapped(self._agent):
                self._observations = _observations(policy_map)
            if policy_map.possible is not None:
                self._possible = [*map(policy_map.possible, _observations(policy_map))]
        except RAISED as error:  # a user's own code
            laid_out = PolicyMapLaidOut(
                why_not=f"{type(self._agent).__name__}.policy_map failed: {described(error)}."
            )
        self._states = state_texts(laid_out.panels)
        self._emit(laid_out)

    def begin_again(self) -> None:
        """Drop the map under way, and make the next one due."""
        self._conditions = None
        self._version = None
        self._shares = []
        self._took_s = 0.0
        self._next_at = -math.inf
        self._first_until = math.inf

    def map(
        self,
        system_prompt: str,
        prompt_version: int,
        update: int,
        *,
        should_stop: Callable[[], bool],
        at_once: bool = False,
    ) -> None:
        """Score states if that is due, and emit the map once it is whole; the first one as far as it is.

        Args:
            should_stop: asked before each piece; the rest is scored by a later call.
            at_once: score all states now, due or not.
        """
        conditions = (self._policy.generation, prompt_version)
        if conditions != self._conditions:
            self.begin_again()
            self._conditions = conditions
        began_at = self._clock()
        is_known = not self._shares and self._policy.version == self._version
        is_due = at_once or began_at >= self._next_at
        if not self._states or is_known or not is_due:
            return
        if not self._shares:
            self._begun_by = self._policy.version
        is_first = self._version is None
        most = len(self._states)
        until = math.inf
        if is_first and not at_once:
            most = min(most, len(self._shares) + FIRST_SLICE)
        elif not at_once:
            until = began_at + SLICE_S
        try:
            while len(self._shares) < most:
                if should_stop() or self._clock() >= until:
                    break
                start = len(self._shares)
                piece = self._states[start : start + AT_ONCE]
                self._shares += self.probabilities(system_prompt, piece)
        except Exception as error:
            # Its states are not the run's: memory may be short for them alone.
            log.exception("the policy map is given up")
            self._states = []
            self._emit(
                PolicyMapLaidOut(why_not=f"The map is given up: {type(error).__name__}: {error}.")
            )
            return
        now = self._clock()
        self._took_s += now - began_at
        shares = list(self._shares)
        is_whole = len(shares) == len(self._states)
        if is_whole and is_first:
            self._first_until = now + FIRST_S
        is_early = now < self._first_until
        if is_whole or not is_first:
            share = FIRST_SHARE if is_early else SHARE
            took_s = now - began_at
            if is_first and self._policy.narrow is not None:
                took_s = 0.0  # the next one finds its prompts read
            self._next_at = now + took_s * (1 / share - 1)
        if is_whole:
            self.is_cheap = self._took_s <= CHEAP_S
            if is_first:
                self.reads_fast = self.is_cheap
            if not is_early:
                self._next_at = max(self._next_at, now + REST_S)
            self._version = self._begun_by
            self._shares = []
            self._took_s = 0.0
        if is_whole or (is_first and shares):
            self._emit(self._mapped(shares, prompt_version, update))

    def under(self, system_prompt: str, prompt_version: int, update: int) -> list[PolicyMapped]:
        """The map under a prompt, whatever it costs; empty: there is none."""
        if not self._states:
            return []
        try:
            shares = self.probabilities(system_prompt, self._states)
        except Exception:  # its forward is not the run's: memory may be short for it alone
            log.exception("no policy map under a prompt")
            return []
        return [self._mapped(shares, prompt_version, update)]

    def _mapped(self, shares: list[list[float]], prompt_version: int, update: int) -> PolicyMapped:
        if self._possible and self._policy.generation.policy == "score":
            # Among fewer actions the probabilities of a policy that scores them keep their ratios.
            shares = [*map(_among, shares, self._possible)]
        return PolicyMapped(
            update=update, prompt_version=prompt_version, shares=shares, value=self._value(shares)
        )

    def _value(self, shares: Sequence[Sequence[float]]) -> float | None:
        """The exact mean return; None: the map is not whole, or the policy plays otherwise than on it.

        A policy that has earlier turns in its prompt may do so in every turn but the first.
        """
        is_whole = len(shares) == len(self._observations)
        if self._turns is None or not is_whole or self._policy.history != 0:
            return None
        others = [max(0.0, 1 - sum(row)) for row in shares]
        if max(others) > MOST_OTHER:
            return None
        fallback = self._agent.fallback_action
        try:
            played = {}
            for state, row, other in zip(self._observations, shares, others, strict=True):
                played[state] = [*row]
                played[state][fallback] += other
            return self._agent.mean_return(played, self._turns)
        except RAISED as error:  # a user's own code
            self._observations = []
            where = f"{type(self._agent).__name__}.mean_return"
            self._emit(
                WarningRaised(message=f"{where} failed: {described(error)}; it is not asked again.")
            )
            return None

    @own_torch()
    def probabilities(self, system_prompt: str, states: Sequence[str]) -> list[list[float]]:
        """Probability of each action in each state, to four digits."""
        prompts = [self._policy.chat.opening(system_prompt, words) for words in states]
        found = probabilities_of_actions(self._policy, prompts)
        return [[float(f"{share:.4g}") for share in row] for row in found]


def _among(shares: Sequence[float], possible: Collection[int]) -> list[float]:
    """The probabilities of all actions, where some cannot be taken."""
    kept = [share if action in possible else 0.0 for action, share in enumerate(shares)]
    total = sum(kept)
    return [share / total for share in kept] if total else kept


def _observations(policy_map: PolicyMap) -> list[Any]:
    """The states in the same order."""
    rows = [row for panel in policy_map.panels for row in panel.states]
    cells = [state for row in rows for state in row]
    return [state for state in cells if state is not None and not isinstance(state, Landmark)]


def _is_played_as_mapped(agent: AgentBase) -> bool:
    """True if an agent plays its environment as it is, with all actions in each turn."""
    is_wrapped = type(agent).wrap_env is not AgentBase.wrap_env or agent.action_repeat != 1
    falls_back = agent.fallback_action in range(len(agent.action_names))
    return falls_back and not is_wrapped and not names_by_turn(agent)
