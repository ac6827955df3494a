"""A text about a run that is drawn anew only when the state or its own size changes."""

from __future__ import annotations

from textual.content import Content
from textual.widget import Widget

from llamagym_tui.state.run import RunState


class StateText(Widget):
    """A text of a fixed height about a run."""

    def __init__(self, state: RunState, *, id: str) -> None:
        """Text about a run."""
        super().__init__(id=id)
        self.state = state

    def show(self, state: RunState) -> None:
        """Tell another state."""
        if state is not self.state:
            self.state = state
            self.refresh()

    def render(self) -> Content:
        """The text at the present width."""
        return self.content_at(self.content_size.width)

    def content_at(self, width: int) -> Content:
        """The text for a width in cells."""
        raise NotImplementedError
