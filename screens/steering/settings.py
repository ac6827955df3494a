"""The settings that may change while a run is under way (key `s`); the trainer confirms each change."""

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from llamagym_tui.errors import ConfigError
from llamagym_tui.protocol.commands import ChangeSettings
from llamagym_tui.protocol.literal import one_line
from llamagym_tui.screens.widgets.command_asked import CommandAsked
from llamagym_tui.screens.widgets.fields import OneLineInput
from llamagym_tui.screens.widgets.key_bar import KeyBar
from llamagym_tui.screens.widgets.look import ASIDE
from llamagym_tui.settings import (
    FIGURES,
    FINAL,
    LIVE,
    UNUSED_BY_HEAD,
    RunConfig,
    UpdateStats,
    Value,
    changed,
    value_of,
)
from llamagym_tui.settings.typed import takes, typed_value
from llamagym_tui.state.run import RunState


def read(config: RunConfig, name: str, text: str) -> Value:
    """The typed value of a setting.

    Raises:
        ConfigError: the setting cannot be changed to it.
    """
    value: Value = typed_value(name, text)
    changed(config, {name: value})
    return value


def value_text(value: Value) -> str:
    """A value as it is typed."""
    if value is None:
        return "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


def scheduled_value(name: str, stats: UpdateStats | None) -> float | None:
    """The current value of a setting with a schedule, if the figures of an update have it."""
    figure = name.removeprefix("ppo.")
    if stats is None or name not in FINAL or figure not in FIGURES:
        return None
    return float(getattr(stats, figure))


class SettingList(OptionList):
    HELP = "The settings that may change now. enter edits the one under the cursor."
    # Keys of the list and of the field, so that they come after the keys pressed before them.
    BINDINGS = [Binding("enter", "select", "Edit", tooltip="Type a new value for this setting.")]


class ValueInput(OneLineInput):
    HELP = "The new value. enter requests the change, escape goes back."
    BINDINGS = [Binding("enter", "submit", "Apply", tooltip="Request this value from the trainer.")]


class SettingsDialog(ModalScreen[None]):
    CSS_PATH = ["../widgets/dialogs.tcss", "settings.tcss"]
    BINDING_GROUP_TITLE = "Settings"
    HELP = "A checkpoint is written before a change, and the charts mark it."
    BINDINGS = [Binding("escape", "back", "Back", tooltip="Leave the value as it is.")]

    def __init__(self, state: RunState) -> None:
        super().__init__()
        self._state = state
        self._chosen = next(iter(LIVE))

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog") as dialog:
            dialog.border_title = "settings"
            yield SettingList(
                *[Option(text.title, id=name) for name, text in LIVE.items()],
                id="setting-list",
                markup=False,
            )
            yield Static(id="setting-meaning", markup=False)
            with Horizontal(id="setting-form"):
                yield Static("new value", id="value-label", markup=False)
                yield ValueInput(id="value", may_submit=self._may_apply)
            yield Static(id="setting-status", markup=False)
        yield KeyBar()

    def on_mount(self) -> None:
        self.query_one(SettingList).highlighted = 0
        self.show(self._state)

    @property
    def _config(self) -> RunConfig:
        state = self._state
        return changed(state.config, state.settings) if state.settings else state.config

    @property
    def _is_editing(self) -> bool:
        return isinstance(self.focused, ValueInput)

    def show(self, state: RunState) -> None:
        self._state = state
        config, settings = self._config, self.query_one(SettingList)
        for name in LIVE:
            settings.replace_option_prompt(name, self._line(config, name))
        self._show_chosen()

    def _is_unused(self, name: str) -> bool:
        section, _, key = name.rpartition(".")
        return self._config.trains_head_alone and section == "ppo" and key in UNUSED_BY_HEAD

    def _line(self, config: RunConfig, name: str) -> Content:
        state, title = self._state, f"{LIVE[name].title:<34}"
        if self._is_unused(name):
            return Content.assemble(title, (f"{'—':<12}", "bold"), ("  not used", ASIDE))
        text = value_text(value_of(config, name))
        now = scheduled_value(name, state.stats)
        if now is not None and name not in state.settings and f"{now:.3g}" != text:
            text = f"{now:.3g} now, {text} at first"
        requested = state.pending.settings
        mark = ("", ASIDE)
        if name in requested:
            mark = (f"  → {one_line(value_text(requested[name]))}, pending", "$accent")
        elif name in state.settings:
            mark = ("  changed", ASIDE)
        elif config.measured.get(name):
            mark = ("  measured", ASIDE)
        return Content.assemble(title, (f"{text:<12}", "bold"), mark)

    @on(Input.Changed)
    def _show_chosen(self) -> None:
        text = LIVE[self._chosen]
        range_text = (f"{self._chosen} takes {takes(self._chosen)}.", ASIDE)
        meaning = Content.assemble(text.help, "\n", range_text)
        self.query_one("#setting-meaning", Static).update(meaning)
        self.query_one("#setting-status", Static).update(self._status())
        self.refresh_bindings()

    def _status(self) -> Content:
        state, name = self._state, self._chosen
        if not state.live:
            return Content.styled("The run has ended, so nothing can be changed.", "$warning")
        if self._is_unused(name):
            return Content.styled("Not used while only the head is trained.", ASIDE)
        if fault := self._fault():
            return Content.styled(one_line(fault), "$error")
        if name in state.pending.settings:
            return Content.styled("pending: the trainer has not confirmed it yet", "$accent")
        if self._is_editing:
            return Content.styled("enter requests the change", ASIDE)
        why = self._config.measured.get(name)
        if why and name not in state.settings:
            return Content.styled(f"measured: {one_line(why)}", ASIDE)
        return Content.styled("enter edits it", ASIDE)

    def _fault(self) -> str:
        """Why the typed value cannot be taken."""
        if not self._is_editing:
            return ""
        try:
            read(self._config, self._chosen, self.query_one(ValueInput).value)
        except ConfigError as error:
            return str(error)
        return ""

    @on(OptionList.OptionHighlighted)
    def choose(self, event: OptionList.OptionHighlighted) -> None:
        if event.option.id is not None:
            self._chosen = event.option.id
        self._show_chosen()

    def on_descendant_focus(self) -> None:
        if self.is_mounted:
            self._show_chosen()

    def _may_apply(self) -> bool:
        return self.is_mounted and self._state.live and not self._fault()

    @on(OptionList.OptionSelected)
    def edit(self) -> None:
        if self._is_unused(self._chosen):
            return
        field = self.query_one(ValueInput)
        field.value = value_text(value_of(self._config, self._chosen))
        field.focus()

    @on(Input.Submitted)
    def apply(self) -> None:
        if not self._may_apply():
            return
        name = self._chosen
        value = read(self._config, name, self.query_one(ValueInput).value)
        now = scheduled_value(name, self._state.stats)
        if value != value_of(self._config, name) or now not in (None, value):
            self.post_message(CommandAsked(ChangeSettings(changes={name: value})))
        self.action_back()

    def action_back(self) -> None:
        if not self._is_editing:
            self.dismiss()
            return
        self.query_one(SettingList).focus()
        self.query_one(ValueInput).clear()
