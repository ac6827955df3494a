"""Text and colours of a cell of a policy map; nothing is shown by colour alone."""

from textual.app import App
from textual.color import Color
from textual.style import Style

from llamagym_tui.protocol.events import PolicyMapLaidOut
from llamagym_tui.protocol.literal import one_line
from llamagym_tui.screens.policy_map.mapped_policy import MappedCell

DIFFERS = "×"
"""Marks a cell in which the policy differs from the best actions that are known."""

BEST = (
    ("optimal", "optimal is", "the optimal strategy"),
    ("the expert", "the expert takes", "the expert's play"),
)
"""What is best, in words, by `PolicyMapLaidOut.best_is_experts`."""
UNKNOWN = "·"
"""Shown where it is not known what the policy does."""
LEVELS = 10
"""Steps of the colour scale."""


def policy_text(layout: PolicyMapLaidOut, cell: MappedCell, width: int) -> str:
    """What the policy does, in `width` cells: a probability, or an action and its probability."""
    if cell.cell.sign:
        return one_line(cell.cell.sign)
    if cell.choice is None:
        return UNKNOWN
    mark = DIFFERS if cell.agrees is False else " "
    if layout.action is not None:
        share = cell.share(layout.action)
        return f"{100 * share:3.0f}{mark}" if width > 3 else f" {_tenth(share)}{mark}"
    sign, share = one_line(layout.signs[cell.choice]), cell.share(cell.choice)
    return f"{sign}{100 * share:3.0f}%{mark}" if width > 5 else f"{sign}{_tenth(share)}{mark}"


def best_text(layout: PolicyMapLaidOut, cell: MappedCell) -> str:
    return one_line(cell.cell.sign or "".join(layout.signs[action] for action in cell.cell.best))


def policy_warmth(layout: PolicyMapLaidOut, cell: MappedCell) -> float | None:
    """Place on the colour scale, 0 to 1; None: no colour."""
    if cell.choice is None:
        return None
    return cell.share(layout.action) if layout.action is not None else 0.5 - 0.5 * cell.share(cell.choice)


def best_warmth(layout: PolicyMapLaidOut, cell: MappedCell) -> float | None:
    """Place of the optimal action on the same scale."""
    action, best = layout.action, cell.cell.best
    if not best:
        return None
    return 0.0 if action is None else 0.5 * ((action in best) + (best == [action]))


def colours(app: App[object], warmth: float | None) -> Style:
    """Colours of a place on the scale, from cold over neutral to warm."""
    if warmth is None:
        return Style()
    level = round(warmth * LEVELS) / LEVELS
    if app.native_ansi_color:
        if 0.3 < level < 0.7:
            return Style()
        return Style(Color.parse("ansi_blue" if level < 0.5 else "ansi_yellow"), Color.parse("ansi_black"))
    cold, neutral, warm = (Color.parse(app.theme_variables[name]) for name in ("secondary", "panel", "warning"))
    ground = neutral.blend(cold if level < 0.5 else warm, abs(level - 0.5) * 2)
    return Style(ground, ground.get_contrast_text(1.0))


def _tenth(share: float) -> int:
    """A probability as one digit: 0 below a tenth, 9 from nine tenths on."""
    return min(int(10 * share), 9)
