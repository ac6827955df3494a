"""What the last edit of the prompt did, in one line that stays until the next one."""

from collections import Counter
from collections.abc import Iterator

from textual.content import Content

from llamagym_tui.protocol.events import PolicyMapLaidOut, PolicyMapped
from llamagym_tui.protocol.literal import one_line
from llamagym_tui.screens.policy_map.mapped_policy import MappedPolicy
from llamagym_tui.screens.widgets.run_header import StateText
from llamagym_tui.state.run import RunState

FEWEST = 100
"""Episodes before an edit and after it from which on their returns are compared."""
FOLLOWED = 0.1
"""Share of the states that have to be played otherwise, or the prompt counts as not followed."""


def edit_text(state: RunState) -> str:
    """What the last edit did to play and returns; empty: there was none, or nothing is known of it yet."""
    edit = state.edit
    if edit is None:
        return ""
    parts = list(_returns(state))
    if edit.before is not None and edit.after is not None and state.map_layout is not None:
        parts = [*_play(state, state.map_layout, edit.before, edit.after), *parts]
    if not parts:
        return ""
    return f"prompt v{edit.version} since {edit.episode:,}: {'; '.join(parts)}"


def _play(
    state: RunState, layout: PolicyMapLaidOut, before: PolicyMapped, after: PolicyMapped
) -> Iterator[str]:
    """In how many states another action is preferred, and of which action there is more; or that it is not followed."""
    was = MappedPolicy(layout, before).cells
    now = MappedPolicy(layout, after).cells
    pairs: list[tuple[int, int]] = []
    for spot, cell in now.items():
        old, new = was[spot].choice, cell.choice
        if old is not None and new is not None:
            pairs.append((old, new))
    if not pairs:
        return
    others = sum(old != new for old, new in pairs)
    noun = one_line(layout.noun) or "states"
    if others <= FOLLOWED * len(pairs):
        yield f"plays the same in {len(pairs) - others:,} of {len(pairs):,} {noun}"
        yield _not_followed(state)
        return
    yield f"{others:,} of {len(pairs):,} {noun} play otherwise"
    old_counts = Counter(old for old, _ in pairs)
    new_counts = Counter(new for _, new in pairs)
    more = max(new_counts, key=lambda action: new_counts[action] - old_counts[action])
    name = one_line(layout.action_names[more])
    yield f"{name} {old_counts[more] / len(pairs):.0%} → {new_counts[more] / len(pairs):.0%}"


def _not_followed(state: RunState) -> str:
    """That the model does not follow prompts, as far as one that changes little can tell."""
    told = "if it asks for more, this model does not follow prompts"
    if not state.updates:
        return told
    what = (
        "its trained head decides" if state.config.trains_head_alone else "what it learnt decides"
    )
    return f"{told} any more: {what}"


def _returns(state: RunState) -> Iterator[str]:
    """The mean return of the last episodes before the edit, and of the first ones after it."""
    assert state.edit is not None
    versions = {known.version: known for known in state.prompts}
    old = versions.get(state.edit.version_before)
    new = versions.get(state.edit.version)
    if old is None or new is None:
        return
    before = old.under(state.mode).last
    after = new.under(state.mode).first.mean_return
    if before is None or after is None or min(before.episodes, after.episodes) < FEWEST:
        return
    yield f"return {before.text} → {after.text}"


class PromptLine(StateText):
    DEFAULT_CSS = "PromptLine { height: auto; max-height: 2; padding: 0 1; color: $accent; }"

    def show(self, state: RunState) -> None:
        self.state = state
        self.display = bool(edit_text(state))
        text = self.content_at(self.content_size.width)
        if not text.is_same(self._painted):
            self.refresh(layout=True)

    def content_at(self, width: int) -> Content:
        return Content(edit_text(self.state))
