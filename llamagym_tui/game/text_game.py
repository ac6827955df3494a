"""TextWorld's text games as Gymnasium environments: a game file, or a game that TextWorld makes once, offline.

What an agent may need is in `info`: the admissible commands, those that win, description, inventory and score.
"""

import itertools
import os
import re
import string
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import gymnasium
from filelock import FileLock
from gymnasium.envs.registration import EnvSpec

from llamagym_tui.errors import EnvError
from llamagym_tui.user_files import cache_dir, discard_drafts, draft_folder, make_folder

INFOS = (
    "admissible_commands", "policy_commands", "description", "inventory", "objective", "score", "max_score", "won",
    "lost",
)  # fmt: skip
"""Names in `info`; a game file has those that TextWorld knows."""
MAY_CHANGE = ("admissible_commands", "description", "inventory", "score")
"""Names in `info` that show what a command has changed."""
NOT_OF_THE_GAME = {
    "quit", "q", "restart", "restore", "save", "undo", "oops", "script", "unscript", "noscript", "transcript",
    "recording", "replay", "then",
}  # fmt: skip
"""Words of commands to the interpreter, which would leave the episode or write files, and the word that joins two
commands to one."""
MOST_LETTERS = 200
"""Most letters of a command."""
TURNS = 50
"""Most turns of an episode, unless ``max_episode_steps`` is given."""


def spec_of(game: str) -> EnvSpec:
    """The spec from which `gymnasium.make` makes a game; `game` is the path of a file, or a challenge of TextWorld."""
    maker: Any = TextGame
    return EnvSpec(
        "TextWorld-v0", maker, max_episode_steps=TURNS, order_enforce=False, kwargs={"game": game}
    )


class TextGame(gymnasium.Env[str, str]):
    """A text game; an action is a command, and the reward is by how much the score went up."""

    def __init__(self, game: str, **settings: Any) -> None:
        """Begin a game that is in a file, or one that TextWorld makes by `settings`.

        The settings are keyword arguments of any name, because `gymnasium.make` passes an environment's settings so.
        """
        import textworld

        if game.startswith("tw-"):
            game = str(made(game, settings))
        self.action_space = gymnasium.spaces.Text(MOST_LETTERS, charset=string.printable)
        self.observation_space = gymnasium.spaces.Text(10_000, charset=string.printable)
        self._game = textworld.start(game, textworld.EnvInfos(**dict.fromkeys(INFOS, True)))
        self._info: dict[str, Any] = {}

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self._game.seed(seed % 2**15)
        state = self._game.reset()
        self._info = _info(state)
        return _text(state), dict(self._info)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        before = self._info
        admissible = before.get("admissible_commands", ())
        command = action
        if action not in admissible:
            # Other characters are keys of the interpreter, or begin another command.
            words = re.findall(r"[a-z0-9'-]+", str(action)[:MOST_LETTERS].lower())
            if not words or words[0].startswith("tw-") or NOT_OF_THE_GAME & set(words):
                refused = {**before, "invalid_action": True}
                return "That is no command.", 0.0, False, False, refused
            command = " ".join(words)
        state, _, done = self._game.step(command)
        self._info = _info(state)
        reward = float(self._info.get("score", 0) - before.get("score", 0))
        has_changed = done or any(self._info.get(name) != before.get(name) for name in MAY_CHANGE)
        info = dict(self._info)
        if admissible and command not in admissible and not has_changed:
            info["invalid_action"] = True
        return _text(state), reward, bool(done), False, info

    def close(self) -> None:
        self._game.close()


def _info(state: Mapping[str, Any]) -> dict[str, Any]:
    return {name: state[name] for name in INFOS if state.get(name) is not None}


def _text(state: Mapping[str, Any]) -> str:
    """The game's text without the banner, the status line and empty lines."""
    lines = (line.strip() for line in str(state["feedback"]).splitlines())
    # A picture has no two letters side by side.
    after_picture = itertools.dropwhile(lambda line: not re.search("[A-Za-z]{2}", line), lines)
    return "\n".join(line for line in after_picture if line and not line.startswith(">"))


def made(challenge: str, settings: Mapping[str, Any]) -> Path:
    """The file of a game that ``tw-make`` makes, once for all runs.

    Args:
        challenge: ``tw-simple``, ``tw-cooking`` ….
        settings: options of ``tw-make`` by their names; true is for an option without a value.
    """
    given: dict[str, Any] = {"seed": 1}
    for name, value in sorted(settings.items()):
        if value not in (False, None):
            given[name.replace("_", "-")] = value
    options = [
        f"--{name}" if value is True else f"--{name}={value}" for name, value in given.items()
    ]
    games = cache_dir() / "games"
    identity = f"{challenge}{''.join(options)}--{version('textworld')}"
    folder = games / re.sub(r"[^\w=.-]+", "_", identity)
    make_folder(games)
    with FileLock(games / ".lock"):
        discard_drafts(games)  # whoever made them has let go of the lock
        if not folder.is_dir():
            draft = draft_folder(games)
            game = draft / "game.z8"
            maker = Path(sys.executable).with_name("tw-make")
            run = subprocess.run(
                [sys.executable, maker, challenge, *options, "--silent", "--output", game],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
            )
            if run.returncode or not game.is_file():
                last_line = (run.stdout.strip().splitlines() or ["it made no game"])[-1]
                raise EnvError(f"tw-make {challenge}: {last_line.rpartition('error: ')[2]}")
            os.replace(draft, folder)
    return folder / "game.z8"
