"""The run in figures: how the agent plays in words, the mean return, and what the last update measured."""

from textual.content import Content

from llamagym_tui.protocol.literal import one_line
from llamagym_tui.screens.policy_map.mapped_policy import MappedPolicy
from llamagym_tui.screens.widgets.numbers import baselines, plain, share
from llamagym_tui.screens.widgets.run_header import StateText
from llamagym_tui.state.returns import counted
from llamagym_tui.state.run import RunState


class FirstSight(StateText):
    """How the agent plays, in one sentence."""

    DEFAULT_CSS = (
        "FirstSight { display: none; height: auto; max-height: 2; &.-known { display: block; } }"
    )

    def show(self, state: RunState) -> None:
        self.state = state
        text = first_sight(state)
        self.set_class(bool(text), "-known")
        if text != self._painted.plain:
            is_as_long = len(text) == len(self._painted.plain)
            self.refresh(layout=not is_as_long)

    def content_at(self, width: int) -> Content:
        return Content(first_sight(self.state))


def first_sight(state: RunState) -> str:
    """How the agent plays, in one sentence; empty while that is unknown."""
    layout, mapped = state.map_layout, state.mapped
    played = ""
    if layout is not None and mapped is not None:
        policy = MappedPolicy(layout, mapped)
        gained = policy.count.agreeing - MappedPolicy(layout, state.film[0]).count.agreeing
        played = policy.words
        if played and gained:
            played += f" {'▲' if gained > 0 else '▼'} {abs(gained):,}"
        if played and not state.map_is_present:
            played += f" ({age(state.updates - mapped.update)})"
    return "; ".join(filter(None, (one_line(state.described), played)))


def age(updates: int) -> str:
    """The age of a map in updates; negative if the update was rolled back since."""
    if updates < 0:
        return "before the roll back"
    return f"{counted(updates, 'update')} ago" if updates else "now"


def why_no_figures(state: RunState) -> str:
    """What stands in place of an update's figures."""
    if state.updates:
        return f"the figures of update {state.updates:,} are not kept"
    if not state.live:
        return "no update was made"
    if state.mode == "inference":
        return "no update: nothing is trained"
    if state.phase == "updating":
        return "the first update is under way"
    played, wanted = state.batch_progress
    return f"first update after {wanted:,} turns ({played:,} so far)"


class Figures(StateText):
    """Mean return, baselines and the main figures of the last update, in as many rows as they need."""

    def content_at(self, width: int) -> Content:
        rows = [Content()]
        for name, value in self._figures():
            cell = Content.assemble((f"{name} ", "$aside"), (value, "bold"))
            if rows[-1] and rows[-1].cell_length + 3 + cell.cell_length > width:
                rows.append(Content())
            rows[-1] += Content("   " if rows[-1] else "") + cell
        return Content("\n").join(rows)

    def _figures(self) -> list[tuple[str, str]]:
        state = self.state
        mean, stats = state.recent_mean, state.stats
        has_interval = mean is not None and mean.episodes > 1
        name = "return ±95%" if has_interval else "return"
        found = [(name, "none yet" if mean is None else mean.text)]
        found += [(name, plain(value)) for name, value in baselines(state).items()]
        if state.dropped:
            found.append(("dropped", f"{state.dropped:,}"))
        if stats is None:
            return [*found, (why_no_figures(state), "")]
        found.append(("update", f"{state.updates:,}"))
        found.append(("parse fail", share(stats.parse_failure_rate)))
        if stats.refusal_rate:
            found.append(("refused", share(stats.refusal_rate)))
        return found
