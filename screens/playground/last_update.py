"""What the last update did, where there is room for it beside the figures; the key `U` shows all of it anywhere."""

from textual.content import Content

from llamagym_tui.screens.policy_map.changes import changes_text
from llamagym_tui.screens.widgets.run_header import StateText
from llamagym_tui.state.run import RunState


class LastUpdate(StateText):
    DEFAULT_CSS = "LastUpdate { height: 1fr; margin-top: 1; }"

    def show(self, state: RunState) -> None:
        before = self.state
        if (state.film, state.updates) != (before.film, before.updates):
            super().show(state)

    def content_at(self, width: int) -> Content:
        if not self.state.updates:
            return Content("")
        lines = changes_text(self.state).split("\n", allow_blank=True)
        return Content("\n").join([_short(line, width) for line in lines])


def _short(line: Content, width: int) -> Content:
    """A line on one row, without its columns; a sentence as long as it is."""
    if "  " not in line.plain:
        return line
    lead, *rest = [each for each in line.plain.split("  ") if each.strip()]
    words = Content.assemble((f"{lead.strip()} ", "bold"), " ".join(" ".join(rest).split()))
    return words.truncate(width, ellipsis=True)
