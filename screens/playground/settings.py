"""The settings that may change while a run is under way (key `s`); the trainer confirms each change.

Those that this way of training has no use for are folded away under one line.
"""

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.content import Content
from textual.widgets import Input, OptionList

from llamagym_tui.errors import ConfigError
from llamagym_tui.protocol.commands import ChangeSettings
from llamagym_tui.protocol.literal import one_line
from llamagym_tui.screens.widgets.choices import Choices
from llamagym_tui.screens.widgets.dialogs import Dialog
from llamagym_tui.screens.widgets.fields import OneLineInput, Words
from llamagym_tui.screens.widgets.frame import CommandAsked, OfRun
from llamagym_tui.screens.widgets.look import ASIDE
from llamagym_tui.settings import (
    LIVE,
    UNUSED_BY_HEAD,
    RunConfig,
    Value,
    changed,
    value_of,
)
from llamagym_tui.settings.typed import takes, typed_value
from llamagym_tui.state.run import RunState


def value_text(value: Value) -> str:
    """A value as it is typed."""
    if value is None:
        return "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


FOLD = "unused"
"""The line under which the settings without a use are folded away."""
OF_CRITIC = ("ppo.value_lr", "ppo.lam")


class SettingList(Choices):
    HELP = "The settings that may change now. enter edits the one under the cursor."
    # Keys of the list and of the field, so that they come after the keys pressed before them.
    BINDINGS = [Binding("enter", "select", "Edit", tooltip="Type a new value for this setting.")]


class ValueInput(OneLineInput):
    HELP = "The new value. enter requests the change, escape goes back."
    BINDINGS = [Binding("enter", "submit", "Apply", tooltip="Request this value from the trainer.")]


class SettingsDialog(OfRun, Dialog[None]):
    CSS_PATH = "settings.tcss"
    heading = "settings"
    BINDING_GROUP_TITLE = "Settings"
    HELP = "A checkpoint is written before a change, and the charts mark it."
    BINDINGS = [Binding("escape", "back", "Back", tooltip="Leave the value as it is.")]
    _chosen = next(iter(LIVE))
    _is_unfolded = False

    def body(self) -> ComposeResult:
        yield SettingList(id="setting-list", markup=False)
        yield Words(id="setting-meaning")
        yield ValueInput(id="value", placeholder="new value", may_submit=self._may_apply)
        yield Words(id="setting-status")

    @property
    def _config(self) -> RunConfig:
        return changed(self._state.config, self._state.settings)

    @property
    def _is_editing(self) -> bool:
        return isinstance(self.focused, ValueInput)

    def show(self, state: RunState) -> None:
        self._state = state
        unused = [name for name in LIVE if self._is_unused(name)]
        lines = {name: self._line(name) for name in LIVE if name not in unused}
        if unused:
            text = f"{len(unused)} that this way of training does not use"
            lines[FOLD] = Content.styled(text, ASIDE)
        if self._is_unfolded:
            lines |= {name: self._line(name) for name in unused}
        chosen = self._chosen if self._chosen in lines else next(iter(lines))
        self.query_one(SettingList).show(lines, chosen)
        self._show_chosen()

    def _is_unused(self, name: str) -> bool:
        config = self._config
        section, _, key = name.rpartition(".")
        if section == "ppo" and config.trains_head_alone and key in UNUSED_BY_HEAD:
            return True
        if name == "generation.max_new_tokens":
            return config.generation.policy == "score"
        return name in OF_CRITIC and not config.ppo.has_critic

    def _line(self, name: str) -> Content:
        """A setting with its value and, if that is not the one that the run began with, both."""
        state, config = self._state, self._config
        mark = ("", ASIDE)
        if name in state.pending.settings:
            mark = (f"→ {one_line(value_text(state.pending.settings[name]))}, pending", "$accent")
        elif name in state.settings:
            mark = (f"began with {value_text(value_of(state.config, name))}", ASIDE)
        elif config.measured.get(name):
            mark = ("measured", ASIDE)
        value = (f"{value_text(value_of(config, name)):<12}", "bold")
        return Content.assemble(f"{LIVE[name].title:<32}", value, mark)

    @on(Input.Changed)
    def _show_chosen(self) -> None:
        meaning = Content("They have no effect on what this run trains.")
        if self._chosen != FOLD:
            range_text = (f"{self._chosen} takes {takes(self._chosen)}.", ASIDE)
            meaning = Content.assemble(LIVE[self._chosen].help, "\n", range_text)
        self.query_one("#setting-meaning", Words).update(meaning)
        self.query_one("#setting-status", Words).update(self._status())
        self.refresh_bindings()

    def _status(self) -> Content:
        name = self._chosen
        if not self._state.live:
            return Content.styled("The run has ended, so nothing can be changed.", "$warning")
        if name == FOLD:
            return Content.styled(f"enter {'folds' if self._is_unfolded else 'shows'} them", ASIDE)
        if self._is_unused(name):
            return Content.styled("Not used by this way of training.", ASIDE)
        if self._is_editing:
            fault = self._fault()
            return Content.styled(
                one_line(fault or "enter requests the change"), "$error" if fault else ASIDE
            )
        why = "" if name in self._state.settings else self._config.measured.get(name, "")
        return Content.styled(f"measured: {one_line(why)}" if why else "enter edits it", ASIDE)

    def _typed(self) -> Value:
        """The typed value. Raises ConfigError if the setting cannot be changed to it."""
        value: Value = typed_value(self._chosen, self.query_one(ValueInput).value)
        changed(self._config, {self._chosen: value})
        return value

    def _fault(self) -> str:
        """The fault of the typed value, if it has one."""
        try:
            self._typed()
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
        if self._chosen == FOLD:
            self._is_unfolded = not self._is_unfolded
            self.show(self._state)
        elif not self._is_unused(self._chosen):
            field = self.query_one(ValueInput)
            field.value = value_text(value_of(self._config, self._chosen))
            field.focus()

    @on(Input.Submitted)
    def apply(self) -> None:
        if self._may_apply():
            changes = {self._chosen: self._typed()}
            self.post_message(CommandAsked(ChangeSettings(changes=changes)))
            self.action_back()

    def action_back(self) -> None:
        if not self._is_editing:
            self.dismiss()
            return
        self.query_one(SettingList).focus()
        self.query_one(ValueInput).clear()
