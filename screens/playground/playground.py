"""The main screen of a run: conversation, curve, map, figures, and the keys that steer it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Container, Vertical
from textual.events import Resize
from textual.keys import format_key

from llamagym_tui import user_files
from llamagym_tui.protocol.commands import Pause, Resume, SetMode
from llamagym_tui.screens.conversation.view import ConversationPane, ConversationView
from llamagym_tui.screens.playground.actions import PlaygroundActions, allowed
from llamagym_tui.screens.widgets.command_asked import CommandAsked
from llamagym_tui.screens.widgets.fitted import WIDE, Fitted, TooSmall
from llamagym_tui.screens.widgets.key_bar import KeyBar, KeyOf, key_of
from llamagym_tui.screens.widgets.run_header import RunHeader, StateText
from llamagym_tui.setup.lessons import NAMED
from llamagym_tui.state.run import RunState

if TYPE_CHECKING:
    from llamagym_tui.screens.playground.panes import MapPane, ReturnChart
    from llamagym_tui.screens.playground.status_lines import Banner

LOW = 30
"""Rows below which the legend of the curve is hidden."""
LOWEST = 22
"""Rows below which the curve is hidden."""
LEAST_CHART = 9
"""Rows that the curve keeps above a map."""
MOST_SIDE = 90
"""Columns of curve and map, at most."""

SPEED = Binding.Group("Speed", compact=True)


class Panels(NamedTuple):
    """The mounted panes that are no texts."""

    banner: Banner
    chart: ReturnChart
    map: MapPane


class PlaygroundScreen(PlaygroundActions, Fitted[None]):
    CSS_PATH = "playground.tcss"
    BINDING_GROUP_TITLE = "Playground"
    BINDINGS = [
        Binding(
            "space",
            "pause",
            "Pause",
            tooltip="Pause after the current step.",
            id="pause",
        ),
        Binding(
            "space",
            "resume",
            "Resume",
            tooltip="Resume playing and training.",
            id="pause",
        ),
        Binding(
            "plus,equals_sign",
            "pace('faster')",
            "Faster",
            tooltip="Fewer seconds a turn; at last full speed.",
            id="pace.faster",
            group=SPEED,
        ),
        Binding(
            "minus",
            "pace('slower')",
            "Slower",
            tooltip="More seconds for each turn that is watched.",
            id="pace.slower",
            group=SPEED,
        ),
        Binding(
            "r",
            "app.restart",
            "Restart",
            tooltip="Start again from the last checkpoint.",
            id="restart",
        ),
        Binding(
            "p",
            "app.edit_prompt",
            "Prompt",
            tooltip="Edit the system prompt of the next episodes.",
            id="prompt",
        ),
        Binding(
            "s",
            "settings",
            "Settings",
            tooltip="Change learning rate, KL and more, live.",
            id="settings",
        ),
        Binding(
            "t",
            "mode('inference')",
            "Inference",
            tooltip="Only play: nothing is trained.",
            id="mode",
        ),
        Binding(
            "t",
            "mode('train')",
            "Train",
            tooltip="Train the model on what it plays.",
            id="mode",
        ),
        Binding(
            "m",
            "metrics",
            "Metrics",
            tooltip="Charts of every figure, and what is healthy.",
            id="metrics",
        ),
        Binding(
            "g",
            "policy_map",
            "Map",
            tooltip="What the policy does in each state, and what is best.",
            id="policy_map",
        ),
        Binding(
            "h",
            "app.human_table",
            "Play",
            tooltip="Play at a table of your own.",
            id="table",
        ),
        Binding(
            "e",
            "evaluate",
            "Evaluate",
            tooltip="Measure how well it plays now; training is not affected.",
            id="evaluate",
        ),
        Binding(
            "c",
            "checkpoint",
            "Checkpoint",
            tooltip="Write the policy to disk now.",
            id="checkpoint",
        ),
        Binding(
            "ctrl+r",
            "roll_back",
            "Roll back",
            tooltip="Back to the last good checkpoint; asks first.",
            id="roll_back",
        ),
        Binding(
            "full_stop",
            "advance('turn')",
            "One turn",
            tooltip="One turn in every environment, then a pause.",
            id="advance.turn",
            show=False,
        ),
        Binding(
            "u",
            "advance('update')",
            "One update",
            tooltip="Go on until the next update, then pause.",
            id="advance.update",
            show=False,
        ),
        Binding(
            "right_square_bracket",
            "watch(1)",
            "Next environment",
            tooltip="Watch the next environment.",
            id="watch.next",
            show=False,
        ),
        Binding(
            "left_square_bracket",
            "watch(-1)",
            "Previous environment",
            tooltip="Watch the one before.",
            id="watch.previous",
            show=False,
        ),
        Binding(
            "v",
            "view",
            "Drawing",
            tooltip="Show the drawing of the watched state, or hide it.",
            id="view",
            show=False,
        ),
        Binding(
            "i",
            "inspect",
            "Inspect tokens",
            tooltip="The reply you look at, token by token: ratio, clip, alternatives.",
            id="inspect",
            show=False,
        ),
        Binding(
            "w",
            "take_wheel",
            "Take the wheel",
            tooltip="Act in the agent's place in the watched environment.",
            id="wheel",
            show=False,
        ),
        Binding(
            "d",
            "app.demonstrations",
            "Demonstrations",
            tooltip="Browse, edit and delete recorded episodes.",
            id="demonstrations",
            show=False,
        ),
        Binding(
            "k",
            "turn(-1)",
            "Reply before",
            tooltip="Mark the row above and show all of it; i inspects its reply.",
            id="turn.before",
            show=False,
        ),
        Binding(
            "j",
            "turn(1)",
            "Reply after",
            tooltip="Mark the reply below; a click marks any.",
            id="turn.after",
            show=False,
        ),
        Binding(
            "escape",
            "unmark",
            "To the play",
            tooltip="Back to the play as it goes: no marked reply, the newest line.",
            id="turn.unmark",
            show=False,
        ),
        Binding(
            "f",
            "app.warm_start",
            "Warm start",
            tooltip="Train the model on demonstrations.",
            id="warm_start",
            show=False,
        ),
        Binding(
            "L",
            "app.lesson",
            "Lesson",
            tooltip="The text of the lesson, then its answer.",
            id="lesson",
            show=False,
        ),
        Binding(
            "o",
            "app.runs",
            "Past runs",
            tooltip="Look at past runs, compare some.",
            id="runs",
            show=False,
        ),
        Binding(
            "question_mark",
            "app.help",
            "All keys",
            tooltip="What the keys and figures mean.",
            id="help",
        ),
        Binding(
            "q",
            "app.leave_run",
            "Quit",
            tooltip="Write a checkpoint and leave.",
            id="quit",
        ),
        Binding(
            "q",
            "app.go_home",
            "Back",
            tooltip="Write a checkpoint and go back to where the run was begun.",
            id="quit",
        ),
    ]

    def __init__(self, state: RunState) -> None:
        super().__init__()
        self._state = state
        self._panels: Panels | None = None
        self._keys: tuple[object, ...] = ()

    def compose(self) -> ComposeResult:
        """Compose the first frame; the rest follows it."""
        yield TooSmall()
        yield RunHeader(self._state, id="run-header")
        with Container(id="body"):
            view = ConversationView(id="conversation", placeholder=waiting_text(self._state))
            yield ConversationPane(view, id="conversation-pane")
        yield KeyBar()

    def on_mount(self) -> None:
        view = self.query_one(ConversationView)
        view.focus()
        self.watch(view, "marked_row", self.refresh_bindings, init=False)
        self.call_after_refresh(self._furnish)

    async def _furnish(self) -> None:
        """Mount what the first frame does without, so that it comes sooner."""
        from llamagym_tui.screens.playground.figures import Figures, FirstSight
        from llamagym_tui.screens.playground.panes import MapPane, ReturnChart, StateDrawing
        from llamagym_tui.screens.playground.status_lines import (
            Banner,
            ProgressLine,
            PromptLine,
            WatchLine,
        )

        if not self.is_attached:
            return  # It was left at once.
        state = self._state
        preferences = user_files.load_preferences(user_files.config_dir())
        self._drawing_wanted = preferences.drawing
        head = (
            Banner(id="banner", markup=False),
            ProgressLine(state, id="progress-line"),
            FirstSight(state, id="first-sight"),
            PromptLine(state, id="prompt-line"),
        )
        above = (WatchLine(state, id="watch-line"), StateDrawing(state, id="drawing"))
        chart, policy_map = ReturnChart(), MapPane(id="map-pane")
        side = Vertical(chart, policy_map, Figures(state, id="figures"), id="side")
        with self.app.batch_update():
            # All at once: the app may be left at each wait, and then nothing can be mounted.
            mounted = (
                self.mount(*head, after="#run-header"),
                self.query_one("#conversation-pane").mount(*above, before=0),
                self.query_one("#body").mount(side),
            )
            for each in mounted:
                await each
        self._panels = Panels(head[0], chart, policy_map)
        self.show(self._state)

    def on_screen_resume(self) -> None:
        self.show(getattr(self.app, "run_state", None) or self._state)

    def on_resize(self, event: Resize) -> None:
        self.call_after_refresh(lambda: self.show(self._state))

    def show(self, state: RunState) -> None:
        self._state = state
        panels = self._panels
        if panels is None or not self.is_attached:
            return
        conversation = self.query_one(ConversationView)
        if not state.transcript.entries:
            conversation.placeholder = waiting_text(state, key_of(self.app, "table", "h"))
        conversation.shows_newest = bool(state.turn_s)
        conversation.show(state.transcript.entries)
        panels.banner.show(state)
        self._fit(state, panels.map)
        for text in self.query(StateText):
            text.show(state)
        panels.chart.show(state)
        panels.map.show(state)
        self.show_drawing()
        stage = (
            state.live,
            state.phase == "paused",
            state.mode,
            state.run is None,
            bool(state.failure),
        )
        keys = (*stage, state.pending, state.turn_s, state.view.drawn is None)
        if keys != self._keys:
            self._keys = keys
            self.refresh_bindings()

    def _fit(self, state: RunState, policy_map: MapPane) -> None:
        """Set the style classes of what has room."""
        size = self.size
        self.set_class(size.height < LOW, "-low")
        self.set_class(size.height < LOWEST, "-lowest")
        body = self.query_one("#body").size
        width = min(body.width // 2, MOST_SIDE) - 3
        rows = body.height - LEAST_CHART
        fits = policy_map.fit(state.map_layout, width, rows)
        self.set_class(fits and size.width >= WIDE, "-map")

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Hide the key of the opposite state, and dim what the trainer cannot do now."""
        state = self._state
        match action:
            case "pause" | "resume":
                if (action == "resume") != state.pause_intended:
                    return False
            case "mode":
                if parameters == (state.mode_intended,):
                    return False
            case "unmark":
                return self.marked is not None
            case _:
                return allowed(action, state, parameters)
        return True if state.live and state.run is not None else None

    def action_pause(self) -> None:
        self.post_message(CommandAsked(Pause()))

    def action_resume(self) -> None:
        self.post_message(CommandAsked(Resume()))

    def action_mode(self, mode: str) -> None:
        self.post_message(CommandAsked(SetMode(mode="train" if mode == "train" else "inference")))


def waiting_text(state: RunState, table_key: str = "h") -> str:
    """The placeholder of a conversation that has not begun."""
    if state.failure:
        return "No conversation."
    if state.recorded:
        return "No conversation up to here."
    return f"{table_key} opens a table of your own"


def with_keys(text: str, key_of: KeyOf = lambda id, usual: usual) -> str:
    """Replace ``{id}`` by the key of the binding with that id.

    Args:
        key_of: names the key that a binding has now. Without it: the default key.
    """
    usual: dict[str, str] = {}
    for binding in Binding.make_bindings(PlaygroundScreen.BINDINGS):
        usual.setdefault(binding.id or "", format_key(binding.key))
    return NAMED.sub(lambda named: key_of(named[1], usual[named[1]]), text)
