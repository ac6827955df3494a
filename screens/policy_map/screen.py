"""The policy map: what the policy does in every state that its agent names, live, beside what is best.

It shows what the trainer told last, and says under which system prompt that was. While it is open on a live run the
trainer is asked to tell the map closely; closed, seldom again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Static

from llamagym_tui.protocol.events import PolicyMapLaidOut, PolicyMapped, RunStarted
from llamagym_tui.screens.conversation.entry_text import LEAST_REST
from llamagym_tui.screens.policy_map.fields import DIFFERS
from llamagym_tui.screens.policy_map.grid import PolicyGrid
from llamagym_tui.screens.policy_map.mapped_policy import Count, MappedCell, MappedPolicy
from llamagym_tui.screens.widgets.key_bar import KeyBar
from llamagym_tui.screens.widgets.literal import one_line
from llamagym_tui.screens.widgets.numbers import number, share
from llamagym_tui.screens.widgets.run_header import RunHeader
from llamagym_tui.screens.widgets.too_small import TooSmall
from llamagym_tui.state.run import RunState

ASIDE = "$foreground 60%"
LONG = 4
"""Rows of what is told of a field, where two are too narrow for it."""


class PolicyMapScreen(Screen[None]):
    """A policy on its map."""

    CSS_PATH = "screen.tcss"
    BINDING_GROUP_TITLE = "Policy map"
    HELP = "What the policy does in each state, as the first turn of an episode, beside what is best there."
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("o", "swap", "Optimal", tooltip="The optimal strategy in place of the policy.", id="map.optimal"),
        Binding("escape,g,q", "back", "Back", tooltip="Back to the conversation.", id="map.back"),
        Binding("question_mark", "app.help", "Help", key_display="?", tooltip="What keys and figures mean.", id="help"),
    ]

    def __init__(self, state: RunState, watch: Callable[[bool], None]) -> None:
        """The map of a run.

        Args:
            state: of the run.
            watch: asks the trainer to tell the map closely, or seldom again.
        """
        super().__init__()
        self._state, self._watch = state, watch
        self._asked_in: RunStarted | None = None
        self._shown: tuple[PolicyMapLaidOut | None, PolicyMapped | None] = (None, None)
        self._older = state.mapped if state.live and _is_older(state) else None
        """The map of an older policy, told while nobody looked."""
        self._first: Count | None = None
        """How far policy and best strategy agreed when it was opened."""

    def compose(self) -> ComposeResult:
        """The count, the fields, and words on the one under the cursor."""
        yield TooSmall()
        yield RunHeader(self._state, id="run-header")
        yield Static(id="map-count", markup=False)
        yield PolicyGrid(id="map-grid")
        yield Static(id="map-field", markup=False)
        yield Static(id="map-legend", markup=False)
        yield KeyBar()

    def on_mount(self) -> None:
        """The fields have the keys."""
        self.query_one(PolicyGrid).focus()
        self.show(self._state)

    def show(self, state: RunState) -> None:
        """Show another state of the run."""
        self._state = state
        self.query_one(RunHeader).show(state)
        if state.live and state.run is not None and state.map_layout is not None and self._asked_in is not state.run:
            self._asked_in = state.run  # a trainer that was started again does not know that somebody looks
            self._watch(True)
        layout, mapped = state.map_layout, state.mapped
        if layout is not None and not layout.why_not and (layout, mapped) != self._shown:
            self._shown = (layout, mapped)
            policy = MappedPolicy(layout, mapped)
            self.query_one(PolicyGrid).show(policy)
            if self._first is None and mapped is not None and mapped is not self._older:
                self._first = policy.count
        self._tell()

    def _tell(self) -> None:
        policy = self.query_one(PolicyGrid).policy
        self.query_one("#map-count", Static).update(self._count(policy))
        self.tell_field()
        self.query_one("#map-legend", Static).update(legend(policy.layout) if policy is not None else Content(""))

    @on(PolicyGrid.Placed)
    def fit(self) -> None:
        """What has room, and what can be done, may be another."""
        self._tell()
        self.refresh_bindings()

    def on_resize(self) -> None:
        """What is told may have room for more, or less."""
        self.call_after_refresh(self._tell)

    @on(PolicyGrid.Pointed)
    def tell_field(self) -> None:
        """Say what the field under the cursor is, on more lines where the map leaves them free."""
        grid, told = self.query_one(PolicyGrid), self.query_one("#map-field", Static)
        words = self._field(grid.policy)
        told.update(words)
        has_room = grid.size.height + told.size.height - grid.virtual_size.height >= LONG
        is_long = any(line.cell_length > told.content_size.width for line in words.split("\n"))
        told.set_class(has_room and (is_long or told.has_class("-long")), "-long")

    def _count(self, policy: MappedPolicy | None) -> Content:
        """How far policy and best strategy agree; on the right, of when and under which prompt that is."""
        if policy is None:
            return Content(why_no_map(self._state))
        if self.query_one(PolicyGrid).best_instead:
            lines = [Content.styled("the optimal strategy; o shows the policy again", "bold")]
        elif policy.mapped is None:
            lines = [Content.styled("the policy has not been asked yet", "$accent")]
        else:
            lines = agreement(policy, self._first)
        width = self.query_one("#map-count").content_size.width
        pairs = [(left, right) for left in lines for right in self._of_when(policy)]
        fitting = [pair for pair in pairs if sum(part.cell_length for part in pair) + 2 <= width]
        left, right = next(iter(fitting), (lines[-1], Content("")))
        return Content.assemble(left, " " * max(1, width - left.cell_length - right.cell_length), right)

    def _of_when(self, policy: MappedPolicy) -> list[Content]:
        """Of which update and prompt the map is, the longest text first."""
        state, mapped = self._state, policy.mapped
        if mapped is None:
            return [Content("")]
        newer = f" (v{state.prompt_version} to come)" if mapped.prompt_version != state.prompt_version else ""
        version = f"v{mapped.prompt_version}{newer}" + (" · live" if state.map_watched and state.live else "")
        return [Content.styled(text, ASIDE) for text in (f"update {mapped.update:,} · prompt {version}", version)]

    def _field(self, policy: MappedPolicy | None) -> Content:
        """The field under the cursor in words."""
        cell = self.query_one(PolicyGrid).pointed
        if policy is None or cell is None:
            return Content("")
        return Content("\n").join([Content.styled(one_line(cell.cell.words), "bold"), field_text(policy, cell)])

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """The best strategy needs no key where it stands beside the policy."""
        if action == "swap":
            grid = self.query_one(PolicyGrid)
            return grid.policy is not None and (not grid.beside or grid.best_instead)
        return super().check_action(action, parameters)

    def action_swap(self) -> None:
        """Show the best strategy in place of the policy, or the policy again."""
        self.query_one(PolicyGrid).swap()
        self._tell()
        self.refresh_bindings()

    def action_back(self) -> None:
        """Back to the run."""
        if self._asked_in is not None:
            self._watch(False)
        self.dismiss()


def _is_older(state: RunState) -> bool:
    """Whether there were updates since the map was told."""
    return state.mapped is not None and state.mapped.update < state.updates


def agreement(policy: MappedPolicy, first: Count | None) -> list[Content]:
    """How far policy and best strategy agree, in words, the longest first."""
    count, layout = policy.count, policy.layout
    if not count.states:
        return [Content("no optimal strategy is known")]
    panels = ""
    if len(layout.panels) > 1:
        counts = zip(layout.panels, policy.counts, strict=True)
        panels = "".join(
            f" · {one_line(panel.title)} {found.agreeing}/{found.states}" for panel, found in counts if found.states
        )
    change = count.agreeing - first.agreeing if first is not None else 0
    signed = number(change)
    named = [f" · {signed} since you opened it", f" · {signed} since opened"] if change else []
    since = [*named, f" · {signed}", ""] if change else [""]
    long, short = (f"agrees on {count.agreeing:,}{of}{count.states:,}" for of in (" of ", "/"))
    return [
        Content.assemble((words, "bold"), parts, (ago, "$accent"))
        for words, parts, told in (
            (f"{long} states", panels, named or [""]),
            (short, panels, since),
            (f"{long} states", "", since),
        )
        for ago in told
    ]


def field_text(policy: MappedPolicy, cell: MappedCell) -> Content:
    """What the policy does in a state, and what is best."""
    layout = policy.layout
    if not cell.shares:
        return Content.styled("nobody acts here" if cell.cell.sign else "not known", ASIDE)
    names = [one_line(name) for name in layout.action_names]
    shares = zip(names, cell.shares, strict=False)
    parts = [f"{n} {share(p, 0)}" if layout.action is None else f"P({n}) {share(p)}" for n, p in shares]
    if layout.action is not None:
        parts.insert(0, parts.pop(layout.action))
    if (rest := 1 - sum(cell.shares)) >= LEAST_REST:
        parts.append(f"other words {share(rest)}")
    if not cell.cell.best:
        return Content(", ".join(parts))
    best = " or ".join(names[action] for action in cell.cell.best)
    verdict = "agrees, optimal is" if cell.agrees else f"{DIFFERS} differs, optimal is"
    return Content.assemble((f"{verdict} {best}", "bold"), f": {', '.join(parts)}")


def legend(layout: PolicyMapLaidOut) -> Content:
    """What the signs mean."""
    signs = " ".join(
        f"{one_line(sign)} {one_line(name)}" for sign, name in zip(layout.signs, layout.action_names, strict=True)
    )
    named = (
        f"P({one_line(layout.action_names[layout.action])})" if layout.action is not None else "the likeliest action"
    )
    axes = next((f"{panel.row_name} × {panel.column_name}" for panel in layout.panels if panel.row_name), "")
    told = [f"{named}, each state as a first turn", signs, f"{DIFFERS} differs from optimal", one_line(axes)]
    return Content.styled(" · ".join(part for part in told if part), ASIDE)


def why_no_map(state: RunState) -> str:
    """Why there is nothing to see, in a sentence."""
    if state.map_layout is not None and state.map_layout.why_not:
        return one_line(state.map_layout.why_not)
    if state.recorded:
        return "Until here nothing was recorded of a policy map."
    if state.run is None:
        return "The map comes with the model." if state.live else "There is no map: the model was never loaded."
    return "This agent names no states for a map; its method policy_map() can."
