"""The class against the model, as lines for the teacher's terminal, a file, and the screen of who has finished.

Every seat has played the same episodes as the model, so the luck of the deal is the same for all. What stands behind a
± is half a 95 % interval: for a mean over that seat's episodes, and for a difference over its pairs with the model's.
"""

from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

from llamagym_tui.demos.human_game import MATCH, MatchAgainstModel
from llamagym_tui.protocol.events import MatchPlayed
from llamagym_tui.protocol.literal import one_line
from llamagym_tui.returns import MeanReturn, counted, margin, mean_return
from llamagym_tui.screens.play.classroom import ClassRecord
from llamagym_tui.state.comparison import difference_text


class ClassLine(NamedTuple):
    text: str
    style: str = ""
    """For a screen."""


def ahead_of(returns: Sequence[float], model: MatchPlayed) -> MeanReturn:
    """By how much more than the model somebody has earned, over the episodes of a match that it has finished, too."""
    pairs = zip(returns, model.returns, strict=True)
    by = mean_return([theirs - its for theirs, its in pairs if its is not None])
    return by or MeanReturn(0.0, 0.0, 0)


def class_lines(
    record: ClassRecord, matches: dict[int, MatchAgainstModel], own: int | None = None
) -> list[ClassLine]:
    """What is known of a class: what it earned as a whole, then a line for each seat, the best first.

    Args:
        own: the seat of who reads it. None: nobody's.
    """
    model = record.match
    over = {seat: match.returns for seat, match in matches.items() if match.is_over}
    means = {f"seat {seat}": _mean(returns) for seat, returns in over.items()}
    ahead = {f"seat {seat}": ahead_of(returns, model) for seat, returns in over.items()}
    means["model"] = _mean([value for value in model.returns if value is not None])
    lines = [ClassLine(text) for text in _sentences(record, list(over.values()))]
    lines.append(ClassLine(""))
    lines.append(ClassLine(f"{'':<10}{'mean return':<20}more than the model", "bold"))
    for name in sorted(means, key=lambda name: -means[name].mean):
        if name == "model":
            lines.append(ClassLine(f"  {name:<8}{means[name].text}", "bold $accent"))
            continue
        mark, style = ("▸ ", "bold") if name == f"seat {own}" else ("  ", "")
        lines.append(
            ClassLine(f"{mark}{name:<8}{means[name].text:<20}{_ahead_text(ahead[name])}", style)
        )
    for seat, match in matches.items():
        if not match.is_over:
            name = f"seat {seat}"
            played = f"{len(match.returns)} of {MATCH} episodes played"
            lines.append(ClassLine(f"  {name:<8}{played}", "$aside"))
    return lines


def _mean(returns: Sequence[float]) -> MeanReturn:
    return mean_return(returns) or MeanReturn(0.0, 0.0, 0)


def _ahead_text(by: MeanReturn) -> str:
    if not by.mean and not by.stderr:
        return "as much, in every episode"
    return f"{by.text}{', which may be chance' if _may_be_chance(by) else ''}"


def _may_be_chance(by: MeanReturn) -> bool:
    return abs(by.mean) <= margin(by.stderr)


def _sentences(record: ClassRecord, over: Sequence[Sequence[float]]) -> list[str]:
    """What the class earned as a whole against the model, and how many seats differ from it."""
    if not over:
        return [f"No seat has played all {MATCH} episodes yet."]
    model = record.match
    # All seats share the luck of an episode, so that the episodes are what the interval is over, and not the seats.
    of_class = [fmean(returns) for returns in zip(*over, strict=True)]
    difference = difference_text(ahead_of(of_class, model), one_line(record.return_unit))
    certain = sum(not _may_be_chance(ahead_of(returns, model)) for returns in over)
    return [
        f"{counted(len(over), 'seat')} against the model: {difference}.",
        f"Apart from it by more than their ±: {certain} of {len(over)}; by chance alone 1 in 20 would be.",
    ]
