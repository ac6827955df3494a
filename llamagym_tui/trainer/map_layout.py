"""A policy map as plain records: the agent's states in words, and the best actions in each. It needs no model."""

from collections.abc import Callable, Sequence
from typing import Any

from llamagym_tui.game.agent_base import AgentBase
from llamagym_tui.game.observed import NO_INFO, expert_action, observation_text
from llamagym_tui.game.pictures import Landmark, Move, Panel, PolicyMap
from llamagym_tui.protocol.events import PolicyMapLaidOut
from llamagym_tui.protocol.map_layout import MapCell, MapPanel

MOST_STATES = 2_000
MOST_CHARACTERS = 200_000
"""Characters of all states together, at most."""


def lay_out(agent: AgentBase, policy_map: PolicyMap) -> PolicyMapLaidOut:
    """A map as plain records; raises ValueError, with the reason, if it cannot be drawn."""
    names = list(agent.action_names)
    signs = [str(sign) for sign in policy_map.signs] or _signs(names)
    if len(signs) != len(names) or any(len(sign) != 1 for sign in signs):
        raise ValueError(f"signs needs one character for each of {len(names)} actions")
    if policy_map.action is not None and policy_map.action not in range(len(names)):
        raise ValueError(f"there is no action {policy_map.action!r}")
    panels = [_panel(agent, panel, policy_map.best, len(names)) for panel in policy_map.panels]
    words = state_texts(panels)
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
        shows_one=bool(policy_map.shows_one),
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
    action_of_field = None
    if isinstance(state, Move):
        state, action_of_field = state
    if best is not None:
        found = [int(action) for action in best(state)]
    else:
        action = expert_action(agent, state, NO_INFO, None)
        found = [] if action is None else [int(action)]
    named = found if action_of_field is None else [*found, action_of_field]
    if not all(action in range(actions) for action in named):
        raise ValueError(f"the actions {named} are not all among {actions}")
    return MapCell(
        words=observation_text(agent, state, NO_INFO),
        action=action_of_field,
        best=found,
        has_wall=has_wall,
    )


def _signs(names: Sequence[str]) -> list[str]:
    """First letters, if they differ; else numbers, as far as one character goes."""
    letters = [name[:1].upper() for name in names]
    if len(set(letters)) == len(names) and all(letters):
        return letters
    return ["0123456789abcdefghijklmnopqrstuvwxyz"[index % 36] for index in range(len(names))]


def state_texts(panels: Sequence[MapPanel]) -> list[str]:
    """Text of each state once, panel by panel, row by row."""
    rows = [row for panel in panels for row in panel.cells]
    return [*dict.fromkeys(cell.words for row in rows for cell in row if cell.is_state)]
