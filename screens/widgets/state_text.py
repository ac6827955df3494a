"""A text about a run, drawn again only when the state or its own size changes."""

from textual.content import Content
from textual.widget import Widget

from llamagym_tui.state.run import RunState


class StateText(Widget):
    def __init__(self, state: RunState, *, id: str) -> None:
        super().__init__(id=id)
        self.state = state

    def show(self, state: RunState) -> None:
        if state is not self.state:
            self.state = state
            self.refresh()

    def render(self) -> Content:
        return self.content_at(self.content_size.width)

    def content_at(self, width: int) -> Content:
        raise NotImplementedError
