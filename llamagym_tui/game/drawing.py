"""The state of an environment as plain text for people: the agent's own drawing, or what the environment renders.

A drawing has a limited size and none of a renderer's colour codes. If other people's code fails, there is none.
"""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from llamagym_tui.errors import RAISED
from llamagym_tui.game.agent_base import AgentBase
from llamagym_tui.game.observed import NO_INFO, Info, called

MAX_LINES = 12
MAX_COLUMNS = 120
_COLOUR = re.compile(r"\x1b\[([0-9;]*)m")
"""The code that changes a terminal's colour; with 0 or nothing in it, the usual colour comes back."""


class StateDrawing(NamedTuple):
    """Some lines of text, and the places in it that are marked."""

    text: str
    marks: tuple[tuple[int, int], ...] = ()
    """For each marked place, the index of its first character and the index after its last."""

    def bracketed(self) -> str:
        """The text alone, with each marked place in brackets."""
        pieces = []
        end_of_last = 0
        for start, end in self.marks:
            pieces.append(self.text[end_of_last:start])
            pieces.append(f"[{self.text[start:end]}]")
            end_of_last = end
        pieces.append(self.text[end_of_last:])
        return "".join(pieces)


def draws(agent: AgentBase) -> bool:
    """Whether the agent draws its observations itself."""
    return type(agent).draw is not AgentBase.draw


def renders_text(env: Any, env_kwargs: Mapping[str, Any]) -> bool:
    """Whether an environment could be made so that it renders text, and no other render mode was chosen."""
    if "render_mode" in env_kwargs:
        return False
    metadata = env.metadata or {}
    return "ansi" in (metadata.get("render_modes") or ())


def drawn(agent: AgentBase, env: Any, observation: Any, info: Info = NO_INFO) -> StateDrawing:
    """The drawing of an observation, or of the environment's state; empty if there is none."""
    try:
        if draws(agent):
            return StateDrawing(_bounded(str(called(agent.draw, observation, {"info": info}))))
        rendered = env.render() if env.render_mode == "ansi" else ""
        return _with_marks(_bounded(rendered)) if isinstance(rendered, str) else StateDrawing("")
    except RAISED:  # an environment's code, or a user's, may raise anything
        return StateDrawing("")


def revealed(agent: AgentBase, env: Any, observation: Any, info: Info) -> str:
    """What the game hid until the episode was over; empty: nothing."""
    try:
        return _bounded(str(called(agent.reveal, observation, {"info": info, "env": env})))
    except RAISED:  # a user's code, or an environment of another kind
        return ""


def _bounded(text: str) -> str:
    """The first lines of a text, each cut to the columns that there are, without empty lines before and after."""
    # A foreign text may be very long; codes of colour may take several times the characters that can be seen.
    beginning = text[: MAX_LINES * 10 * MAX_COLUMNS].replace("\r\n", "\n").strip("\n")
    lines = beginning.split("\n")[:MAX_LINES]
    return "\n".join(line.rstrip("\r").expandtabs(4)[:MAX_COLUMNS] for line in lines)


def _with_marks(text: str) -> StateDrawing:
    """The text without codes of colour; the places that they colour are marked."""
    first, *codes_and_pieces = _COLOUR.split(text)  # a code and the text after it in turn
    codes = codes_and_pieces[0::2]
    pieces = codes_and_pieces[1::2]
    plain = first
    marks: list[tuple[int, int]] = []
    for code, piece in zip(codes, pieces, strict=True):
        start = len(plain)
        plain += piece
        is_coloured = code.strip("0;") != ""
        if is_coloured and piece:
            marks.append((start, len(plain)))
    return StateDrawing(plain, tuple(marks))
