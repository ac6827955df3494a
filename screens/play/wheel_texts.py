"""What stands around the wheel, as text: who acts, what the agent would say, the actions on their keys."""

from __future__ import annotations

from textual.content import Content
from textual.style import Style

from llamagym_tui.protocol.commands import LetGo
from llamagym_tui.screens.widgets.key_bar import KeyOf
from llamagym_tui.screens.widgets.literal import literal, one_line
from llamagym_tui.screens.widgets.run_header import PHASES
from llamagym_tui.state.run import RunState

ASIDE = "$foreground 60%"
BADGE = "bold $background on $warning"
MOST_SAID = 240
"""Characters of the agent's reply that are told; the conversation tells it whole."""


def header_text(state: RunState, width: int) -> Content:
    """Who acts, and where, in a row; of what the others do only if there is room.

    Args:
        state: of the run.
        width: cells of the row.
    """
    wheel = state.wheel
    if wheel.taken is None:
        return Content.assemble((" THE WHEEL IS ASKED FOR ", BADGE), (" you act from the next turn on", ASIDE))
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
    """What the agent would do in the turn that waits, or what is waited for."""
    awaited = state.wheel.awaited
    if awaited is None:
        return Content.styled(_waiting_for(state), ASIDE)
    action = one_line(awaited.action_name) or "no action in it: the fallback"
    said = one_line(awaited.reply[:MOST_SAID]) or "(nothing)"
    said += " …" if len(awaited.reply) > MOST_SAID else ""
    return Content.assemble(("The agent would choose ", ASIDE), (action, "bold"), (f", saying: {said}", ASIDE))


def choices_text(state: RunState, key: KeyOf, *, writing: bool) -> Content:
    """The actions on their keys, dim while it is not the person's turn, and what a key does.

    Args:
        state: of the run.
        key: tells the key of a binding, from its id and the usual one.
        writing: whether a sentence is being written.
    """
    wheel = state.wheel
    row = Content("")
    for index, choice in enumerate(wheel.taken.choices if wheel.taken else ()):
        chosen = wheel.acted is not None and wheel.acted.action == choice.action
        name = f" ▶ {one_line(choice.name)} ◀" if chosen else f" {one_line(choice.name)}"
        cell = Content.assemble((f" {literal(choice.key)} ", "bold reverse"), (name, "bold" if chosen else ""))
        row += ("   " if row else "") + cell.stylize(Style.from_meta({"@click": f"screen.choose({index})"}))
    if not wheel.is_persons_turn:
        row = row.stylize("dim")
    return Content("\n").join([row, Content.styled(_what_now(state, key, writing), ASIDE)])


def _what_now(state: RunState, key: KeyOf, writing: bool) -> str:
    let_go = f"{key('wheel.let_go', 'escape')} lets go"
    if writing:
        return f"write why; after {key('wheel.done', 'enter')} a key takes its action at once"
    if state.phase == "paused":
        return f"Paused: {key('wheel.resume', 'space')} goes on."
    if state.wheel.is_persons_turn:
        return f"a key takes its action at once · {key('wheel.reason', 'tab')} says why first · {let_go}"
    if state.wheel.acted is not None:
        return "taken …"
    return let_go


def _waiting_for(state: RunState) -> str:
    if state.wheel.taken is None:
        return f"The trainer is asked: {_doing(state)} …"
    if state.phase == "rolling_out":
        return "The other environments of the batch play on …"
    return f"{_doing(state)} …"


def _doing(state: RunState) -> str:
    return f"{PHASES[state.phase]} {one_line(state.detail)}".strip()
