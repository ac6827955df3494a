"""What is watched, and how fast, in words; absent while the first environment is watched at full speed."""

from __future__ import annotations

from textual.content import Content
from textual.widget import Widget

from llamagym_tui.protocol.commands import Watch, WatchNext
from llamagym_tui.protocol.events import WatchChanged
from llamagym_tui.screens.widgets.key_bar import moved_key
from llamagym_tui.state.run import RunState
from llamagym_tui.state.watching import FIRST, Watching, watched_text


def watch_sentences(state: RunState, back: str = "]", faster: str = "+") -> list[str]:
    """What is watched and asked for, the longest words first; empty if that needs no words.

    Args:
        state: of the run.
        back: key that goes back to the play.
        faster: key that plays faster.
    """
    watching = state.watching
    what, brief, returns = [], [], []
    if watching.now != FIRST or watching.requested is not None:
        asked = _asked(watching)
        what, brief = [watched_text(watching.now, state.n_envs) + asked], [_brief(watching.now) + asked]
    if watching.now.kind != "env" and not watching.now.awaits_failure:
        returns = [f"{back} goes back"]
    in_full = [*what, *[f"{words} to the play" for words in returns], *_speed(watching, f", {faster} faster")]
    said = [in_full, [*brief, *returns, *_speed(watching)], [*brief, *returns]]
    return list(dict.fromkeys(" · ".join(parts) for parts in said if parts))


def _brief(watched: WatchChanged) -> str:
    """What is watched, in fewer words."""
    where = f"environment {watched.env + 1:,}"
    if watched.awaits_failure:
        return "waiting for a reply without an action" + (f" · {where}" if watched.kind == "env" else "")
    match watched.kind:
        case "env":
            return where
        case "failure":
            return f"a reply without an action · {where}"
        case "best" | "worst":
            return f"{watched.kind} episode of the last batch"


def _asked(watching: Watching) -> str:
    match watching.requested:
        case None:
            return ""
        case Watch(env=env):
            return f" → {env + 1:,}?"
        case WatchNext(kind=kind):
            return f" → {kind}?"


def _speed(watching: Watching, how_to: str = "") -> list[str]:
    if not watching.turn_s and watching.turn_s_requested is None:
        return []
    speed = f"{watching.turn_s:g} s a turn{how_to}" if watching.turn_s else "full speed"
    if watching.turn_s_requested is None:
        return [speed]
    return [speed + (f" → {watching.turn_s_requested:g} s?" if watching.turn_s_requested else " → full speed?")]


class WatchLine(Widget):
    """One line above a conversation, in as many words as it has room for."""

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
        super().__init__()
        self._shown: tuple[object, ...] = ()
        self._said: list[str] = []

    def show(self, state: RunState) -> None:
        """Say what a state calls for."""
        shown = (state.live, state.watching, state.n_envs)
        if shown == self._shown:
            return
        self._shown = shown
        keys = (moved_key(self.app, "watch.next", "]"), moved_key(self.app, "pace.faster", "+"))
        self._said = watch_sentences(state, *keys) if state.live else []
        self.display = bool(self._said)
        self.refresh()

    def render(self) -> Content:
        """The longest of the sentences that fits, else the shortest."""
        lines = [Content(words) for words in self._said]
        fitting = (line for line in lines if line.cell_length <= self.content_size.width)
        return next(fitting, lines[-1] if lines else Content(""))
