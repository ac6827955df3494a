"""Play in training and in inference side by side, in place of PPO's figures, which stand still in inference.

`llamagym_tui.state.play_counts` defines which episodes each side is of.
"""

import textwrap
from collections.abc import Sequence
from typing import NamedTuple

from textual.content import Content

from llamagym_tui.protocol.literal import one_line
from llamagym_tui.returns import RECENT
from llamagym_tui.screens.playground.figures import NAME, RETURN, VALUE
from llamagym_tui.screens.widgets.numbers import share
from llamagym_tui.screens.widgets.state_text import StateText
from llamagym_tui.state.play_counts import PlayCount
from llamagym_tui.state.prompts import named
from llamagym_tui.state.run import RunState

MOST_ACTIONS = 4
"""Actions that are compared; of more, those of which the share has changed most."""
NONE = "\N{EN DASH}"
UNIT = "return in"
NAME_WIDTH = 12
"""Cells of the column of names."""
SIDE_WIDTH = 15
"""Cells of the column of a mode."""
HEADS = ("train", "bold $text-success"), ("inference", "bold $warning")


class ModeRow(NamedTuple):
    name: str
    train: str
    inference: str


def action_rows(state: RunState) -> list[ModeRow]:
    """How often each action was chosen, of the replies that named one; of many actions, those that changed most."""
    train, inference = state.play.train, state.play.inference
    names = state.run.action_names if state.run else []
    found = [
        (name, train.action_share(at), inference.action_share(at)) for at, name in enumerate(names)
    ]
    found = [each for each in found if each[1:] != (None, None)]
    if len(found) > MOST_ACTIONS:
        found.sort(key=lambda each: -abs((each[1] or 0.0) - (each[2] or 0.0)))
    cut = [
        Content(one_line(name)).truncate(NAME_WIDTH - 1, ellipsis=True).plain
        for name, *_ in found[:MOST_ACTIONS]
    ]
    return [
        ModeRow(name, _share(before), _share(now))
        for name, (_, before, now) in zip(cut, found, strict=False)
    ]


def rows(state: RunState) -> list[ModeRow]:
    sides = state.play.train, state.play.inference
    found = [
        ModeRow("counted", f"last {RECENT:,}", "since a change"),
        ModeRow(RETURN, *map(_mean, sides)),
    ]
    if state.return_unit:
        found.append(ModeRow(UNIT, one_line(state.return_unit), ""))
    refused = []
    if any(played.refusals for played in sides):  # few environments refuse anything
        refused = [ModeRow("refused", *(_share(played.refusal_share) for played in sides))]
    return [
        *found,
        ModeRow("episodes", *(f"{played.returns.episodes:,}" for played in sides)),
        ModeRow("parse fail", *(_share(played.failure_share) for played in sides)),
        *refused,
        *action_rows(state),
        ModeRow(
            "temperature",
            *(f"{played.manner.temperature:.3g}" if played.manner else NONE for played in sides),
        ),
        ModeRow("update", *(f"{played.update:,}" if played.manner else NONE for played in sides)),
        ModeRow("prompt", *_prompts(state, sides)),
    ]


def _share(value: float | None) -> str:
    return NONE if value is None else share(value)


def _prompts(state: RunState, sides: Sequence[PlayCount]) -> list[str]:
    """The prompt of each side; one that is the same goes across both."""
    names = [
        named(state.prompts, played.manner.prompt_version) if played.manner else NONE
        for played in sides
    ]
    if names[0] == names[1]:
        return [textwrap.shorten(names[0], 2 * SIDE_WIDTH, placeholder=" …"), ""]
    return [textwrap.shorten(name, SIDE_WIDTH - 1, placeholder=" …") for name in names]


def _mean(played: PlayCount) -> str:
    mean = played.returns.mean_return
    return NONE if mean is None else mean.text


class ComparisonColumn(StateText):
    """A table for the side of a wide terminal, a line each figure."""

    def content_at(self, width: int) -> Content:
        (train, green), (inference, yellow) = HEADS
        lines = [
            Content.assemble(
                " " * NAME_WIDTH, (f"{train:<{SIDE_WIDTH}}", green), (inference, yellow)
            )
        ]
        for row in rows(self.state):
            sides = f"{row.train:<{SIDE_WIDTH}}{row.inference}"
            name = Content.styled(row.name, NAME)
            style = NAME if row.name == "counted" else VALUE
            lines.append(
                name.pad_right(NAME_WIDTH - name.cell_length) + Content.styled(sides, style)
            )
        return Content("\n").join(lines)


class ComparisonStrip(StateText):
    """The same table for a narrow terminal, a column each figure until there is no more room, which "…" says; a
    return's unit before it."""

    def content_at(self, width: int) -> Content:
        heads = (one_line(self.state.return_unit), NAME), *HEADS
        first = max(10, len(heads[0][0]) + 2)
        lines = [Content.styled(f"{head:<{first}}", style) for head, style in heads]
        for row in rows(self.state)[1:]:
            cells = [
                Content.styled(text, style)
                for text, style in zip(row, (NAME, VALUE, VALUE), strict=True)
            ]
            wide = max(cell.cell_length for cell in cells)
            if row.name == UNIT:
                continue
            if lines[0].cell_length + wide >= width:
                lines[0] = lines[0][: width - 1] + Content.styled("…", NAME)
                break
            pairs = zip(lines, cells, strict=True)
            lines = [line + cell.pad_right(wide - cell.cell_length + 2) for line, cell in pairs]
        return Content("\n").join(lines)
