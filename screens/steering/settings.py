"""Dialog to change settings of a live run (key `s`); a value is current once the trainer has confirmed it."""

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from llamagym_tui.config import LIVE, UNUSED_BY_HEAD, RunConfig, changed, value_of
from llamagym_tui.config.typed import takes
from llamagym_tui.errors import ConfigError
from llamagym_tui.protocol.commands import ChangeSettings
from llamagym_tui.protocol.literal import one_line
from llamagym_tui.screens.steering.setting_texts import (
    read,
    scheduled_value,
    shown_value,
    value_text,
)
from llamagym_tui.screens.widgets.command_asked import CommandAsked
from llamagym_tui.screens.widgets.fields import OneLineInput
from llamagym_tui.screens.widgets.key_bar import KeyBar
from llamagym_tui.screens.widgets.look import ASIDE
from llamagym_tui.state.run import RunState

NOT_USED = (
    "Not used: the head alone is trained, by steps on whole batches that follow the KL of an update; "
    "that can be set."
)
"""Of settings that an adapter on the LM head alone has no use for."""


class SettingList(OptionList):
    HELP = (
        "Settings that can change while the run is under way. enter edits the one under the cursor."
    )
    # Keys of the list and the field, not of the dialog: keys pressed before them have been handled when they come.
    BINDINGS = [Binding("enter", "select", "Edit", tooltip="Type a new value for this setting.")]


class ValueInput(OneLineInput):
    HELP = "The new value. A fault is shown at once; enter requests the change, escape goes back."
    BINDINGS = [Binding("enter", "submit", "Apply", tooltip="Request this value from the trainer.")]


class SettingsDialog(ModalScreen[None]):
    CSS_PATH = ["../widgets/dialogs.tcss", "settings.tcss"]
    BINDING_GROUP_TITLE = "Settings"
    HELP = (
        "A checkpoint is written before a change, and the charts are marked where it took effect."
    )
    BINDINGS = [
        Binding(
            "escape", "back", "Back", tooltip="Leave the value as it is; what you typed is kept."
        )
    ]

    def __init__(self, state: RunState, typed: dict[str, str] | None = None) -> None:
        """A dialog on a run; `typed` holds, by setting, what is typed and not requested, and outlives the dialog."""
        super().__init__()
        self._state = state
        self._typed = {} if typed is None else typed
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
        self.query_one(ValueInput).value = self._typed.get(self._chosen, "")
        self.show(self._state)

    @property
    def _config(self) -> RunConfig:
        return (
            changed(self._state.config, self._state.settings)
            if self._state.settings
            else self._state.config
        )

    @property
    def _editing(self) -> bool:
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
        if self._is_unused(name):
            return Content.assemble(
                f"{LIVE[name].title:<34}", (f"{'—':<12}", "bold"), ("  not used", ASIDE)
            )
        state = self._state
        text = began = shown_value(name, value_of(config, name))
        scheduled, requested = scheduled_value(name, state.stats), state.pending.settings
        warmup = config.ppo.critic_warmup_updates
        if scheduled is not None and name not in state.settings and f"{scheduled:.3g}" != began:
            if scheduled == 0 and state.updates <= warmup:
                text = f"{began} from update {warmup + 1:,} on"
            else:
                text = f"{scheduled:.3g} now, {began} at first"
        if name in requested:
            mark = (f"  → {one_line(value_text(requested[name]))}, pending", "$accent")
        elif name in state.settings:
            mark = ("  changed", ASIDE)
        else:
            mark = ("  measured" if config.measured.get(name) else "", ASIDE)
        return Content.assemble(f"{LIVE[name].title:<34}", (f"{text:<12}", "bold"), mark)

    @on(Input.Changed)
    def keep(self, message: Input.Changed) -> None:
        self._typed[self._chosen] = message.value
        self._show_chosen()

    def _show_chosen(self) -> None:
        text = LIVE[self._chosen]
        meaning = Content.assemble(
            text.help, "\n", (f"{self._chosen} takes {takes(self._chosen)}.", ASIDE)
        )
        self.query_one("#setting-meaning", Static).update(meaning)
        self.query_one("#setting-status", Static).update(self._status())
        self.refresh_bindings()

    def _status(self) -> Content:
        if not self._state.live:
            return Content.styled("The run has ended, so nothing can be changed.", "$warning")
        if self._is_unused(self._chosen):
            return Content.styled(NOT_USED, ASIDE)
        if fault := self._fault():
            return Content.styled(one_line(fault), "$error")
        if self._chosen in self._state.pending.settings:
            return Content.styled("pending: the trainer has not confirmed it yet", "$accent")
        if self._editing:
            return Content.styled("enter requests the change", ASIDE)
        if (
            why := self._config.measured.get(self._chosen)
        ) and self._chosen not in self._state.settings:
            return Content.styled(f"measured: {one_line(why)}", ASIDE)
        kept = "the typed value is kept, not requested; " if self._may_apply() else ""
        return Content.styled(f"{kept}enter edits it", ASIDE)

    def _fault(self) -> str:
        text = self.query_one(ValueInput).value
        try:
            if text.strip() or self._editing:
                read(self._config, self._chosen, text)
        except ConfigError as error:
            return str(error)
        return ""

    @on(OptionList.OptionHighlighted)
    def choose(self, event: OptionList.OptionHighlighted) -> None:
        if event.option.id is not None and event.option.id != self._chosen:
            self._chosen = event.option.id
            self.query_one(ValueInput).value = self._typed.get(self._chosen, "")
        self._show_chosen()

    def on_descendant_focus(self) -> None:
        if self.is_mounted:
            self._show_chosen()

    def _may_apply(self) -> bool:
        typed = self.is_mounted and bool(self.query_one(ValueInput).value.strip())
        if not (typed and self._state.live) or self._is_unused(self._chosen):
            return False
        return not self._fault()

    @on(OptionList.OptionSelected)
    def edit(self) -> None:
        if self._is_unused(self._chosen):
            return
        field = self.query_one(ValueInput)
        if not field.value:
            field.value = value_text(value_of(self._config, self._chosen))
        field.focus()

    @on(Input.Submitted)
    def apply(self) -> None:
        if not self._may_apply():
            return
        field = self.query_one(ValueInput)
        name, value = self._chosen, read(self._config, self._chosen, field.value)
        scheduled = scheduled_value(name, self._state.stats)
        if value != value_of(self._config, name) or (scheduled is not None and scheduled != value):
            self.post_message(CommandAsked(ChangeSettings(changes={name: value})))
        field.clear()
        self.query_one(SettingList).focus()

    def action_back(self) -> None:
        field = self.query_one(ValueInput)
        if self._editing:
            if field.value == value_text(value_of(self._config, self._chosen)):
                field.clear()  # nothing was typed
            self.query_one(SettingList).focus()
        else:
            self.dismiss()
