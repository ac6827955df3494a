"""The state of an environment as plain text for people: the agent's own drawing, or what the environment renders.

Bounded, and without a renderer's colour codes; what other people's code raises over it is no drawing.
"""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from llamagym_tui.game.agent_base import AgentBase
from llamagym_tui.game.observed import NO_INFO, Info, called

MAX_LINES = 12
MAX_COLUMNS = 120
_COLOUR = re.compile(r"\x1b\[([0-9;]*)m")
"""What changes the colour of a terminal; 0 or nothing: back to its own."""


class Drawing(NamedTuple):
    """Some lines of text, and the places in it that are marked."""

    text: str
    marks: tuple[tuple[int, int], ...] = ()
    """First character of each, and the one after its last."""

    def bracketed(self) -> str:
        """The text alone, each mark in brackets."""
        pieces, at = [], 0
        for start, stop in self.marks:
            pieces += [self.text[at:start], "[", self.text[start:stop], "]"]
            at = stop
        return "".join([*pieces, self.text[at:]])


def draws(agent: AgentBase) -> bool:
    return type(agent).draw is not AgentBase.draw


def renders_text(env: Any, env_kwargs: Mapping[str, Any]) -> bool:
    """Whether an environment could be made so that it renders text, and no other mode was chosen."""
    return "render_mode" not in env_kwargs and "ansi" in (
        (env.metadata or {}).get("render_modes") or ()
    )


def drawn(agent: AgentBase, env: Any, observation: Any, info: Info = NO_INFO) -> Drawing:
    """The drawing of an observation, or of the environment's state; empty if there is none."""
    try:
        if draws(agent):
            return Drawing(_bounded(str(called(agent.draw, observation, info=info))))
        rendered = env.render() if env.render_mode == "ansi" else ""
        return _with_marks(_bounded(rendered)) if isinstance(rendered, str) else Drawing("")
    except Exception:  # an environment's code, or a user's, may raise anything
        return Drawing("")


def revealed(agent: AgentBase, env: Any, observation: Any, info: Info) -> str:
    """What the game hid until the episode was over; empty: nothing."""
    try:
        return _bounded(str(called(agent.reveal, observation, info=info, env=env)))
    except Exception:  # a user's code, or an environment of another kind
        return ""


def _bounded(text: str) -> str:
    """The first lines of a text, each cut; empty lines around them are left out."""
    lines = (
        text[: MAX_LINES * 10 * MAX_COLUMNS]
        .replace("\r\n", "\n")
        .strip("\n")
        .split("\n")[:MAX_LINES]
    )
    return "\n".join(line.rstrip("\r").expandtabs(4)[:MAX_COLUMNS] for line in lines)


def _with_marks(text: str) -> Drawing:
    """The text without codes of colour, what they colour marked."""
    pieces = _COLOUR.split(text)
    plain, length, began = pieces[:1], len(pieces[0]), -1
    marks: list[tuple[int, int]] = []
    for code, piece in zip(pieces[1::2], pieces[2::2], strict=True):
        if began >= 0 and length > began:
            marks.append((began, length))
        began = length if code.strip("0;") else -1
        plain.append(piece)
        length += len(piece)
    return Drawing(
        "".join(plain), (*marks, (began, length)) if 0 <= began < length else tuple(marks)
    )
