"""The top row: mode, agent, model, phase and speed of a run; and the base of all lines about a run."""

from collections.abc import Callable
from pathlib import PurePath
from typing import get_args

from textual.content import Content
from textual.widget import Widget

from llamagym_tui.protocol.commands import Pause, Resume
from llamagym_tui.protocol.events import Phase
from llamagym_tui.protocol.literal import one_line
from llamagym_tui.screens.widgets.look import ASIDE
from llamagym_tui.settings import Mode
from llamagym_tui.state.run import RunState

TextOf = Callable[[RunState, int], Content]
"""A text about a run, for a width; empty while there is nothing to tell."""


class StateText(Widget):
    """A text about a run, hidden while it is empty, and painted again only when it or its size changes."""

    def __init__(self, text: TextOf, state: RunState, *, id: str) -> None:
        super().__init__(id=id)
        self.state = state
        self._text = text
        self._painted = Content()

    def show(self, state: RunState) -> None:
        self.state = state
        content = self._text(state, self.content_size.width)
        self.display = bool(content)
        if not content.is_same(self._painted):
            may_grow = self.styles.auto_dimensions and len(content) != len(self._painted)
            self.refresh(layout=may_grow)

    def render(self) -> Content:
        self._painted = self._text(self.state, self.content_size.width)
        return self._painted


MODES: dict[Mode, str] = {"train": "LEARNING", "inference": "NOT LEARNING"}
"""The modes as the header names them."""
PHASES = {phase: phase.replace("_", " ") for phase in get_args(Phase)} | {
    "rolling_out": "playing",
    "updating": "learning",
    "warm_starting": "warm start",
}


class RunHeader(StateText):
    DEFAULT_CSS = "RunHeader { height: 1; background: $panel; }"

    def __init__(self, state: RunState) -> None:
        super().__init__(header, state, id="run-header")


def header(state: RunState, width: int) -> Content:
    """What it does and with which model on the left; on the right the phase, the episodes and the speed."""
    mode = _mode(state)
    right = _progress(state)
    agent, model = (one_line(PurePath(name).name or name) for name in (state.agent, state.model))
    names = Content.assemble((agent.replace("_", " "), "bold"), (f" · {model}", ASIDE))
    room = max(0, width - mode.cell_length - right.cell_length - 2)
    return Content.assemble(mode, " ", names.truncate(room, ellipsis=True, pad=True), " ", right)


def _mode(state: RunState) -> Content:
    color = "$success" if state.mode == "train" else "$warning"
    label = MODES[state.mode]
    if state.mode_intended != state.mode:
        label += f" → {MODES[state.mode_intended]}?"
    if state.recorded:
        label = f"REPLAY · {label}"
        color = "$accent"
    elif not state.live:
        label = "NO TRAINER" if state.failure else "ENDED"
        color = "$error" if state.failure else "$aside"
    return Content.styled(f" {label} ", f"bold $background on {color}")


def _progress(state: RunState) -> Content:
    doing = "" if state.phase in ("rolling_out", "updating") else PHASES[state.phase]
    if (asked := state.pending.of(Pause, Resume)) is not None:
        doing = "pausing" if isinstance(asked, Pause) else "resuming"
    style = "bold $error" if state.phase == "failed" else "bold"
    if state.run is None:
        return Content.styled(doing, style)
    speed = state.episodes_per_s
    rate = f" · {speed:,.0f} a second" if speed >= 1 else ""
    doing += " · " if doing else ""
    return Content.assemble((doing, style), (f"episode {state.episodes:,}{rate}", ASIDE))
