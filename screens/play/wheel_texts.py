"""The texts around the wheel: who acts, the reply that the agent would give, the actions on their keys."""

from collections.abc import Sequence

from textual.content import Content

from llamagym_tui.game.choices import Choice
from llamagym_tui.protocol.commands import LetGo
from llamagym_tui.protocol.literal import one_line
from llamagym_tui.screens.play.choosing import ASIDE, choices_row, how_to_choose
from llamagym_tui.screens.widgets.key_bar import KeyOf
from llamagym_tui.screens.widgets.run_header import PHASES
from llamagym_tui.state.run import RunState
from llamagym_tui.state.wheel import Wheel

BADGE = "bold $background on $warning"
MOST_SHOWN = 240
"""Characters of the agent's reply; the conversation shows the rest."""


def choices_at(wheel: Wheel) -> Sequence[Choice]:
    """What the person can do now, or could do in any turn."""
    if wheel.awaited is not None and wheel.awaited.choices:
        return wheel.awaited.choices
    return wheel.taken.choices if wheel.taken is not None else ()


def header_text(state: RunState, width: int) -> Content:
    """Who acts, and where; that the others wait only if the row has room."""
    wheel = state.wheel
    if wheel.taken is None:
        return Content.assemble((" WHEEL REQUESTED ", BADGE), (" you act from the next turn on", ASIDE))
    if isinstance(wheel.requested, LetGo):
        return Content.assemble((" LETTING GO ", BADGE), (" the agent acts again soon", ASIDE))
    where = f" · environment {wheel.taken.env + 1:,}"
    if wheel.awaited is None:
        return Content.assemble((" YOU HAVE THE WHEEL ", BADGE), " not your turn yet", (where, ASIDE))
    at = f" · episode {wheel.awaited.episode:,}, turn {wheel.awaited.turn + 1:,}"
    long, short = (
        Content.assemble((" YOU HAVE THE WHEEL ", BADGE), (turn, "bold"), (at, ASIDE))
        for turn in (" your turn, all others wait", " your turn")
    )
    return long if long.cell_length <= width else short


def agent_text(state: RunState) -> Content:
    """What the agent would do in this turn, or what the screen waits for."""
    awaited = state.wheel.awaited
    if awaited is None:
        return Content.styled(_waiting_for(state), ASIDE)
    action = one_line(awaited.action_name) or "the fallback, as its reply names no action"
    reply = one_line(awaited.reply[:MOST_SHOWN]) or "(nothing)"
    reply += " …" if len(awaited.reply) > MOST_SHOWN else ""
    return Content.assemble(("The agent would choose ", ASIDE), (action, "bold"), (f"; its reply: {reply}", ASIDE))


def choices_text(state: RunState, key: KeyOf, *, writing: bool) -> Content:
    """The actions on their keys, dim while it is not the person's turn, and what a key does."""
    wheel = state.wheel
    row = choices_row(choices_at(wheel), wheel.acted.action if wheel.acted else None)
    if not wheel.is_persons_turn:
        row = row.stylize("dim")
    return Content("\n").join([row, Content.styled(_what_now(state, key, writing), ASIDE)])


def _what_now(state: RunState, key: KeyOf, writing: bool) -> str:
    let_go = f"{key('wheel.let_go', 'escape')} lets go"
    how = how_to_choose(choices_at(state.wheel), key, "wheel", writing=writing)
    if writing:
        return how
    if state.phase == "paused":
        return f"Paused: {key('wheel.resume', 'space')} resumes."
    if state.wheel.is_persons_turn:
        return f"{how} · {let_go}"
    if state.wheel.acted is not None:
        return "taken …"
    return let_go


def _waiting_for(state: RunState) -> str:
    if state.wheel.taken is None:
        return f"Waiting for the trainer: {_doing(state)} …"
    if state.phase == "rolling_out":
        return "The other environments of the batch are playing …"
    return f"{_doing(state)} …"


def _doing(state: RunState) -> str:
    return f"{PHASES[state.phase]} {one_line(state.detail)}".strip()
