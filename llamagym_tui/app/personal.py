"""The user's themes, keys, palette and help, a part of `LlamaGymApp`.

A theme or a file of keys that cannot be used costs a notification, never the start.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import msgspec
from textual.actions import ActionParseResult
from textual.app import App, SystemCommand
from textual.dom import DOMNode
from textual.filter import LineFilter
from textual.markup import escape
from textual.screen import Screen
from textual.theme import Theme

from llamagym_tui import user_files
from llamagym_tui.errors import LlamaGymError
from llamagym_tui.protocol.literal import one_line
from llamagym_tui.screens.widgets.fields import LiteralLines
from llamagym_tui.screens.widgets.key_bar import is_refused, key_of
from llamagym_tui.screens.widgets.look import THEME, readable
from llamagym_tui.user_files import file_text

KEYS_FILE = "keys.toml"
"""The file of moved keys, in the configuration folder."""
COLOURLESS = "ansi-dark"
LONGEST_NOTICE = 600
"""Most characters of a notification, for a small terminal."""


class Keys(msgspec.Struct):
    """The file of moved keys."""

    keys: dict[str, str]
    """Keys with commas between, by the ids of their bindings."""


class PersonalApp(App[None]):
    CSS = (
        "OptionList:ansi > .option-list--option-highlighted { text-style: bold underline !important; } "
        "OptionList:nocolor > .option-list--option-highlighted { text-style: bold underline !important; } "
        "CommandPalette > .command-palette--help-text { color: $aside; text-style: not bold; } "
        "CommandList { text-wrap: nowrap; text-overflow: ellipsis; }"
    )
    """Without colours the cursor is underlined; the help of the palette has the contrast of text."""
    _literal_lines = LiteralLines()

    def __init__(self) -> None:
        # Textual only greys colours for NO_COLOR; by the terminal's own ones it can leave them out.
        ansi_color = True if "NO_COLOR" in os.environ else None
        super().__init__(ansi_color=ansi_color)
        self.register_theme(THEME)
        kept = user_files.kept_theme()
        if self.no_color or self.console.color_system == "standard":
            self.theme = COLOURLESS  # 16 colours of a theme would be told apart by chance
        elif kept in self.available_themes:
            self.theme = kept
        else:
            self.theme = THEME.name

    def on_mount(self) -> None:
        self.theme_changed_signal.subscribe(self, self._keep_theme)
        self._take_keys()

    def _take_keys(self) -> None:
        """Use the keys that a person has moved: ``pause = "f5"`` under ``[keys]``, by the ids of bindings."""
        path = user_files.config_dir() / KEYS_FILE
        try:
            self.set_keymap(msgspec.toml.decode(file_text(path), type=Keys).keys)
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:
            self.notify(f"{path} cannot be used: {error}", severity="warning", timeout=15)

    def _keep_theme(self, theme: Theme) -> None:
        try:
            user_files.keep_theme(theme.name)
        except OSError as error:
            self.notify(f"The theme is not kept: {error}", severity="warning")

    def get_system_commands(self, screen: Screen[Any]) -> Iterator[SystemCommand]:
        """The palette's commands: the enabled keys of the screen, and the themes."""
        listed = set()
        for namespace, binding, enabled, tooltip in screen.active_bindings.values():
            # Keys without a tooltip are those of lists and scroll bars.
            if enabled and tooltip and binding.action not in listed:
                listed.add(binding.action)
                key = escape(f"{self.get_key_display(binding):<6}")
                run = partial(self.run_action, binding.action, namespace)
                yield SystemCommand(f"{key} {binding.description}: {tooltip}", "", run)
        own = "other colours, or the terminal's own (ansi-dark, ansi-light)"
        yield SystemCommand(f"{'':<6} Theme: {own}", "", self.search_themes)

    async def run_action(
        self,
        action: str | ActionParseResult,
        default_namespace: DOMNode | None = None,
        namespaces: Mapping[str, DOMNode] | None = None,
    ) -> bool:
        """Run an action, unless a browser session may not."""
        owner, name, _ = self._parse_action(action, default_namespace or self, namespaces)
        if is_refused(owner, name):
            is_watching = user_files.browser_session() == "watch"
            why = user_files.ONLY_WATCHES if is_watching else user_files.REFUSED
            self.notify(why, severity="warning")
            return True
        return await super().run_action(action, default_namespace, namespaces)

    def get_line_filters(self) -> Sequence[LineFilter]:
        return [*super().get_line_filters(), self._literal_lines]

    def get_css_variables(self) -> dict[str, str]:
        """The variables of the theme, with texts that can be read on their grounds."""
        self.theme_variables = readable(super().get_css_variables())
        return self.theme_variables

    def notify(self, message: str, *, markup: bool = False, **options: Any) -> None:
        """Notify in one literal line."""
        super().notify(one_line(message, LONGEST_NOTICE), markup=False, **options)

    @contextmanager
    def errors_shown(self) -> Iterator[None]:
        """Notify of an error of ours instead of raising it."""
        try:
            yield
        except LlamaGymError as error:
            self.notify(str(error), severity="error")

    def action_help_quit(self) -> None:
        """Name the key that leaves, after a ctrl+c that copies nothing."""
        self.notify(f"{key_of(self, 'app.quit', 'ctrl+q')} leaves; ctrl+c copies what is selected.")

    def action_help(self) -> None:
        """Show or hide the purpose of the focused widget and the keys."""
        from llamagym_tui.screens.widgets.dialogs import HelpDialog

        if isinstance(self.screen, HelpDialog):
            self.screen.dismiss()
        else:
            self.push_screen(HelpDialog(self.screen))
