"""Comparisons on the same seeds in words: what is done otherwise, what that earns, and how sure it is."""

import math
from collections.abc import Sequence

from llamagym_tui.protocol.events import PromptsCompared, RunStarted
from llamagym_tui.protocol.literal import one_line
from llamagym_tui.returns import MeanReturn, counted, margin, signed, with_unit
from llamagym_tui.state.prompts import Versions, named


def difference_text(by: MeanReturn, unit: str, more: str = "") -> str:
    """A mean difference over pairs of episodes, with its interval; `more` stands behind how many there are."""
    half = margin(by.stderr)
    chance = ", which may be chance" if abs(by.mean) <= half else ""
    pairs = f"{counted(by.episodes, 'pair')} of episodes on the same seeds"
    return f"{with_unit(f'{signed(by.mean)} ± {half:,.3f}', unit)}{chance} (95 %, {pairs}{more})"


def compared_text(
    found: PromptsCompared, actions: Sequence[str], unit: str, a: str = "A", b: str = "B"
) -> str:
    """One sentence on a comparison; `a` and `b` name its sides."""
    doing = "against"
    if found.shares and actions:
        before, after = found.shares
        at = max(range(len(actions)), key=lambda action: abs(after[action] - before[action]))
        ratio = after[at] / before[at] if before[at] else math.inf
        more = (
            f"{abs(ratio - 1):.0%} {'more' if ratio > 1 else 'less'} often than"
            if ratio < math.inf
            else "unlike"
        )
        doing = (
            f"takes {one_line(actions[at])} {more}"
            if ratio != 1
            else "takes each action as often as"
        )
    half = margin(found.difference_stderr)
    wide = f"; not yet ± {found.enough:.3g}" if half > found.enough else ""
    by = MeanReturn(found.difference, found.difference_stderr, found.pairs)
    return f"{b} {doing} {a}: {difference_text(by, unit, wide)}."


def prompts_text(found: PromptsCompared, versions: Versions, run: RunStarted | None) -> str:
    """One sentence on a comparison of a run's prompts, by their names, with the policy's update."""
    a, b = (
        named(versions, each.prompt_version or 0, each.system_prompt) for each in (found.a, found.b)
    )
    actions, unit = (run.action_names, run.return_unit) if run else ([], "")
    return f"At update {found.a.update or 0:,} {compared_text(found, actions, unit, a, b)}"
