"""Results of a run in words: evaluations, warm starts, measured settings, and comparisons on the same seeds."""

from llamagym_tui.protocol import events
from llamagym_tui.protocol.events import PromptsCompared, RunStarted
from llamagym_tui.settings import MOST_UNREAD, RunConfig, flat
from llamagym_tui.state.prompts import Versions, named
from llamagym_tui.state.returns import (
    MeanReturn,
    counted,
    evaluated_return,
    left_text,
    margin,
    plus_minus,
    with_unit,
)

BARS = "▁▂▃▄▅▆▇█"
"""Heights in eighths of a character."""


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


def evaluation_text(event: events.EvaluationFinished, unit: str) -> str:
    """The result of an evaluation, as one line."""
    mean = evaluated_return(event)
    how = "greedy" if event.greedy else "sampled"
    played = counted(mean.episodes, f"{how} episode")
    return f"Evaluation: mean return {with_unit(mean.text, unit)} over {played}"


def warm_start_text(event: events.WarmStartFinished) -> str:
    """A warm start in one line."""
    what = "demonstration" if event.method == "sft" else "preference pair"
    stats = event.stats
    how = "cancelled after" if stats.cancelled else "trained in"
    return (
        f"{counted(stats.demonstrations, what)}, {how} {counted(stats.steps, 'step')} "
        f"and {stats.elapsed_s:,.0f} s; loss {stats.first_loss:.3f} → {stats.last_loss:.3f}"
    )


def comparison_text(event: events.WarmStartEvaluated, unit: str = "") -> str:
    """The change by a warm start, in one line."""
    before = event.before
    after = event.after
    if not before.episodes or not after.episodes:
        return f"Before and after the warm start cannot be compared: no episode ended in {before.elapsed_s:,.0f} s"
    played = f"{before.episodes:,} and {after.episodes:,} sampled episodes"
    if before.episodes == after.episodes:
        played = f"{counted(before.episodes, 'sampled episode')} each"
    return (
        f"Warm start: replies without an action {before.parse_failure_rate:.1%} → {after.parse_failure_rate:.1%}, "
        f"mean return {evaluated_return(before).text} → {with_unit(evaluated_return(after).text, unit)}, over {played}"
    )


def measured_text(event: events.SettingsMeasured) -> str:
    """The settings that the first batch has changed, with the reasons, as one line; one that it has not, if all are."""
    usual = flat(RunConfig(agent="", run_dir=""))
    reasons = list(event.reasons.values())
    of_changed = [
        why for name, why in event.reasons.items() if event.values.get(name) != usual.get(name)
    ]
    return "; ".join(of_changed or reasons[:1])


def depth_text(event: events.DepthMeasured) -> str:
    """Where in the model the game is seen: for each value a bar for each number of layers, in 70 cells."""
    bars, shares = [], []
    for name, explained in zip(event.values, zip(*event.explained, strict=True), strict=True):
        best = max(explained)
        top = len(BARS) - 1
        drawn = "".join(BARS[round(share / max(best, 0.01) * top)] for share in explained)
        bars.append(f"{name.removeprefix('next ')} {drawn}")
        shares.append(f"{best:.0%} of the {name}")
    layers = ", ".join(str(number) for number in event.layers)
    return (
        f"Layers {event.layers[0]}–{event.layers[-1]}: {'  '.join(bars)}; bars: how much is foretold after "
        f"{layers} layers, at best {', '.join(shares)}"
    )


def progress_text(event: events.Progressed) -> str:
    """Progress as ``reading prompts: 34 of 128, 8 s left``."""
    return f"{event.doing}: {event.done:,} of {event.total:,}{left_text(event.left_s)}"
