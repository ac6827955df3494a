"""The top row: mode, agent, model, phase and speed of a run."""

from pathlib import PurePath
from typing import get_args

from textual.content import Content
from textual.widget import Widget

from llamagym_tui.protocol.commands import Pause, Resume
from llamagym_tui.protocol.events import Phase
from llamagym_tui.protocol.literal import one_line
from llamagym_tui.screens.widgets.look import ASIDE
from llamagym_tui.state.run import RunState
from llamagym_tui.state.texts import progress_text


class StateText(Widget):
    """A text about a run, painted again only when it or its size changes."""

    def __init__(self, state: RunState, *, id: str) -> None:
        super().__init__(id=id)
        self.state = state
        self._painted = Content()

    def show(self, state: RunState) -> None:
        if state is not self.state:
            self.state = state
            if not (self.size and self.content_at(self.content_size.width).is_same(self._painted)):
                self.refresh()

    def render(self) -> Content:
        self._painted = self.content_at(self.content_size.width)
        return self._painted

    def content_at(self, width: int) -> Content:
        raise NotImplementedError


PHASES = {phase: phase.replace("_", " ") for phase in get_args(Phase)} | {
    "warm_starting": "warm start"
}
LONGEST = 72
"""Most characters of a description of work."""


class RunHeader(StateText):
    DEFAULT_CSS = "RunHeader { height: 1; background: $panel; }"

    def content_at(self, width: int) -> Content:
        """Mode and names on the left, phase and speed on the right."""
        mode = self._mode()
        right = self._progress()
        room = max(0, width - mode.cell_length - right.cell_length - 3)
        names = self._names().truncate(room, ellipsis=True)
        gap = max(1, width - mode.cell_length - names.cell_length - right.cell_length - 2)
        return Content.assemble(mode, " ", names, " " * gap, right)

    def _mode(self) -> Content:
        state = self.state
        color = "$success" if state.mode == "train" else "$warning"
        label = state.mode.upper()
        if state.mode_intended != state.mode:
            label += f" → {state.mode_intended}?"
        if state.recorded:
            label = f"REPLAY · {state.mode}"
            color = "$accent"
        elif not state.live:
            label = "NO TRAINER" if state.failure else "ENDED"
            color = "$error" if state.failure else "$aside"
        return Content.styled(f" {label} ", f"bold $background on {color}")

    def _names(self) -> Content:
        """Agent and model."""
        agent, model = (
            one_line(PurePath(name).name or name) for name in (self.state.agent, self.state.model)
        )
        return Content.assemble((agent, "bold"), (f" · {model}", ASIDE))

    def _progress(self) -> Content:
        state = self.state
        doing = PHASES[state.phase]
        if (asked := state.pending.of(Pause, Resume)) is not None:
            doing += ", pausing" if isinstance(asked, Pause) else ", resuming"
        style = "bold $error" if state.phase == "failed" else "bold"
        if state.run is None:
            return Content.styled(doing, style)
        speed = state.episodes_per_s
        rate = f" · {speed:,.0f} ep/s" if speed else ""
        return Content.assemble((doing, style), (f" · episode {state.episodes:,}{rate}", ASIDE))


def doing_text(state: RunState) -> str:
    """The phase of a run, with the progress of long work."""
    if state.progress is not None and state.live:
        return one_line(progress_text(state.progress), LONGEST)
    phase = PHASES[state.phase]
    detail = one_line(state.detail, LONGEST) if state.live else ""
    if state.phase == "loading" and detail:
        return detail
    if state.phase in ("evaluating", "warm_starting") and detail:
        return f"{phase}: {detail}"
    return phase
