"""The top row: agent, model, mode, phase and speed of a run, as the trainer has confirmed them."""

from pathlib import PurePath
from typing import get_args

from textual.content import Content
from textual.widget import Widget

from llamagym_tui.protocol.events import Phase
from llamagym_tui.protocol.literal import one_line
from llamagym_tui.screens.widgets.look import ASIDE
from llamagym_tui.state.reduce import progress_text
from llamagym_tui.state.run import RunState


class StateText(Widget):
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
"""Characters of what is being done, at most."""


class RunHeader(StateText):
    DEFAULT_CSS = "RunHeader { height: 1; background: $panel; }"

    def __init__(self, state: RunState, *, id: str, has_progress: bool = True) -> None:
        """`has_progress`: whether it says how far something is; else that stands below it."""
        super().__init__(state, id=id)
        self._has_progress = has_progress

    def content_at(self, width: int) -> Content:
        """Names on the left, the less important left out first when room is short; progress on the right."""
        mode = self._mode()
        right = self._progress()
        # So that names stay at each phase.
        longer = max(0, max(map(len, PHASES.values())) - len(self._doing()))
        room = width - mode.cell_length - right.cell_length - 3 - longer
        left = Content("")
        for names in self._names():
            left = Content.assemble(
                (names[0], "bold"), *[(f" · {name}", ASIDE) for name in names[1:]]
            )
            if left.cell_length <= room:
                break
        left = left.truncate(max(room, 0), ellipsis=True)
        gap = max(1, width - mode.cell_length - left.cell_length - right.cell_length - 2)
        return Content.assemble(mode, " ", left, " " * gap, right)

    def _mode(self) -> Content:
        state = self.state
        if state.recorded:
            label, color = f"REPLAY · {state.mode}", "$accent"
        elif not state.live:
            label, color = ("NO TRAINER", "$error") if state.failure else ("ENDED", "$aside")
        else:
            requested = (
                f" → {state.mode_requested}?"
                if state.mode_requested not in (None, state.mode)
                else ""
            )
            label, color = (
                f"{state.mode.upper()}{requested}",
                "$success" if state.mode == "train" else "$warning",
            )
        return Content.styled(f" {label} ", f"bold $background on {color}")

    def _names(self) -> list[list[str]]:
        state = self.state
        agent = one_line(PurePath(state.agent).name or state.agent)
        model = one_line(PurePath(state.model).name or state.model)
        env = (
            [one_line(state.run.env_id.rpartition(":")[2])]
            if state.run and state.run.env_id != state.agent
            else []
        )
        return [[agent, *env, model], [agent, model], [agent]]

    def _progress(self) -> Content:
        state = self.state
        doing = self._doing()
        if state.pause_requested is not None:
            doing += ", pausing" if state.pause_requested else ", resuming"
        parts = Content.styled(doing, "bold $error" if state.phase == "failed" else "bold")
        if state.run is not None:
            parts += Content.styled(f" · episode {state.episodes:,}{self._rate()}", ASIDE)
        return parts

    def _doing(self) -> str:
        """The phase, or what takes seconds in it and how far that is."""
        if not self._has_progress and self.state.live:
            return PHASES[self.state.phase]
        return doing_text(self.state)

    def _rate(self) -> str:
        """The speed, unless its room is that of how far something is."""
        speed = self.state.episodes_per_s
        if not speed or (self._has_progress and self.state.progress is not None):
            return ""
        return f" · {speed:,.1f}/s" if speed < 10 else f" · {speed:,.0f} ep/s"


def doing_text(state: RunState) -> str:
    """What a run is doing: its phase, or what takes seconds in it and how far that is."""
    if state.progress is not None and state.live:
        return one_line(progress_text(state.progress), LONGEST)
    phase = PHASES[state.phase]
    detail = one_line(state.detail, LONGEST) if state.live else ""
    if state.phase == "loading" and detail:
        return detail
    if state.phase in ("evaluating", "warm_starting") and detail:
        return f"{phase}: {detail}"
    return phase
