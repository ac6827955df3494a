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
from llamagym_tui.state.play_counts import Played
from llamagym_tui.state.prompts import named
from llamagym_tui.state.run import RunState

MOST_ACTIONS = 4
"""Actions that are compared; of more, those of which the share has changed most."""
NONE = "\N{EN DASH}"
NAME_WIDTH, SIDE_WIDTH = 12, 15


class Row(NamedTuple):
    name: str
    train: str
    inference: str


class ActionShares(NamedTuple):
    """How often an action was chosen, of the replies that named one; None: none did."""

    name: str
    train: float | None
    inference: float | None


def action_shares(state: RunState) -> list[ActionShares]:
    """The shares of the actions, or of those that changed most."""
    train, inference = state.play.train, state.play.inference
    names = state.run.action_names if state.run else []
    found = [
        ActionShares(one_line(name), train.action_share(at), inference.action_share(at))
        for at, name in enumerate(names)
    ]
    found = [each for each in found if each[1:] != (None, None)]
    if len(found) > MOST_ACTIONS:
        found.sort(key=lambda each: -abs((each.train or 0.0) - (each.inference or 0.0)))
    return found[:MOST_ACTIONS]


def rows(state: RunState) -> list[Row]:
    sides = state.play.train, state.play.inference
    return [
        Row("counted", f"last {RECENT:,}", "since a change"),
        Row("episodes", *(f"{played.returns.episodes:,}" for played in sides)),
        Row(RETURN, *map(_mean, sides)),
        *([Row("return in", one_line(state.return_unit), "")] if state.return_unit else []),
        *(Row(each.name, _share(each.train), _share(each.inference)) for each in action_shares(state)),
        Row("parse fail", *(_share(played.failure_share) for played in sides)),
        Row("temperature", *map(_temperature, sides)),
        Row("update", *(f"{played.update:,}" if played.manner else NONE for played in sides)),
        Row("prompt", *_prompts(state, sides)),
    ]


def _share(value: float | None) -> str:
    return NONE if value is None else share(value)


def _prompts(state: RunState, sides: Sequence[Played]) -> list[str]:
    """The prompt of each side; one that is the same goes across both."""
    names = [named(state.prompts, played.manner.prompt_version) if played.manner else NONE for played in sides]
    if names[0] == names[1]:
        return [textwrap.shorten(names[0], 2 * SIDE_WIDTH, placeholder=" …"), ""]
    return [textwrap.shorten(name, SIDE_WIDTH - 1, placeholder=" …") for name in names]


def _mean(played: Played) -> str:
    mean = played.returns.mean_return
    return NONE if mean is None else mean.text


def _temperature(played: Played) -> str:
    return f"{played.manner.temperature:.3g}" if played.manner else NONE


class ComparisonColumn(StateText):
    """A table for the side of a wide terminal."""

    def content_at(self, width: int) -> Content:
        head = Content.assemble(
            (" " * NAME_WIDTH, NAME), (f"{'train':<{SIDE_WIDTH}}", "bold $text-success"), ("inference", "bold $warning")
        )
        return Content("\n").join([head, *map(self._line, rows(self.state))])

    @staticmethod
    def _line(row: Row) -> Content:
        style = NAME if row.name == "counted" else VALUE
        name = Content.styled(row.name, NAME).truncate(NAME_WIDTH - 1, ellipsis=True)
        return Content.assemble(
            name.pad_right(NAME_WIDTH - name.cell_length), (f"{row.train:<{SIDE_WIDTH}}", style), (row.inference, style)
        )


class ComparisonStrip(StateText):
    """Three rows for a narrow terminal: each mode, then the actions from training to inference."""

    def content_at(self, width: int) -> Content:
        state = self.state
        train, inference = state.play.train, state.play.inference
        modes = [
            self._mode("train", "bold $text-success", train, width),
            self._mode("inference", "bold $warning", inference, width),
        ]
        actions = Content.styled(f"{'± 95 %':<10}", NAME)
        unit = Content.styled(f"return in {one_line(state.return_unit)}" if state.return_unit else "", NAME)
        for row in action_shares(state):
            change = "→".join(NONE if part is None else share(part, 0) for part in row[1:])
            actions += Content.assemble((f"{row.name} ", NAME), (change, VALUE), "  ")
        return Content("\n").join([line.truncate(width, ellipsis=True) for line in (*modes, actions + unit)])

    @staticmethod
    def _mode(name: str, style: str, played: Played, width: int) -> Content:
        """Mode, mean return, episodes, and whatever else there is room for."""
        line = Content.assemble((f"{name:<10}", style), (f"{_mean(played):<15}", VALUE))
        line += Content.styled(f"{played.returns.episodes:>6,} ep", VALUE)
        prompt = f"v{played.manner.prompt_version}" if played.manner else NONE
        for label, value in (
            ("fail", f"{_share(played.failure_share):<5}"),
            ("temp", f"{_temperature(played):<4}"),
            ("prompt", prompt),
        ):
            cell = Content.assemble((f"  {label} ", NAME), (value, VALUE))
            if line.cell_length + cell.cell_length > width:
                break
            line += cell
        return line
