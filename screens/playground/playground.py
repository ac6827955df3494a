"""The main screen of a run: the table, the map, the curve, what was just played, and the keys that steer it."""

from collections.abc import Callable

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Container, Vertical
from textual.events import Resize
from textual.keys import format_key

from llamagym_tui.protocol.commands import (
    AnyCommand,
    DrawStates,
    Pause,
    Resume,
    RollBack,
    SaveCheckpoint,
    SetMode,
    SetPace,
    Step,
    TakeWheel,
    Watch,
)
from llamagym_tui.screens.conversation.view import ConversationView
from llamagym_tui.screens.playground.lines import Headline, Status
from llamagym_tui.screens.playground.panes import (
    FRAME,
    CurvePane,
    MapPane,
    Pane,
    PlayedPane,
    TablePane,
)
from llamagym_tui.screens.widgets.frame import TWO_COLUMNS, CommandAsked, Fitted
from llamagym_tui.screens.widgets.key_bar import KeyBar, KeyOf, key_of
from llamagym_tui.screens.widgets.run_header import RunHeader, StateText
from llamagym_tui.settings import Mode
from llamagym_tui.setup.lessons import NAMED
from llamagym_tui.state.run import RunState

LOW = 22
"""Rows below which there is one pane, what was just played."""
LEAST_CURVE = 7
"""Rows that the curve's pane keeps below a map."""
LEAST_PLAYED = 7
"""Rows that the pane of what was played keeps below the table."""
REQUESTS: dict[str, Callable[[RunState], AnyCommand]] = {
    "pause": lambda state: Resume() if state.pause_intended else Pause(),
    "faster": lambda state: SetPace(turn_s=state.faster),
    "slower": lambda state: SetPace(turn_s=state.slower),
    "mode": lambda state: SetMode(mode=other_mode(state)),
    "checkpoint": lambda state: SaveCheckpoint(),
    "one_turn": lambda state: Step(unit="turn"),
    "one_update": lambda state: Step(unit="update"),
    "next": lambda state: Watch(env=(state.env_intended + 1) % max(state.n_envs, 1)),
    "previous": lambda state: Watch(env=(state.env_intended - 1) % max(state.n_envs, 1)),
}
"""What a key asks the trainer for, made when the app takes the request."""


def other_mode(state: RunState) -> Mode:
    return "inference" if state.mode_intended == "train" else "train"


class PlaygroundScreen(Fitted[None]):
    CSS_PATH = "playground.tcss"
    BINDING_GROUP_TITLE = "Playground"
    BINDINGS = [
        Binding(
            "space",
            "ask('pause')",
            "Pause",
            tooltip="Pause after the current turn, or resume.",
            id="pause",
        ),
        Binding(
            "plus,equals_sign",
            "ask('faster')",
            "Speed",
            tooltip="Faster: fewer seconds a turn, at last full speed.",
            id="pace.faster",
            key_display="− +",
        ),
        Binding(
            "minus",
            "ask('slower')",
            "Slower",
            tooltip="More seconds for each turn that is watched.",
            id="pace.slower",
            show=False,
        ),
        Binding(
            "r",
            "app.restart",
            "Restart",
            tooltip="Resume from the last checkpoint.",
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
            "ask('mode')",
            "Learn/stop",
            tooltip="Stop learning and only play, or learn again.",
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
            tooltip="Evaluate how well it plays now; training is not affected.",
            id="evaluate",
        ),
        Binding(
            "c",
            "ask('checkpoint')",
            "Checkpoint",
            tooltip="Write the policy to disk now.",
            id="checkpoint",
        ),
        Binding(
            "ctrl+r",
            "roll_back",
            "Roll back",
            tooltip="Roll back to the last good checkpoint; asks first.",
            id="roll_back",
        ),
        Binding(
            "full_stop",
            "ask('one_turn')",
            "One turn",
            tooltip="One turn in every environment, then a pause.",
            id="advance.turn",
            show=False,
        ),
        Binding(
            "u",
            "ask('one_update')",
            "One update",
            tooltip="Play until the next update, then pause.",
            id="advance.update",
            show=False,
        ),
        Binding(
            "right_square_bracket",
            "ask('next')",
            "Next environment",
            tooltip="Watch the next environment.",
            id="watch.next",
            show=False,
        ),
        Binding(
            "left_square_bracket",
            "ask('previous')",
            "Previous environment",
            tooltip="Watch the one before.",
            id="watch.previous",
            show=False,
        ),
        Binding(
            "v",
            "view",
            "Table",
            tooltip="Show what is played at the table, or hide it.",
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
            tooltip="Act in the model's place in the watched environment.",
            id="wheel",
            show=False,
        ),
        Binding(
            "d",
            "app.demonstrations",
            "Demonstrations",
            tooltip="Browse and delete recorded episodes.",
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
            tooltip="Back to what is played now: no marked reply, the newest line.",
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
        *[
            Binding(
                str(number),
                f"pane({number})",
                f"Pane {number}",
                tooltip="Go to the pane with this number; enter opens its screen.",
                id=f"pane.{number}",
                show=False,
            )
            for number in range(1, 5)
        ],
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
            "Leave",
            tooltip="Write a checkpoint and leave the run.",
            id="quit",
        ),
    ]

    def __init__(self, state: RunState) -> None:
        super().__init__()
        self._state = state
        self._keys: tuple[object, ...] = ()
        self._table_wanted = True

    def body(self) -> ComposeResult:
        state = self._state
        yield RunHeader(state)
        yield Headline(state)
        with Container(id="body"):
            with Vertical(id="left"):
                yield TablePane(state)
                yield PlayedPane()
            with Vertical(id="right"):
                yield MapPane()
                yield CurvePane()
        yield Status(state)

    def on_mount(self) -> None:
        view = self.query_one(ConversationView)
        view.focus()
        self.watch(view, "marked_row", self.refresh_bindings, init=False)
        self.call_after_refresh(lambda: self.show(self._state))

    def on_screen_resume(self) -> None:
        self.show(getattr(self.app, "run_state", None) or self._state)

    def on_resize(self, event: Resize) -> None:
        self.call_after_refresh(lambda: self.show(self._state))

    def show(self, state: RunState) -> None:
        self._state = state
        if not self.is_attached or not self.query(KeyBar):
            return  # It is not composed yet, or it is being left.
        for text in self.query(StateText).exclude("#drawing"):
            text.show(state)
        self._show_panes()
        stage = (state.live, state.mode, state.run is None, bool(state.failure))
        keys = (*stage, state.pending, state.turn_s, state.view.drawn is None)
        if keys != self._keys:
            self._keys = keys
            self.refresh_bindings()

    def _show_panes(self) -> None:
        state = self._state
        is_high = self.size.height >= LOW
        played, curve = self.query_one(PlayedPane), self.query_one(CurvePane)
        played.show(state, waiting_text(state, key_of(self.app, "table", "h")))
        self.query_one("#right").display = is_high
        curve.show(state)
        has_columns = is_high and self.size.width >= TWO_COLUMNS
        self._show_table(has_columns)
        body, right = self.query_one("#body").size, self.query_one("#right").size
        width = right.width - FRAME if has_columns else 0
        self.query_one(MapPane).show(state, width, body.height - LEAST_CURVE - FRAME)

    def _show_table(self, has_room: bool) -> None:
        """Show what is played where there is a drawing of it, and request it from the trainer."""
        state, table = self._state, self.query_one(TablePane)
        can_come = state.live and state.run is not None and state.run.draws
        wanted = has_room and self._table_wanted
        table.display = wanted and (state.run is None or can_come or state.view.drawn is not None)
        table.show(state, self.query_one("#body").size.height - LEAST_PLAYED)
        asked = state.pending.of(DrawStates)
        if can_come and wanted != (asked is not None and asked.on):
            self.post_message(CommandAsked(DrawStates(on=wanted)))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Dim the keys for which the trainer is not ready."""
        return allowed(action, self._state, parameters)

    # Screens

    def action_metrics(self) -> None:
        from llamagym_tui.screens.playground.metrics import MetricsScreen

        self.app.push_screen(MetricsScreen(self._state))

    def action_policy_map(self) -> None:
        """Open the policy map."""
        from llamagym_tui.screens.policy_map.screen import PolicyMapScreen

        self.app.push_screen(PolicyMapScreen(self._state))

    def action_settings(self) -> None:
        from llamagym_tui.screens.playground.settings import SettingsDialog

        self.app.push_screen(SettingsDialog(self._state))

    def action_evaluate(self) -> None:
        from llamagym_tui.screens.playground.evaluation import EvaluationDialog

        self.app.push_screen(EvaluationDialog(self._state))

    def action_inspect(self) -> None:
        from llamagym_tui.screens.conversation.inspector import open_inspector

        open_inspector(self.query_one(ConversationView), self._state)

    def action_take_wheel(self) -> None:
        """Take over from the agent, or go back to the open wheel."""
        from llamagym_tui.screens.play.wheel import WheelScreen

        self.app.post_message(CommandAsked(TakeWheel()))
        self.app.push_screen(WheelScreen(self._state))

    # Requests

    def action_ask(self, what: str) -> None:
        """Request one of `REQUESTS`."""
        self.post_message(CommandAsked(REQUESTS[what]))

    def action_roll_back(self) -> None:
        from llamagym_tui.screens.widgets.dialogs import ConfirmDialog

        question = (
            "Roll back to the last good checkpoint? A checkpoint is good once a whole batch went well after it. "
            "What was learnt since is lost and the present batch is dropped; episodes stay counted."
        )
        dialog = ConfirmDialog("roll back?", question, yes="roll back", no="stay")
        dialog.ask(self.app, lambda: self.post_message(CommandAsked(RollBack())))

    # The panes

    def action_turn(self, by: int) -> None:
        """Mark the reply above or below the marked one."""
        self.query_one(ConversationView).mark_next(by)

    def action_unmark(self) -> None:
        """Unmark the reply and follow the newest line."""
        self.query_one(ConversationView).action_follow()

    def action_view(self) -> None:
        """Show or hide the table."""
        self._table_wanted = not self._table_wanted
        self._show_panes()

    def action_pane(self, number: int) -> None:
        """Focus a pane, or the list in it."""
        pane = self.query_one(f"#pane-{number}", Pane)
        if pane.display:
            (self.query_one(ConversationView) if isinstance(pane, PlayedPane) else pane).focus()


def allowed(action: str, state: RunState, parameters: tuple[object, ...] = ()) -> bool | None:
    """True if an action can be done now, None if its key is dim."""
    able = state.live and state.run is not None and not state.stopping
    match parameters[0] if action == "ask" else action:
        case "evaluate":
            able = able or bool(state.evaluations or state.comparison)
        case "checkpoint":
            able = able and state.pending.of(SaveCheckpoint) is None
        case "roll_back":
            able = able and state.pending.of(RollBack) is None
        case "one_turn":
            able = able and state.pending.of(Step) is None
        case "one_update":
            able = able and state.pending.of(Step) is None and state.mode == "train"
        case "slower":
            able = able and state.slower != state.turn_s_intended
        case "faster":
            able = able and state.faster != state.turn_s_intended
        case "view":
            able = state.view.drawn is not None or (state.run is not None and state.run.draws)
        case "inspect":
            able = state.inspection.found is not None or (able and state.watched is not None)
        case "pause" | "mode":
            able = state.live and state.run is not None
        case "settings" | "next" | "previous" | "take_wheel":
            pass
        case _:
            return True
    return True if able else None


def waiting_text(state: RunState, table_key: str) -> str:
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
