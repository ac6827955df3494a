"""Tic-tac-toe against opponents of four kinds: by chance, careful, without a fault, or always the same.

Rules, exact minimax and what is told of a board are here; `_tic_tac_toe_env` makes a Gymnasium environment of them, in
which the opponent replies within a step. So a turn, its reward and its tokens are always the policy's own.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

from llamagym_tui.agent import Agent, Drawing, Landmark, Move, Panel, Piece, PolicyMap

EMPTY = "."
MINE = "X"
"""The policy's mark, whoever begins."""
THEIRS = "O"
LINES = (
    (0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6),
)  # fmt: skip
"""The fields of each line, which count from 0 at the top left, row by row."""
OTHER = {MINE: THEIRS, THEIRS: MINE}
START = EMPTY * 9
SIZE = 3
BOARDS = (
    ("begin", START),
    ("reply", "O........"),
    ("reply", "....O...."),
    ("reply", ".O......."),
    ("second", "O...X...."),
    ("second", ".O..X...."),
    ("win", "XX.OO...."),
    ("block", "OO..X...X"),
)
"""The boards of the policy map with their titles; X is to move."""


def free(board: str) -> list[int]:
    """The empty fields."""
    return [field for field, mark in enumerate(board) if mark == EMPTY]


def marked(board: str, field: int, mark: str) -> str:
    return board[:field] + mark + board[field + 1 :]


def winner(board: str) -> str:
    """The mark that has a line; empty: none has."""
    for a, b, c in LINES:
        if board[a] == board[b] == board[c] != EMPTY:
            return board[a]
    return ""


@cache
def value(board: str, mark: str) -> int:
    """The value of a board for whoever moves, if both play without a fault: above 0 won, 0 drawn, below 0 lost.

    The more fields stay empty, the further it is from 0: a win is better sooner, a loss later.
    """
    moves = free(board)
    if winner(board):
        return -1 - len(moves)
    if not moves:
        return 0
    return max(-value(marked(board, field, mark), OTHER[mark]) for field in moves)


@cache
def best(board: str, mark: str) -> tuple[int, ...]:
    """All fields on which whoever moves keeps what the board comes to."""
    wanted = value(board, mark)
    return tuple(
        field for field in free(board) if -value(marked(board, field, mark), OTHER[mark]) == wanted
    )


def careful(board: str, mark: str) -> tuple[int, ...]:
    """The fields that win at once, else those that keep the other from it, else all empty ones."""
    for wins in (mark, OTHER[mark]):
        found = [field for field in free(board) if winner(marked(board, field, wins))]
        if found:
            return tuple(found)
    return tuple(free(board))


OPPONENTS: dict[str, Callable[[str, str], tuple[int, ...]]] = {
    "random": lambda board, mark: tuple(free(board)),
    "careful": careful,
    "expert": best,
    "first": lambda board, mark: (free(board)[0],),
}
"""Fields among which an opponent draws, by its name. `first` draws nothing: a policy may learn its game by heart, which
the others show."""


class TicTacToeAgent(Agent):
    """Plays ``TicTacToe-v0``; an observation is the nine fields as a text of ``X``, ``O`` and ``.``, row by row."""

    history = 0
    env_id = "llamagym_tui.agents._tic_tac_toe_env:TicTacToe-v0"
    env_kwargs = {"opponent": "random+careful+expert"}
    opponents = tuple(OPPONENTS)
    run_settings = {"generation.policy": "score"}
    title = "Tic-tac-toe"
    description = (
        "Three in a row, against one who draws, one who is careful, or one without a fault."
    )
    action_names = (
        "top left", "top middle", "top right", "middle left", "center", "middle right", "bottom left", "bottom middle",
        "bottom right",
    )  # fmt: skip
    action_keys = {str(field + 1): field for field in range(9)}
    baselines = {"random": -0.5444, "expert": 0.4151}
    """Exact mean returns against these opponents, each in a third of the games; a test computes them."""
    return_unit = "a game"
    is_won_or_lost = True

    def get_system_prompt(self) -> str:
        names = ", ".join(
            f'{{"action": {field}}} for {name}' for field, name in enumerate(self.action_names)
        )
        return (
            "You play tic-tac-toe as X: three X in a row, a column or a diagonal win. Empty fields have their number; "
            f"to take another one loses. Reply with {names}."
        )

    def format_observation(self, observation: Any) -> str:
        """The board in three rows, each empty field by its number."""
        board = str(observation)
        signs = [str(field) if mark == EMPTY else mark for field, mark in enumerate(board)]
        return "\n".join(" ".join(row) for row in _squared(signs))

    def draw(
        self, observation: Any, info: Any = None, env: Any = None, player: str = "model"
    ) -> Drawing:
        """The board; a person sees on each empty field its key."""
        keys = {field: key for key, field in self.action_keys.items()}
        pieces = []
        for field, mark in enumerate(str(observation)):
            if mark == EMPTY:
                sign = keys[field] if player == "you" else "·"
                pieces.append(Piece(f" {sign} ", "floor"))
            else:
                pieces.append(Piece(f" {mark} ", "player" if mark == MINE else "danger"))
        return _squared(pieces)

    def expert(self, observation: Any) -> int:
        """A field of exact minimax: of the best ones the center before corners before sides."""
        return min(best(str(observation), MINE), key=lambda field: (field != 4, field % 2))

    def describe_turn(self, observation: Any, action: Any, reward: float) -> str:
        count = 9 - len(free(str(observation)))
        return f"{count} of 9 fields taken"

    def policy_map(self) -> PolicyMap:
        """Boards as they come in play: the first move, the answer to each kind of field, and what a line asks for."""
        panels = [
            Panel(title, [""] * SIZE, [""] * SIZE, _squared(_fields_to_take(board)))
            for title, board in BOARDS
        ]
        return PolicyMap(
            panels,
            signs=MINE.lower() * 9,
            best=lambda board: best(str(board), MINE),
            noun="boards",
        )


def _fields_to_take(board: str) -> list[Move | Landmark]:
    """The fields of a board: a move on each that is empty."""
    fields: list[Move | Landmark] = []
    for field, mark in enumerate(board):
        if mark == EMPTY:
            fields.append(Move(board, field))
        elif mark == MINE:
            fields.append(Landmark(mark, "your mark", "player"))
        else:
            fields.append(Landmark(mark, "their mark", "danger"))
    return fields


def _squared(fields: list[Any]) -> list[list[Any]]:
    """Nine things in three rows."""
    return [fields[row : row + SIZE] for row in range(0, len(fields), SIZE)]
