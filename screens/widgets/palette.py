"""The command palette, whose line is a text field of ours."""

from textual.app import ComposeResult
from textual.command import CommandInput, CommandPalette

from llamagym_tui.screens.widgets.keys_in_order import KeysInOrder


class PaletteInput(CommandInput, KeysInOrder):
    """Words that choose among commands."""


class Palette(CommandPalette):
    def compose(self) -> ComposeResult:
        """Put our field in the place of Textual's."""
        for widget in super().compose():
            if isinstance(widget, CommandInput):
                yield PaletteInput(placeholder=widget.placeholder, select_on_focus=False)
            else:
                yield widget
