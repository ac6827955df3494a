"""The state of an environment as text for people: the agent's own drawing, or what the environment renders.

A drawing has a limited size and none of a renderer's colour codes. If other people's code fails, there is none.
"""

import re
from collections.abc import Mapping
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
    """Some lines of text, and the places in it that stand on a ground."""

    text: str
    grounds: tuple[tuple[int, int, str], ...] = ()
    """For each place, the index of its first character, the index after its last, and the ground's name."""


def draws(agent: AgentBase) -> bool:
    """True if the agent draws its observations itself."""
    return type(agent).draw is not AgentBase.draw


def renders_text(env: Any, env_kwargs: Mapping[str, Any]) -> bool:
    """True if an environment can render text and no other render mode was chosen."""
    modes = (env.metadata or {}).get("render_modes") or ()
    return "render_mode" not in env_kwargs and "ansi" in modes


def drawn(
    agent: AgentBase,
    env: Any,
    observation: Any,
    info: Info = NO_INFO,
    *,
    is_over: bool = False,
    player: str = "model",
) -> StateDrawing:
    """The drawing of an observation, or of the environment's state; empty if there is none.

    Args:
        env: the environment, in the state of the observation. None: there is none.
        is_over: the episode has ended, so that what the game hid may be seen.
        player: who plays, in a word.
    """
    offered = {"info": info, "env": env, "player": player}
    try:
        if is_over and (revealed := called(agent.reveal, observation, offered)):
            return joined(revealed)
        if draws(agent):
            return joined(called(agent.draw, observation, offered))
        return _rendered(env.render()) if env.render_mode == "ansi" else StateDrawing("")
    except RAISED:  # an environment's code, or a user's, may raise anything
        return StateDrawing("")


def joined(drawing: Any, most_lines: int = MAX_LINES) -> StateDrawing:
    """A drawing given as text or as lines of pieces."""
    if not isinstance(drawing, list | tuple):
        return StateDrawing(_bounded(str(drawing)))
    lines: list[str] = []
    grounds: list[tuple[int, int, str]] = []
    start_of_line = 0
    for pieces in drawing[:most_lines]:
        line = ""
        for piece in [pieces] if isinstance(pieces, str | Piece) else pieces:
            text, ground = piece if isinstance(piece, Piece) else (str(piece), "")
            start = len(line)
            line = (line + re.sub(r"\s", " ", text))[:MAX_COLUMNS]
            if ground and start < len(line):
                grounds.append((start_of_line + start, start_of_line + len(line), ground))
        lines.append(line)
        start_of_line += len(line) + 1
    return StateDrawing("\n".join(lines), tuple(grounds))


def _bounded(text: str) -> str:
    """The first lines of a text, each cut to the columns that there are, without empty lines before and after."""
    # A foreign text may be very long; codes of colour may take several times the characters that can be seen.
    beginning = text[: MAX_LINES * 10 * MAX_COLUMNS].replace("\r\n", "\n").strip("\n")
    lines = beginning.split("\n")[:MAX_LINES]
    return "\n".join(line.rstrip("\r").expandtabs(4)[:MAX_COLUMNS] for line in lines)


def _rendered(text: str) -> StateDrawing:
    """A renderer's text without codes of colour; what they colour is the player."""
    plain, *codes_and_pieces = _COLOUR.split(_bounded(text))  # a code and the text after it in turn
    grounds: list[tuple[int, int, str]] = []
    for code, piece in zip(codes_and_pieces[0::2], codes_and_pieces[1::2], strict=True):
        start = len(plain)
        plain += piece
        is_coloured = code.strip("0;") != ""
        if is_coloured and piece:
            grounds.append((start, len(plain), "player"))
    return StateDrawing(plain, tuple(grounds))
