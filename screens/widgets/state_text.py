"""A text about a run, painted again only when it or its size changes."""

from textual.content import Content
from textual.widget import Widget

from llamagym_tui.state.run import RunState


class StateText(Widget):
    def __init__(self, state: RunState, *, id: str) -> None:
        super().__init__(id=id)
        self.state = state
        self._painted = Content()

    def show(self, state: RunState) -> None:
        if state is not self.state:
            self.state = state
            if not (self.size and self.content_at(self.content_size.width).is_same(self._painted)):
                self.refresh()

    def render(self) -> Content:
        self._painted = self.content_at(self.content_size.width)
        return self._painted

    def content_at(self, width: int) -> Content:
        raise NotImplementedError
