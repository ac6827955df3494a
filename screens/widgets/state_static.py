"""A text about a run that is drawn anew only when the state or its own width changes."""

from __future__ import annotations

from textual.content import Content
from textual.events import Resize
from textual.widgets import Static

from llamagym_tui.run_state import RunState


class StateStatic(Static):
    """A static text about a run, drawn anew when the state or its width changes."""

    def __init__(self, state: RunState, *, id: str) -> None:
        """Text about a run."""
        super().__init__(id=id, markup=False)
        self.state = state

    def show(self, state: RunState) -> None:
        """Tell another state."""
        if state is not self.state:
            self.state = state
            self.redraw()

    def on_resize(self, event: Resize) -> None:
        """What fits depends on the width."""
        self.redraw()

    def redraw(self) -> None:
        """Draw, unless nothing would be seen."""
        if self.size:
            self.update(self.content_at(self.size.width), layout=False)

    def content_at(self, width: int) -> Content:
        """The text for a width in cells."""
        raise NotImplementedError
