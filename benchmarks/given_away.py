"""Boards of tic-tac-toe on which a policy, greedily, gives away what it had: `python -m benchmarks.given_away RUN`.

All boards are looked at that come about while the other player plays anything at all, so that a game that was learnt
by heart shows as boards beside it.
"""

import sys
from collections.abc import Callable, Sequence

import numpy as np

from llamagym_tui.agents.tic_tac_toe import (
    MINE,
    START,
    THEIRS,
    TicTacToeAgent,
    free,
    marked,
    value,
    winner,
)

Fields = Callable[[Sequence[str]], Sequence[int]]
"""The field that a policy takes on each of some boards."""
TOGETHER = 256
"""Boards that are asked of a policy at once."""


def given_away(fields: Fields, boards: Sequence[str]) -> tuple[int, list[tuple[str, int]]]:
    """How many boards come about from these, and those on which a draw or a win becomes a loss, with the field."""
    seen: set[str] = set()
    found: list[tuple[str, int]] = []
    level = sorted(boards)
    while level:
        seen.update(level)
        following: set[str] = set()
        for board, field in zip(level, fields(level), strict=True):
            after = marked(board, field, MINE)
            if value(board, MINE) >= 0 and value(after, THEIRS) > 0:
                found.append((board, field))
            if winner(after):
                continue
            replies = [marked(after, each, THEIRS) for each in free(after)]
            following.update(reply for reply in replies if free(reply) and not winner(reply))
        level = sorted(following - seen)
    return len(seen), found


def fields_of(run: str) -> Fields:
    """The most probable field of a run's policy."""
    from llamagym_tui.cli.headless import Player, quiet_progress
    from llamagym_tui.game.observed import observed
    from llamagym_tui.setup import run_config
    from llamagym_tui.setup.play_config import evaluated_config
    from llamagym_tui.trainer.rollout.opponents import ModelOpponent, Seat

    config = evaluated_config("tic_tac_toe", run_config.checked_model(run), threads=1)
    with quiet_progress(False, episodes=1) as progress:
        player = Player(config, progress)
    policy = ModelOpponent(player.policy, player.prompt, TOGETHER)

    def fields(boards: Sequence[str]) -> list[int]:
        seats = []
        for board in boards:
            mask = np.array([field in free(board) for field in range(9)])
            seats.append(Seat(0, "", [], observed(player.agent, board, {"action_mask": mask})))
        found: list[int] = []
        for start in range(0, len(seats), TOGETHER):
            replies = policy.replies(seats[start : start + TOGETHER], greedy=True)
            found += [player.agent.read(reply).action for reply in replies]
        return found

    return fields


def main(run: str) -> None:
    fields = fields_of(run)
    answers = [marked(START, field, THEIRS) for field in range(9)]
    shown = TicTacToeAgent().format_observation
    for side, boards in (("begins", [START]), ("comes second", answers)):
        count, found = given_away(fields, boards)
        print(f"It {side}: {len(found):,} of {count:,} boards")
        for board, field in found:
            print(f"  {' / '.join(shown(board).splitlines())}: takes {field}")


if __name__ == "__main__":
    main(sys.argv[1])
