"""The app as its user likes it: themes and keys of earlier sessions, the command palette, help, the focus kept.

A part of `LlamaGymApp`. A theme or a key that cannot be used costs a notification, never the start.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from textual.actions import ActionParseResult
from textual.app import App
from textual.command import CommandListItem, Provider, SimpleProvider
from textual.dom import DOMNode
from textual.events import Resize
from textual.filter import LineFilter
from textual.screen import Screen
from textual.theme import Theme, ThemeProvider
from textual.widget import AwaitMount, Widget

from llamagym_tui import user_files
from llamagym_tui.errors import LlamaGymError
from llamagym_tui.protocol.literal import one_line
from llamagym_tui.returns import counted
from llamagym_tui.screens.help.keys_toml import FILE
from llamagym_tui.screens.widgets.contrast import readable
from llamagym_tui.screens.widgets.few_colours import FewColours
from llamagym_tui.screens.widgets.kept_screen import open_kept
from llamagym_tui.screens.widgets.key_bar import key_of
from llamagym_tui.screens.widgets.literal import LiteralLines
from llamagym_tui.screens.widgets.look import THEMES
from llamagym_tui.screens.widgets.palette import Palette
from llamagym_tui.screens.widgets.refused import is_refused
from llamagym_tui.screens.widgets.sizes import is_too_small

if TYPE_CHECKING:
    from llamagym_tui.screens.help.palette import Command

COLOURLESS = "ansi-dark"
DUMB = ("dumb", "unknown")
"""What TERM says of a terminal without colours."""
LONGEST_NOTICE = 600
"""Characters of a notification that fit into a small terminal."""
COPIED_S = 2.0
"""Seconds for which the notification of a copy is shown."""


def _commands() -> type[Provider]:
    from llamagym_tui.screens.help.palette import Commands  # not before the first frame

    return Commands


class PersonalApp(App[None]):
    CSS = (
        "OptionList:ansi > .option-list--option-highlighted { text-style: bold underline !important; } "
        "OptionList:nocolor > .option-list--option-highlighted { text-style: bold underline !important; } "
        "CommandPalette > .command-palette--help-text { color: $aside; text-style: not bold; }"
    )
    """In the terminal's own colours, and without colour, a cursor is underlined; the palette's help can be read."""
    COMMANDS: ClassVar[set[type[Provider] | Callable[[], type[Provider]]]] = {_commands}
    _literal_lines = LiteralLines()

    def __init__(self, *, css_path: Path) -> None:
        if os.environ.get("TERM") in DUMB and not user_files.browser_session():
            os.environ["NO_COLOR"] = "1"
        # Textual only greys colours for NO_COLOR; by the terminal's own ones it can leave them out.
        ansi_color = True if "NO_COLOR" in os.environ else None
        super().__init__(css_path=css_path, ansi_color=ansi_color)
        depth = self.console.color_system
        self._few_colours = FewColours() if depth == "256" else None
        """Chooses among the colours of a terminal that knows 256."""
        self._config_dir = user_files.config_dir()
        for theme in THEMES:
            self.register_theme(theme)
        kept = user_files.load_preferences(self._config_dir).theme
        if self.no_color:
            self.theme = COLOURLESS
        elif depth == "standard" and not self._is_ansi(kept):
            self.theme = (
                COLOURLESS  # with 16 colours those of a theme would be told apart by chance
            )
        elif kept in self.available_themes:
            self.theme = kept
        else:
            self.theme = THEMES[0].name

    def on_mount(self) -> None:
        self.theme_changed_signal.subscribe(self, self._keep_theme)
        if (self._config_dir / FILE).exists():
            self._take_keys()

    def _take_keys(self) -> None:
        from llamagym_tui.screens.help.all_bindings import key_names, keyed_classes, movable
        from llamagym_tui.screens.help.keys_toml import read_keys

        keys, faults = read_keys(
            self._config_dir, movable([*keyed_classes(), type(self)]), key_names()
        )
        self.set_keymap(keys)
        for fault in faults:
            self.notify(fault, severity="warning", timeout=15)

    def _keep_theme(self, theme: Theme) -> None:
        try:
            user_files.keep_preferences(self._config_dir, theme=theme.name)
        except OSError as error:
            self.notify(f"The theme is not kept: {error}", severity="warning")

    def commands(self, screen: Screen[Any]) -> Iterator[Command]:
        """What the palette lists: every key of the screen that does something now, and the themes."""
        from llamagym_tui.screens.help.palette import Command

        listed = set()
        for namespace, binding, enabled, tooltip in screen.active_bindings.values():
            # Keys without a tooltip are those of every list and scroll bar.
            if enabled and tooltip and binding.action not in listed:
                listed.add(binding.action)
                help = f"{self.get_key_display(binding)} · {tooltip}"
                run = partial(self.run_action, binding.action, namespace)
                yield Command(binding.description, help, run, binding.id or "")
        own = "Other colours, or the terminal's own (ansi-dark, ansi-light)"
        yield Command("Theme", own, self.search_themes, "theme")

    async def run_action(
        self,
        action: str | ActionParseResult,
        default_namespace: DOMNode | None = None,
        namespaces: Mapping[str, DOMNode] | None = None,
    ) -> bool:
        """Do what a key or the palette requests, unless a browser session may not."""
        owner, name, parameters = self._parse_action(action, default_namespace or self, namespaces)
        if is_refused(owner, name, parameters):
            is_watching = user_files.browser_session() == "watch"
            self.notify(
                user_files.ONLY_WATCHES if is_watching else user_files.REFUSED, severity="warning"
            )
            return True
        return await super().run_action(action, default_namespace, namespaces)

    def get_line_filters(self) -> Sequence[LineFilter]:
        last = [] if self._few_colours is None else [self._few_colours]
        return [*super().get_line_filters(), *last, self._literal_lines]

    def get_css_variables(self) -> dict[str, str]:
        """The variables of the theme, with texts that can be read on their grounds."""
        self.theme_variables = readable(super().get_css_variables())
        return self.theme_variables

    def _is_ansi(self, theme: str | None) -> bool:
        """Whether a theme has the terminal's own colours."""
        known = self.available_themes.get(theme or "")
        return known is not None and known.ansi

    def notify(self, message: str, *, markup: bool = False, **options: Any) -> None:
        """Notify in a literal line, whatever its text is of."""
        super().notify(one_line(message, LONGEST_NOTICE), markup=False, **options)

    @contextmanager
    def errors_shown(self) -> Iterator[None]:
        """Show an error of ours, where it ends the block, and go on after it."""
        try:
            yield
        except LlamaGymError as error:
            self.notify(str(error), severity="error")

    def copy_to_clipboard(self, text: str) -> None:
        super().copy_to_clipboard(
            text.encode("utf-8", "replace").decode()
        )  # a lone surrogate cannot be copied
        lines = text.count("\n") + 1
        what = f"{lines:,} lines" if lines > 1 else counted(len(text), "character")
        self.notify(f"copied {what}", timeout=COPIED_S)

    def action_command_palette(self) -> None:
        """Open the palette; if something was opened over it, come back to it."""
        if not any(isinstance(screen, Palette) for screen in self.screen_stack):
            self.push_screen(Palette())
        elif not isinstance(self.screen, Palette):
            self.screen.dismiss()

    def search_commands(
        self, commands: Sequence[CommandListItem], placeholder: str = "Search for commands…"
    ) -> AwaitMount:
        listed = SimpleProvider(self.screen, list(commands))
        palette = Palette(providers=[listed], placeholder=placeholder)  # type: ignore[list-item]
        return self.push_screen(palette)

    def search_themes(self) -> None:
        self.push_screen(Palette(providers=[ThemeProvider], placeholder="Search for themes…"))

    def action_help_quit(self) -> None:
        """Answer a ctrl+c that copies nothing, in place of Textual's notice, which is markup."""
        self.notify(f"{key_of(self, 'app.quit', 'ctrl+q')} leaves; ctrl+c copies what is selected.")

    def action_help(self) -> None:
        from llamagym_tui.screens.help.help import HelpDialog

        if not isinstance(self.screen, HelpDialog):
            open_kept(self, HelpDialog, self.screen)

    def action_focus_help(self) -> None:
        from llamagym_tui.screens.help.help import FocusHelp, HelpDialog

        if isinstance(self.screen, HelpDialog):
            self.screen.dismiss()
        else:
            self.push_screen(FocusHelp(self.screen))

    def on_resize(self, event: Resize) -> None:
        """Have the focus survive a terminal that is too small, in which Textual takes it from hidden widgets."""
        if is_too_small(event.size):
            for screen in self.screen_stack:
                if screen.focused is not None:
                    give_back = partial(self._give_back, screen, screen.focused)
                    screen.screen_layout_refresh_signal.subscribe(self, give_back, immediate=True)

    def _give_back(self, screen: Screen[object], widget: Widget, laid_out: object) -> None:
        """Focus the widget again once it is visible, unless another one has the focus by now."""
        if is_too_small(self.size):
            return
        if screen.focused is None and widget.is_attached and not widget.focusable:
            return  # not styled for its new size yet
        screen.screen_layout_refresh_signal.unsubscribe(self)
        if screen.focused is None and widget.is_attached:
            screen.set_focus(widget, scroll_visible=False)
