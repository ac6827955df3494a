"""What the run is doing now, how far that is, and how long it takes: one line with a bar."""

from textual.content import Content

from llamagym_tui.protocol.literal import one_line
from llamagym_tui.screens.widgets.numbers import bar
from llamagym_tui.screens.widgets.run_header import StateText, doing_text
from llamagym_tui.state.run import RunState


class ProgressLine(StateText):
    DEFAULT_CSS = (
        "ProgressLine { height: 1; padding: 0 1; text-wrap: nowrap; text-overflow: ellipsis; }"
    )

    def show(self, state: RunState) -> None:
        super().show(state)
        self.display = state.live

    def content_at(self, width: int) -> Content:
        state = self.state
        doing, done, total, left_s = _now(state)
        if not total:
            return Content(doing)
        parts = [f"{done:,} of {total:,}"]
        if doing == "updating":
            epochs = int(state.settings.get("ppo.epochs") or state.config.ppo.epochs)
            passed = min(done * epochs // total + 1, epochs)
            parts = [f"pass {passed} of {epochs}", f"{done / total:.0%}"]
        if left_s is not None:
            left = f"{left_s:.0f} s" if left_s < 120 else f"{left_s / 60:,.0f} min"
            parts.append(f"next update in {left}" if doing == COLLECTING else f"{left} left")
        track = bar(done / total)
        lines = [
            Content.assemble(
                (f"{doing} ", "bold"),
                (track, "$primary"),
                ("░" * (10 - len(track)), "$aside"),
                f" {' · '.join(parts[:count])}",
            )
            for count in range(len(parts), 0, -1)
        ]
        return next((line for line in lines if line.cell_length <= width), lines[-1])


COLLECTING = "collecting turns"
"""What the trainer calls the time between two updates."""


def _now(state: RunState) -> tuple[str, int, int, float | None]:
    """What is being done, how much of it is done, of how much, and the seconds that are left."""
    progress = state.progress
    if progress is not None:
        return one_line(progress.doing), progress.done, progress.total, progress.left_s
    if state.phase in ("rolling_out", "paused") and state.mode == "train" and state.run:
        played, wanted = state.batch_progress
        return COLLECTING, played, wanted, None
    if state.phase == "rolling_out":
        return "playing", 0, 0, None
    return doing_text(state), 0, 0, None
