"""The policy map of a run: the agent's states laid out once, and the policy scored on all of them now and then.

Maps take `SHARES` of the time since the last one. What is longer is given up between two pieces, unless somebody looks.
"""

import logging
import math
from collections.abc import Callable, Sequence
from typing import Any

from llamagym_tui.engine.own_torch import own_torch
from llamagym_tui.engine.policy.decisions import probabilities_of_actions
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.errors import RAISED, described
from llamagym_tui.game.agent_base import AgentBase
from llamagym_tui.game.observed import NO_INFO, expert_action, observation_text
from llamagym_tui.game.pictures import Landmark, Panel, PolicyMap
from llamagym_tui.protocol.events import (
    PolicyMapLaidOut,
    PolicyMapped,
    PolicyMapWatched,
)
from llamagym_tui.protocol.map_layout import MapCell, MapPanel
from llamagym_tui.settings import GenerationConfig
from llamagym_tui.trainer.event_sinks import Sink

REST_S = {True: 1.0, False: 10.0}
"""Seconds between two maps at least: while somebody looks, and while nobody does."""
SHARES = {True: 0.25, False: 0.03}
"""Share of the time that maps may take."""
CHEAP_S = 2.0
"""Seconds that a map may take whoever looks."""
AT_ONCE = 64
"""States in one piece; between two of them the map can be given up."""
MOST_STATES = 2_000
MOST_CHARACTERS = 200_000
"""Characters that the texts of all states have together, at most."""
Progress = Callable[[int, int], None]
"""Is told how much is done, and of how much."""
log = logging.getLogger(__name__)


class _GivenUp(Exception):
    """A map is not computed to its end."""


class PolicyMapper:
    """Action probabilities in the states of the agent's map."""

    def __init__(
        self,
        agent: AgentBase,
        policy: Policy,
        emit: Sink,
        clock: Callable[[], float],
        progress: Callable[[str], Progress] = lambda doing: lambda done, total: None,
    ) -> None:
        """A map that was not laid out; `progress` begins to report something long, by its name."""
        self._progress = progress
        self._should_stop: Callable[[], bool] | None = None
        """Gives up the map that is being computed; None: no map is."""
        self._agent = agent
        self._policy = policy
        self._emit = emit
        self._clock = clock
        self._states: list[str] = []
        """Text of each state, panel by panel, row by row."""
        self._watched = False
        """Somebody looks at the map."""
        self._ended_at: float | None = None
        """When the last map was emitted or given up. None: one is due."""
        self._took_s = 0.0
        """Seconds that the last map took, or would have taken."""
        self._version = -1
        """The policy's version when the last map was made."""
        self._conditions: tuple[GenerationConfig, int] | None = None
        """Sampling and version of the prompt of the last map. None: no map was made."""

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
        except RAISED as error:  # a user's own code
            laid_out = PolicyMapLaidOut(
                why_not=f"{type(self._agent).__name__}.policy_map failed: {described(error)}."
            )
        self._states = [
            cell.words
            for panel in laid_out.panels
            for row in panel.cells
            for cell in row
            if cell.is_state
        ]
        self._emit(laid_out)

    def watch(self, *, on: bool) -> None:
        """Follow the policy closely from now on, or no longer; who begins to look gets a map at once."""
        self._watched = on
        if on and self._took_s > CHEAP_S:
            self._ended_at = None
        self._emit(PolicyMapWatched(on=on))

    @property
    def is_known_as_cheap(self) -> bool:
        """A map was made, and took no time that somebody would notice."""
        return self._conditions is not None and self._took_s <= CHEAP_S

    def forget(self) -> None:
        """Make the next map due, unless one takes long and nobody looks."""
        if self._watched or self._took_s <= CHEAP_S:
            self._ended_at = None

    def map(
        self,
        system_prompt: str,
        prompt_version: int,
        update: int,
        *,
        should_stop: Callable[[], bool],
        at_once: bool = False,
    ) -> None:
        """Emit a map if one is due and would not be the last one again.

        Args:
            should_stop: asked before the first piece and between two; the map is given up then.
            at_once: there is nothing else to do.
        """
        conditions = (self._policy.generation, prompt_version)
        are_same = conditions == self._conditions
        if not self._states or (are_same and self._policy.version == self._version):
            return
        is_of_edit = self._conditions is not None and prompt_version != self._conditions[1]
        if at_once or not are_same:
            self.forget()
        began_at = self._clock()
        since_s = math.inf if self._ended_at is None else began_at - self._ended_at
        share = SHARES[self._watched]
        is_due = since_s >= max(REST_S[self._watched], self._took_s / share)
        if not (is_of_edit or is_due) or should_stop():
            return
        longest_s = CHEAP_S
        if self._watched or is_of_edit:
            longest_s = math.inf
        elif math.isfinite(since_s):
            longest_s = max(CHEAP_S, share * since_s)
        self._should_stop = lambda: should_stop() or self._clock() - began_at > longest_s
        try:
            shares = self._shares(system_prompt, began_at)
        except _GivenUp:
            return
        except Exception as error:
            # Its states are not the run's: memory may be short for them alone.
            log.exception("the policy map is given up")
            self._states = []
            self._emit(
                PolicyMapLaidOut(why_not=f"The map is given up: {type(error).__name__}: {error}.")
            )
            return
        finally:
            self._should_stop = None
            self._ended_at = self._clock()
        self._version = self._policy.version
        self._conditions = conditions
        self._emit(PolicyMapped(update=update, prompt_version=prompt_version, shares=shares))

    def _shares(self, system_prompt: str, began_at: float) -> list[list[float]]:
        """`probabilities` of all states, piece by piece. Raises _GivenUp: that takes too long."""
        whole = len(self._states)
        report = self._progress("computing the policy map")
        shares: list[list[float]] = []
        for start in range(0, whole, AT_ONCE):
            if start:
                self.go_on()
            shares += self.probabilities(system_prompt, self._states[start : start + AT_ONCE])
            self._took_s = (self._clock() - began_at) * whole / len(shares)
            report(len(shares), whole)
        return shares

    def go_on(self) -> bool:
        """True if a map is being computed. Raises: it is to be given up."""
        if self._should_stop is None:
            return False
        if self._should_stop():
            raise _GivenUp
        return True

    def under(self, system_prompt: str, prompt_version: int, update: int) -> list[PolicyMapped]:
        """The map under a prompt, whatever it costs; empty: there is none."""
        if not self._states:
            return []
        try:
            shares = self.probabilities(system_prompt, self._states)
        except Exception:  # its forward is not the run's: memory may be short for it alone
            log.exception("no policy map under a prompt")
            return []
        return [PolicyMapped(update=update, prompt_version=prompt_version, shares=shares)]

    @own_torch()
    def probabilities(self, system_prompt: str, states: Sequence[str]) -> list[list[float]]:
        """Probability of each action in each state, to four digits."""
        prompts = [self._policy.chat.opening(system_prompt, words) for words in states]
        found = probabilities_of_actions(self._policy, prompts)
        return [[float(f"{share:.4g}") for share in row] for row in found]


def lay_out(agent: AgentBase, policy_map: PolicyMap) -> PolicyMapLaidOut:
    """A map as plain records; raises ValueError, with the reason, if it cannot be drawn."""
    names = list(agent.action_names)
    signs = [str(sign) for sign in policy_map.signs] or _signs(names)
    if len(signs) != len(names) or any(len(sign) != 1 for sign in signs):
        raise ValueError(f"signs needs one character for each of {len(names)} actions")
    if policy_map.action is not None and policy_map.action not in range(len(names)):
        raise ValueError(f"there is no action {policy_map.action!r}")
    panels = [_panel(agent, panel, policy_map.best, len(names)) for panel in policy_map.panels]
    words = [cell.words for panel in panels for row in panel.cells for cell in row if cell.is_state]
    if not 1 <= len(words) <= MOST_STATES or sum(map(len, words)) > MOST_CHARACTERS:
        raise ValueError(
            f"a map has 1 to {MOST_STATES:,} states in {MOST_CHARACTERS:,} characters at most"
        )
    is_optimal = policy_map.best is not None or "optimal" in agent.baselines
    return PolicyMapLaidOut(
        panels=panels,
        action_names=names,
        signs=signs,
        action=policy_map.action,
        best_is_experts=not is_optimal,
        like=str(policy_map.like),
        noun=str(policy_map.noun),
    )


def _panel(
    agent: AgentBase, panel: Panel, best: Callable[[Any], Any] | None, actions: int
) -> MapPanel:
    walls = {(int(row), int(column)) for row, column in panel.walls}
    cells = [
        [
            _cell(agent, state, best, actions, has_wall=(row, column) in walls)
            for column, state in enumerate(states)
        ]
        for row, states in enumerate(panel.states)
    ]
    if len(cells) != len(panel.rows) or any(len(row) != len(panel.columns) for row in cells):
        raise ValueError(
            f"panel {panel.title!r} needs {len(panel.rows)} rows of {len(panel.columns)} states"
        )
    return MapPanel(
        title=str(panel.title),
        row_name=str(panel.row_name),
        column_name=str(panel.column_name),
        rows=[str(label) for label in panel.rows],
        columns=[str(label) for label in panel.columns],
        cells=cells,
    )


def _cell(
    agent: AgentBase,
    state: Any,
    best: Callable[[Any], Any] | None,
    actions: int,
    *,
    has_wall: bool,
) -> MapCell:
    if state is None:
        return MapCell(has_wall=has_wall)
    if isinstance(state, Landmark):
        return MapCell(
            words=state.name or "nothing",
            sign=(state.sign or "?")[:1],
            ground=str(state.ground),
            has_wall=has_wall,
        )
    if best is not None:
        found = [int(action) for action in best(state)]
    else:
        action = expert_action(agent, state, NO_INFO, None)
        found = [] if action is None else [int(action)]
    if not all(action in range(actions) for action in found):
        raise ValueError(f"the best actions {found} are not all among {actions}")
    return MapCell(words=observation_text(agent, state, NO_INFO), best=found, has_wall=has_wall)


def _signs(names: Sequence[str]) -> list[str]:
    """First letters, if they differ; else numbers, as far as one character goes."""
    letters = [name[:1].upper() for name in names]
    if len(set(letters)) == len(names) and all(letters):
        return letters
    return ["0123456789abcdefghijklmnopqrstuvwxyz"[index % 36] for index in range(len(names))]
