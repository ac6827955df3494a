"""A warm start as text: the files there are, how far the training is, and what it changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from textual.content import Content

from llamagym_tui.protocol.events import EvaluationFinished
from llamagym_tui.returns import evaluated_return
from llamagym_tui.screens.demos.recording import Offer
from llamagym_tui.screens.widgets.key_bar import KeyOf
from llamagym_tui.screens.widgets.literal import literal, one_line
from llamagym_tui.screens.widgets.numbers import BARS, number, plain, seconds
from llamagym_tui.state.warm_start import Stage, Teaching

ASIDE = "$foreground 60%"
CURVE = 60
"""Cells of the loss curve at most."""


def offers_text(offers: Sequence[Offer] | None, chosen: int, fault: str, key: KeyOf, *, evaluates: bool) -> Content:
    """The files that could be trained on, with what is wrong with each.

    Args:
        offers: None: they are being read.
        chosen: index of the chosen one.
        fault: why they cannot be read; empty if they can.
        key: tells the key of a binding, from its id and what to say if it has none.
        evaluates: whether the model is evaluated before and after.
    """
    if fault:
        return Content.styled(literal(fault), "$text-error")
    if offers is None:
        return Content.styled("reading and checking the demonstrations …", ASIDE)
    if not offers:
        play, keep = literal(key("table", "h")), literal(key("keep", "k"))
        return Content(f"There are no demonstrations yet: {play} plays some, {keep} keeps the model's.")
    parts = [_offer(offer, index == chosen) for index, offer in enumerate(offers)]
    how = "300 greedy episodes before and after" if evaluates else "no evaluation"
    parts.append(Content.assemble(("v  ", "bold $primary"), (how, ASIDE)))
    return Content("\n").join(parts)


def teaching_text(teaching: Teaching, width: int) -> Content:
    """How far the last warm start is.

    Args:
        teaching: the warm start.
        width: cells that there are.
    """
    if teaching.stage is Stage.NONE:
        return Content("")
    lead = [] if teaching.under_way else [Content("")]  # the files stand above then
    parts = [*lead, Content.styled(_stage(teaching), "bold")]
    if teaching.stage is Stage.REFUSED:
        parts.append(Content.styled(literal(teaching.detail), "$text-error"))
    elif teaching.detail:
        parts.append(Content.styled(one_line(teaching.detail), ASIDE))
    if teaching.steps:
        parts += [_bar(teaching, width), _curve(teaching, width)]
    if teaching.before or teaching.after:
        parts.append(_evaluations(teaching))
    return Content("\n").join(parts)


def _offer(offer: Offer, chosen: bool) -> Content:
    mark = "▶ " if chosen else "  "
    head = Content.assemble((f"{mark}{offer.title}", "bold" if chosen else ""))
    if offer.fault:
        return head + Content.styled(f": refused\n  {literal(offer.fault)}", "$text-error")
    counted = (
        f": {offer.episodes:,} episode{'' if offer.episodes == 1 else 's'}, mean return {number(offer.mean_return, 3)}"
    )
    return Content.assemble(head, counted)


def _stage(teaching: Teaching) -> str:
    match teaching.stage:
        case Stage.NONE:
            return ""
        case Stage.ASKED if teaching.cancelling:
            return "asked for, to be cancelled"
        case Stage.ASKED:
            return "asked for; first the evaluation" if teaching.evaluates and not teaching.before else "asked for"
        case Stage.TRAINING:
            return "training, to be cancelled" if teaching.cancelling else "training"
        case Stage.EVALUATING:
            return "trained; now the evaluation"
        case Stage.REFUSED:
            return "refused, and nothing was trained"
        case Stage.OVER:
            return _over(teaching)
        case _:
            assert_never(teaching.stage)


def _over(teaching: Teaching) -> str:
    result = teaching.result
    if result is None:
        return "the session ended before the training did"
    how = "cancelled" if result.cancelled else "done"
    return f"{how}: {result.steps:,} steps on {result.demonstrations:,} episodes in {seconds(result.elapsed_s)}"


def _bar(teaching: Teaching, width: int) -> Content:
    tail = f" {teaching.step:,} of {teaching.steps:,}"
    room = max(1, min(CURVE, width - len(tail)))
    full = round(room * min(1.0, teaching.step / teaching.steps))
    return Content.assemble(("█" * full, "$primary"), ("░" * (room - full), "$foreground 30%"), (tail, ASIDE))


def _curve(teaching: Teaching, width: int) -> Content:
    losses = teaching.losses
    if not losses:
        return Content("")
    tail = f" loss {plain(losses[0])} → {plain(losses[-1])}"
    room = max(1, min(CURVE, width - len(tail)))
    shown = [losses[index * len(losses) // room] for index in range(room)] if len(losses) > room else losses
    low, high = min(shown), max(shown)
    bars = "".join(BARS[round((loss - low) / ((high - low) or 1.0) * (len(BARS) - 1))] for loss in shown)
    return Content.assemble((f"{bars:<{room}}", "$primary"), (tail, ASIDE))


def _evaluations(teaching: Teaching) -> Content:
    before, after = teaching.before, teaching.after
    figures = [(_mean(before), "bold"), (" → ", ASIDE), (_mean(after), "bold"), (" greedy", ASIDE)]
    if not teaching.under_way and (before is None or after is None):
        when = "after" if before is None else "before"
        figures = [(_mean(before or after), "bold"), (f" greedy, {when} it only", ASIDE)]
    return Content.assemble(
        ("mean return ±95% ", ASIDE),
        *figures,
    )


def _mean(found: EvaluationFinished | None) -> str:
    return "…" if found is None else evaluated_return(found).text
