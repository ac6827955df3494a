"""Comparisons on the same seeds in words: what one side earns more, and how sure that is."""

from llamagym_tui.protocol.events import PromptsCompared, RunStarted
from llamagym_tui.settings import MOST_UNREAD
from llamagym_tui.state.prompts import Versions, named
from llamagym_tui.state.returns import MeanReturn, counted, margin, plus_minus, with_unit


def difference_text(by: MeanReturn, unit: str, more: str = "") -> str:
    """A mean difference over pairs of episodes, with its interval; `more` is added after the number of pairs."""
    half = margin(by.stderr)
    difference = with_unit(plus_minus(by.mean, half), unit)
    if abs(by.mean) <= half:
        difference += ", which may be chance"
    pairs = f"{counted(by.episodes, 'pair')} of episodes on the same seeds"
    return f"{difference} (95 %, {pairs}{more})"


def compared_text(found: PromptsCompared, unit: str, a: str = "A", b: str = "B") -> str:
    """A comparison in a sentence, and one on each side that mostly names no action; `a` and `b` name the sides."""
    by = MeanReturn(found.difference, found.difference_stderr, found.pairs)
    too_wide = ""
    if margin(by.stderr) > found.enough:
        too_wide = f"; not yet ± {found.enough:.3g}"
    unread = unread_text(found, a, b)
    return f"{b} against {a}: {difference_text(by, unit, too_wide)}.{unread}"


def unread_text(found: PromptsCompared, a: str = "A", b: str = "B") -> str:
    """A sentence, after a space, on each side whose replies name no action in most turns; empty: there is none."""
    return "".join(
        f" {name}'s replies name no action in {side.parse_failure_rate:.0%} of turns, so there the fallback plays."
        for name, side in ((a, found.a), (b, found.b))
        if side.parse_failure_rate > MOST_UNREAD
    )


def prompts_text(found: PromptsCompared, versions: Versions, run: RunStarted | None) -> str:
    """One sentence on a comparison of a run's prompts, by their names, with the policy's update."""
    a = named(versions, found.a.prompt_version or 0, found.a.system_prompt)
    b = named(versions, found.b.prompt_version or 0, found.b.system_prompt)
    unit = run.return_unit if run else ""
    return f"At update {found.a.update or 0:,} {compared_text(found, unit, a, b)}"
