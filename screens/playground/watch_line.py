"""A line on what is watched, and how fast; absent while the first environment is watched at full speed."""

from textual.content import Content

from llamagym_tui.screens.widgets.key_bar import key_of
from llamagym_tui.screens.widgets.look import own_styles
from llamagym_tui.screens.widgets.run_header import StateText
from llamagym_tui.state.run import RunState
from llamagym_tui.state.watching import FIRST, Watching, watched_text


def _request(watching: Watching) -> str:
    requested = watching.requested
    return "" if requested is None else f" → {requested.env + 1:,}?"


def _speed(watching: Watching, how_to: str) -> list[str]:
    if not watching.turn_s and watching.turn_s_requested is None:
        return []
    speed = f"{watching.turn_s:g} s a turn{how_to}" if watching.turn_s else "full speed"
    if watching.turn_s_requested is None:
        return [speed]
    return [
        speed
        + (
            f" → {watching.turn_s_requested:g} s?"
            if watching.turn_s_requested
            else " → full speed?"
        )
    ]


class WatchLine(StateText):
    """One line above a conversation, of as many parts as it has room for."""

    DEFAULT_CSS = own_styles(__file__)

    def show(self, state: RunState) -> None:
        super().show(state)
        self.display = bool(self._parts)

    @property
    def _parts(self) -> list[str]:
        """What is watched and requested, how to go back, and the speed."""
        watching, parts = self.state.watching, list[str]()
        if not self.state.live:
            return parts
        if watching.now != FIRST or watching.requested is not None:
            what = watched_text(watching.now, self.state.n_envs)
            parts.append(what + _request(watching))
        return [*parts, *_speed(watching, f", {key_of(self.app, 'pace.faster', '+')} faster")]

    def content_at(self, width: int) -> Content:
        parts = self._parts
        lines = [Content(" · ".join(parts[:count])) for count in range(len(parts), 0, -1)]
        return next(
            (line for line in lines if line.cell_length <= width),
            lines[-1] if lines else Content(""),
        )
