"""What is watched, and how fast, in words; absent while the first environment is watched at full speed."""

from __future__ import annotations

from textual.widgets import Static

from llamagym_tui.protocol.commands import Watch, WatchNext
from llamagym_tui.run_state import RunState
from llamagym_tui.watching import FIRST, Watching, watched_text


def watch_sentence(state: RunState) -> str:
    """What is watched and asked for; empty if that needs no words."""
    watching = state.watching
    said = []
    if watching.now != FIRST or watching.asked is not None:
        said.append(watched_text(watching.now, state.n_envs) + _asked(watching))
    if watching.now.kind != "env" and not watching.now.awaits_failure:
        said.append("] goes back to the play")
    return " · ".join([*said, *_speed(watching)])


def _asked(watching: Watching) -> str:
    match watching.asked:
        case None:
            return ""
        case Watch(env=env):
            return f" → {env + 1:,}?"
        case WatchNext(kind=kind):
            return f" → {kind}?"


def _speed(watching: Watching) -> list[str]:
    if not watching.turn_s and watching.turn_s_asked is None:
        return []
    speed = f"{watching.turn_s:g} s a turn, + faster" if watching.turn_s else "full speed"
    if watching.turn_s_asked is None:
        return [speed]
    return [speed + (f" → {watching.turn_s_asked:g} s?" if watching.turn_s_asked else " → full speed?")]


class WatchLine(Static):
    """One line above a conversation."""

    DEFAULT_CSS = """
    WatchLine {
        display: none;
        height: 1;
        padding: 0 1;
        background: $surface;
        color: $foreground 80%;
        text-wrap: nowrap;
        text-overflow: ellipsis;
    }
    """

    def __init__(self) -> None:
        """A line with nothing to say."""
        super().__init__(markup=False)
        self._said = ""

    def show(self, state: RunState) -> None:
        """Say what a state calls for."""
        said = watch_sentence(state) if state.live else ""
        if said != self._said:
            self._said = said
            self.display = bool(said)
            self.update(said)
