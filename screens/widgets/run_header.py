"""The top row: agent, model, mode, phase and speed of a run, as the trainer has confirmed them."""

from pathlib import PurePath
from typing import get_args

from textual.content import Content

from llamagym_tui.protocol.events import Phase
from llamagym_tui.protocol.literal import one_line
from llamagym_tui.screens.widgets.look import ASIDE
from llamagym_tui.screens.widgets.state_text import StateText
from llamagym_tui.state.reduce import progress_text

PHASES = {phase: phase.replace("_", " ") for phase in get_args(Phase)} | {
    "warm_starting": "warm start"
}


class RunHeader(StateText):
    DEFAULT_CSS = "RunHeader { height: 1; background: $panel; }"

    def content_at(self, width: int) -> Content:
        """Names on the left, the less important left out first when room is short; progress on the right."""
        mode = self._mode()
        right = self._progress()
        longer = max(map(len, PHASES.values())) - len(
            PHASES[self.state.phase]
        )  # so that names stay at each phase
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
            label, color = ("NO TRAINER", "$error") if state.failure else ("ENDED", "$secondary")
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
        phase = PHASES[state.phase]
        if state.pause_requested is not None:
            phase += ", pausing" if state.pause_requested else ", resuming"
        if state.progress is not None:
            phase = progress_text(state.progress)
        parts = Content.styled(phase, "bold $error" if state.phase == "failed" else "bold")
        if state.run is not None:
            rate = f" · {state.episodes_per_s:,.1f}/s" if 0 < state.episodes_per_s < 10 else ""
            rate = rate or (f" · {state.episodes_per_s:,.0f} ep/s" if state.episodes_per_s else "")
            parts += Content.styled(f" · episode {state.episodes:,}{rate}", ASIDE)
        return parts
