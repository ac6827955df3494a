"""A line on what is watched, and how fast; absent while the first environment is watched at full speed."""

from textual.content import Content
from textual.widget import Widget

from llamagym_tui.protocol.commands import Watch, WatchNext
from llamagym_tui.protocol.events import WatchChanged
from llamagym_tui.screens.widgets.key_bar import moved_key
from llamagym_tui.screens.widgets.look import own_styles
from llamagym_tui.state.run import RunState
from llamagym_tui.state.watching import FIRST, Watching, watched_text


def watch_sentences(state: RunState, back: str = "]", faster: str = "+") -> list[str]:
    """What is watched and requested, the longest text first; empty if that needs no text.

    `back` and `faster` are keys.
    """
    watching = state.watching
    what, brief, returns = [], [], []
    if watching.now != FIRST or watching.requested is not None:
        request = _request(watching)
        what, brief = [watched_text(watching.now, state.n_envs) + request], [_brief(watching.now) + request]
    if watching.now.kind != "env" and not watching.now.awaits_failure:
        returns = [f"{back} goes back"]
    in_full = [*what, *[f"{words} to the play" for words in returns], *_speed(watching, f", {faster} faster")]
    texts = [in_full, [*brief, *returns, *_speed(watching)], [*brief, *returns]]
    return list(dict.fromkeys(" · ".join(parts) for parts in texts if parts))


def _brief(watched: WatchChanged) -> str:
    """What is watched, in a shorter text."""
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


def _request(watching: Watching) -> str:
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
    """One line above a conversation, the longest text for which it has room."""

    DEFAULT_CSS = own_styles(__file__)

    def __init__(self) -> None:
        super().__init__()
        self._shown: tuple[object, ...] = ()
        self._texts: list[str] = []

    def show(self, state: RunState) -> None:
        shown = (state.live, state.watching, state.n_envs)
        if shown == self._shown:
            return
        self._shown = shown
        keys = (moved_key(self.app, "watch.next", "]"), moved_key(self.app, "pace.faster", "+"))
        self._texts = watch_sentences(state, *keys) if state.live else []
        self.display = bool(self._texts)
        self.refresh()

    def render(self) -> Content:
        """The longest of the sentences that fits, else the shortest."""
        lines = [Content(words) for words in self._texts]
        fitting = (line for line in lines if line.cell_length <= self.content_size.width)
        return next(fitting, lines[-1] if lines else Content(""))
