"""The state of an environment as text for people: the agent's own drawing, or what the environment renders.

A drawing has a limited size and none of a renderer's colour codes. If other people's code fails, there is none.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from llamagym_tui.errors import RAISED
from llamagym_tui.game.agent_base import AgentBase
from llamagym_tui.game.observed import NO_INFO, Info, called
from llamagym_tui.game.pictures import Piece

MAX_LINES = 12
MAX_COLUMNS = 120
_COLOUR = re.compile(r"\x1b\[([0-9;]*)m")
"""The code that changes a terminal's colour; with 0 or nothing in it, the usual colour comes back."""


class StateDrawing(NamedTuple):
    """Some lines of text, the places in it that are marked, and those that stand on a ground."""

    text: str
    marks: tuple[tuple[int, int], ...] = ()
    """For each marked place, the index of its first character and the index after its last."""
    grounds: tuple[tuple[int, int, str], ...] = ()
    """The same for each place that stands on a ground, with the ground's name."""


def draws(agent: AgentBase) -> bool:
    """True if the agent draws its observations itself."""
    return type(agent).draw is not AgentBase.draw


def renders_text(env: Any, env_kwargs: Mapping[str, Any]) -> bool:
    """True if an environment can render text and no other render mode was chosen."""
    if "render_mode" in env_kwargs:
        return False
    metadata = env.metadata or {}
    return "ansi" in (metadata.get("render_modes") or ())


def drawn(agent: AgentBase, env: Any, observation: Any, info: Info = NO_INFO) -> StateDrawing:
    """The drawing of an observation, or of the environment's state; empty if there is none.

    Args:
        agent: draws, if it can.
        env: the environment, in the state of the observation. None: no environment is.
        observation: what the environment has shown.
        info: what it has added.
    """
    try:
        if draws(agent):
            return _read(called(agent.draw, observation, {"info": info, "env": env}))
        rendered = env.render() if env.render_mode == "ansi" else ""
        return _with_marks(_bounded(rendered)) if isinstance(rendered, str) else StateDrawing("")
    except RAISED:  # an environment's code, or a user's, may raise anything
        return StateDrawing("")


def revealed(agent: AgentBase, env: Any, observation: Any, info: Info) -> StateDrawing:
    """The drawing of an episode's last state with what the game hid until then; empty: it hid nothing."""
    try:
        return _read(called(agent.reveal, observation, {"info": info, "env": env}))
    except RAISED:  # a user's code, or an environment of another kind
        return StateDrawing("")


def _read(drawing: Any) -> StateDrawing:
    """An agent's drawing, given as text or as lines of pieces."""
    if not isinstance(drawing, list | tuple):
        return StateDrawing(_bounded(str(drawing)))
    lines: list[str] = []
    grounds: list[tuple[int, int, str]] = []
    start_of_line = 0
    for pieces in drawing[:MAX_LINES]:
        line = ""
        for text, ground in _pieces(pieces):
            start = start_of_line + len(line)
            line += text[: MAX_COLUMNS - len(line)]
            end = start_of_line + len(line)
            if not ground or start == end:
                continue
            if grounds and grounds[-1][1:] == (start, ground):
                start = grounds.pop()[0]
            grounds.append((start, end, ground))
        lines.append(line)
        start_of_line += len(line) + 1
    return StateDrawing("\n".join(lines), (), tuple(grounds))


def _pieces(line: Any) -> Iterable[tuple[str, str]]:
    """The pieces of a line and the ground of each; all white space is spaces."""
    for piece in [line] if isinstance(line, str | Piece) else line:
        text, ground = piece if isinstance(piece, Piece) else (str(piece), "")
        yield "".join(" " if letter.isspace() else letter for letter in text), ground


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
