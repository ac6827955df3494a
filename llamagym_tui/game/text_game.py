"""TextWorld's text games as Gymnasium environments: a game file, or a game that TextWorld makes once, offline.

What an agent may need stands in `info`: admissible commands, those that win, description, inventory, score.
"""

import itertools
import os
import re
import string
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
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
"""What `info` has, of a game file as far as TextWorld knows it."""
MAY_CHANGE = ("admissible_commands", "description", "inventory", "score")
NOT_OF_THE_GAME = {
    "quit", "q", "restart", "restore", "save", "undo", "oops", "script", "unscript", "noscript", "transcript",
    "recording", "replay", "then",
}  # fmt: skip
"""Words of commands to the interpreter, which would leave the episode or write files, and of several in one."""
MOST_LETTERS = 200
"""Of a command."""
TRIAL_S = 60
"""Seconds that a foreign game has to begin."""
TURNS = 50
"""Of an episode at most, if ``max_episode_steps`` is not given."""


def spec_of(game: str) -> EnvSpec:
    """What `gymnasium.make` makes a game of: the path of a file, or a challenge of TextWorld."""
    maker: Any = TextGame
    return EnvSpec(
        "TextWorld-v0", maker, max_episode_steps=TURNS, order_enforce=False, kwargs={"game": game}
    )


class TextGame(gymnasium.Env[str, str]):
    """A game; an action is a command, and a reward is what the score has gone up by."""

    def __init__(self, game: str, **settings: Any) -> None:
        """Begin a game that is in a file, or one that TextWorld makes by `settings`."""
        import textworld

        if game.startswith("tw-"):
            game = str(made(game, settings))
        else:
            _require_playable(game, Path(game).stat().st_mtime)
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
        known = self._info.get("admissible_commands", ())
        # Other signs are keys of the interpreter's, or begin another command.
        words = re.findall(r"[a-z0-9'-]+", str(action)[:MOST_LETTERS].lower())
        command = action if action in known else " ".join(words)
        if action not in known and (
            not words or words[0].startswith("tw-") or NOT_OF_THE_GAME & set(words)
        ):
            return "That is no command.", 0.0, False, False, {**self._info, "invalid_action": True}
        state, _, done = self._game.step(command)
        before, self._info = self._info, _info(state)
        changed = done or any(self._info.get(name) != before.get(name) for name in MAY_CHANGE)
        info = (
            self._info
            if changed or not known or command in known
            else {**self._info, "invalid_action": True}
        )
        return (
            _text(state),
            float(info.get("score", 0) - before.get("score", 0)),
            bool(done),
            False,
            dict(info),
        )

    def close(self) -> None:
        self._game.close()


@cache
def _require_playable(game: str, changed: float) -> None:
    """Refuse a file on which the interpreter fails, which ends the whole process: it is begun in another one first."""
    begin = "import sys, textworld; textworld.start(sys.argv[1]).reset()"
    try:
        # -P: nothing is imported from the working folder.
        run = _run("-P", "-c", begin, game, timeout=TRIAL_S)
    except subprocess.TimeoutExpired as error:
        raise EnvError(
            f"it is no game that TextWorld can play: it does not begin within {TRIAL_S} s"
        ) from error
    if run.returncode:
        told = (
            run.stdout.strip().splitlines() or [f"its interpreter ended with {run.returncode}"]
        )[-1].strip()
        raise EnvError(f"it is no game that TextWorld can play: {told}")


def _run(*arguments: str, timeout: float | None = None) -> subprocess.CompletedProcess[str]:
    """What Python has run, with all that it wrote as its output."""
    command, out, both = [sys.executable, *arguments], subprocess.PIPE, subprocess.STDOUT
    return subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=both,
        text=True,
        errors="replace",
        timeout=timeout,
    )


def _info(state: Mapping[str, Any]) -> dict[str, Any]:
    return {name: state[name] for name in INFOS if state.get(name) is not None}


def _text(state: Mapping[str, Any]) -> str:
    """What the game wrote, without the picture that it begins with, its status line and empty lines."""
    lines = (line.strip() for line in str(state["feedback"]).splitlines())
    told = itertools.dropwhile(lambda line: not re.search("[A-Za-z]{2}", line), lines)
    return "\n".join(line for line in told if line and not line.startswith(">"))


def made(challenge: str, settings: Mapping[str, Any]) -> Path:
    """The file of a game that ``tw-make`` makes, once for all runs.

    Args:
        challenge: ``tw-simple``, ``tw-cooking`` ….
        settings: options of ``tw-make`` by their names; true stands for one without a value.
    """
    given = {
        name.replace("_", "-"): value
        for name, value in sorted(settings.items())
        if value not in (False, None)
    }
    words = [
        f"--{name}" if value is True else f"--{name}={value}"
        for name, value in ({"seed": 1} | given).items()
    ]
    games = cache_dir() / "games"
    folder = games / re.sub(
        r"[^\w=.-]+", "_", "".join([challenge, *words, "--", version("textworld")])
    )
    make_folder(games)
    with FileLock(games / ".lock"):
        discard_drafts(games)  # whoever made them has let go of the lock
        if not folder.is_dir():
            draft = draft_folder(games)
            maker = Path(sys.executable).with_name("tw-make")
            run = _run(
                str(maker), challenge, *words, "--silent", "--output", str(draft / "game.z8")
            )
            if run.returncode or not (draft / "game.z8").is_file():
                told = (run.stdout.strip().splitlines() or ["it made no game"])[-1]
                raise EnvError(f"tw-make {challenge}: {told.rpartition('error: ')[2]}")
            os.replace(draft, folder)
    return folder / "game.z8"
