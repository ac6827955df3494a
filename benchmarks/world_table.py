"""The table of worlds in Markdown, from what `worlds` has recorded: a row a world, medians of the seeds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from benchmarks.world_rows import Row

Record = dict[str, Any]
"""A line of the results: a run at a mark, or what is known of a world without one."""
NONE = "—"


def mark_of(records: Sequence[Record], minutes: float) -> Record | None:
    """The record of a run at a mark."""
    return next((each for each in records if each["minutes"] == minutes), None)


def table(
    rows: Mapping[str, Row], records: Sequence[Record], marks: Sequence[float], seeds: int
) -> str:
    """The whole table.

    Args:
        marks: minutes, the smallest first.
        seeds: that are needed for a row to have what is wanted.
    """
    at = ", ".join(f"{mark:g}" for mark in marks)
    last = f"{marks[-1]:g}"
    heads = [
        "world", "random", "best", f"MLP, {last} min", f"batches at {at} min", f"greedy at {at} min",
        f"sampled, {last} min", f"turns, {last} min", "wanted", "reached",
    ]  # fmt: skip
    lines = [heads, ["---"] * len(heads)]
    for name, row in rows.items():
        lines.append(
            cells(name, row, [each for each in records if each["world"] == name], marks, seeds)
        )
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def cells(
    name: str, row: Row, records: Sequence[Record], marks: Sequence[float], seeds: int
) -> list[str]:
    model = [each for each in records if each["player"] == "model"]
    mlp = [each for each in records if each["player"] == "mlp"]
    known = next((each for each in records if each["player"] == "reference"), {})
    final = returns(model, marks[-1], "greedy")
    turns = [each["turns"] for each in model if each["minutes"] == marks[-1]]
    batches = ", ".join(middle(batch_returns(model, mark, "batches")) for mark in marks)
    first = middle(batch_returns(model, marks[0], "first_batch"))
    greedy = ", ".join(middle(returns(model, mark, "greedy")) for mark in marks)
    if row.demonstrations:
        greedy = f"warm start {middle(returns(model, 0, 'greedy'))} → {greedy}"
    if len(final) > 1:
        greedy += f" ({number(min(final))} to {number(max(final))})"
    wanted = number(row.wanted)
    if row.sampled is not None:
        wanted += f", sampled {number(row.sampled)}"
    if row.turns:
        wanted += f" within {row.turns:,} turns"
    return [
        name,
        number(known.get("random")),
        number(known.get("optimal", known.get("expert"))),
        middle(returns(mlp, marks[-1], "greedy")),
        f"first {first} → {batches}",
        greedy,
        middle(returns(model, marks[-1], "sampled")),
        f"{median(turns):,.0f}" if turns else NONE,
        wanted,
        outcome(row, model, marks[-1], seeds),
    ]


def outcome(row: Row, model: Sequence[Record], last: float, seeds: int) -> str:
    """Whether the median has what is wanted; and, where turns count, after how many."""
    if len(returns(model, last, "greedy")) < max(seeds, 1):
        return NONE
    if row.turns:
        runs: dict[int, list[Record]] = defaultdict(list)
        for each in model:
            runs[each["seed"]].append(each)
        firsts = [first_to_reach(row, run) for run in runs.values()]
        reached = [each for each in firsts if each is not None]
        if 2 * len(reached) <= len(runs):
            return f"**no** ({len(reached)} of {len(runs)} seeds)"
        middle_one = sorted(reached, key=lambda each: each["turns"])[len(runs) // 2]
        return f"yes, after {middle_one['minutes']:g} min, {middle_one['turns']:,} turns"
    greedy = median(returns(model, last, "greedy"))
    has = greedy >= row.wanted and (
        row.sampled is None or median(returns(model, last, "sampled")) >= row.sampled
    )
    if has and row.demonstrations and greedy < median(returns(model, 0, "greedy")):
        return "**no**: lower than before PPO"
    return "yes" if has else "**no**"


def first_to_reach(row: Row, run: Sequence[Record]) -> Record | None:
    """The first record of a run that has what is wanted within its turns."""
    within = (each for each in run if each.get("turns", 0) <= row.turns)
    return next((each for each in within if each["greedy"]["mean_return"] >= row.wanted), None)


def returns(records: Sequence[Record], minutes: float, way: str) -> list[float]:
    """Mean returns at a mark, one a seed."""
    return [each[way]["mean_return"] for each in records if each["minutes"] == minutes]


def batch_returns(records: Sequence[Record], minutes: float, which: str) -> list[float]:
    """Mean returns of batches at a mark; of a run in which no episode has ended by then there is none."""
    found = [each.get(which) for each in records if each["minutes"] == minutes]
    return [value for value in found if value is not None]


def middle(values: Sequence[float]) -> str:
    return number(median(values)) if values else NONE


def number(value: float | None) -> str:
    """As many decimals as a return of its size needs."""
    if value is None:
        return NONE
    if abs(value) < 1:
        return f"{value:.4f}"
    if abs(value) < 10:
        return f"{value:.3f}"
    return f"{value:.1f}"
