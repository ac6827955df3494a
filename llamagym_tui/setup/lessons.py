"""Lessons: short guided experiments, each a TOML file in `llamagym_tui/lessons`.

A lesson's checks are statements about figures that its runs record. The file also says what was measured, and by which
command.
"""

import math
import re
from collections.abc import Collection, Sequence
from functools import cache
from pathlib import Path
from statistics import median
from typing import Literal

import msgspec
from msgspec import Struct

from llamagym_tui.config import RunConfig, UpdateStats
from llamagym_tui.config.typed import assigned, settings
from llamagym_tui.errors import ConfigError, UsageError
from llamagym_tui.run_store import ABOUT_FILE
from llamagym_tui.setup.run_config import run_config, with_run_dir
from llamagym_tui.user_files import file_text, replace_file

NAMED = re.compile(r"\{([\w.]+)\}")
"""How a text names a key: the id of its binding."""
FOLDER = Path(__file__).parents[1] / "lessons"


class Check(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A statement about a run: a figure of its updates is above or below a number."""

    figure: str
    """A field of `UpdateStats`."""
    last: int = 5
    """The median over so many updates at the end counts, because the KL of a single one can jump a hundredfold."""
    less_control: bool = False
    """Whether the same figure of the control run is subtracted."""
    holds: Literal["above", "below"]
    bound: float

    def __post_init__(self) -> None:
        if self.figure not in UpdateStats.__struct_fields__:
            raise ValueError(f"{self.figure!r} is no figure of an update")

    def measured(self, run: Sequence[UpdateStats], control: Sequence[UpdateStats]) -> float:
        """The figure by the updates of both runs; NaN, for which no statement holds, if there were no updates."""
        figure = self._median(run)
        return figure - self._median(control) if self.less_control else figure

    def _median(self, run: Sequence[UpdateStats]) -> float:
        values = [getattr(stats, self.figure) for stats in run[-self.last :]]
        return median(values) if values else math.nan

    def is_true(self, measured: float) -> bool:
        return measured > self.bound if self.holds == "above" else measured < self.bound

    @property
    def statement(self) -> str:
        """The statement in words, for people."""
        over = f"median of the last {self.last} updates" if self.last > 1 else "last update"
        less = ", less the control run's" if self.less_control else ""
        return f"{self.figure.replace('_', ' ')} ({over}{less}) is {self.holds} {self.bound:g}"


WHOLE_MODEL = "full_finetuning=true"
"""Lessons are of a model that is trained whole, unless their own settings say otherwise: all settings count there."""


class Lesson(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An experiment with a question: what to run, what to look at, and what should come out."""

    title: str
    shows: str
    """What the lesson shows, in one sentence."""
    agent: str
    minutes: float
    """Minutes that its check takes on a laptop, for both runs together."""
    episodes: int
    """Episodes after which each of the two runs ends when the lesson is checked."""
    settings: list[str]
    """Settings of the run, each NAME=VALUE as ``--set`` takes it; a prompt is ``system_prompt=…``."""
    control: list[str] = []
    """Settings of the control run; none: the agent's own settings."""
    steps: list[str]
    """What to do, step by step."""
    look: str
    """Where to look."""
    guess: str
    """A question about what will be measured, to be answered before it is."""
    guesses: list[str]
    """Answers to choose from."""
    measured: int
    """Number of the answer that was measured, from 1."""
    question: str
    answer: str
    checks: list[Check]

    def __post_init__(self) -> None:
        settings([*self.settings, *self.control])  # raises UsageError if one has a fault
        if self.measured not in range(1, len(self.guesses) + 1):
            raise ValueError(f"there is no guess {self.measured}")

    def text(self, done: Collection[str] = ()) -> str:
        """The lesson for people, without the answer; keys stand in it by the ids of their bindings in braces.

        Args:
            done: ids of the bindings that were used since it began.
        """
        return f"{self.shows}\n\n{self.to_do(done)}"

    def to_do(self, done: Collection[str] = ()) -> str:
        """The same without what it shows, which would give the guess away."""
        steps = "\n".join(
            f"{number}. {'✓ ' if is_done else ''}{step}"
            for number, (step, is_done) in enumerate(self.progress(done), 1)
        )
        return f"{steps}\n\nLook at: {self.look}\n\nQuestion: {self.question}"

    def progress(self, done: Collection[str]) -> list[tuple[str, bool]]:
        """Each step, and whether it is done: its keys were used, or if it names none, one of the step after it."""
        named = [set(NAMED.findall(step)) for step in self.steps]
        found: list[tuple[str, bool]] = []
        for step, keys, later in zip(self.steps, named, [*named[1:], set()], strict=True):
            is_done = keys <= set(done) if keys else not later.isdisjoint(done)
            found.append((step, is_done))
        return found

    def next_step(self, done: Collection[str]) -> str:
        """The first step that is not done, with its number; empty: all are."""
        for number, (step, is_done) in enumerate(self.progress(done), 1):
            if not is_done:
                return f"step {number} of {len(self.steps)}: {step}"
        return ""

    def told(self, guessed: int) -> str:
        """The answer, after what was guessed (from 1; 0: nothing) and what was measured."""
        measured = f"Measured: {self.guesses[self.measured - 1]}."
        if not guessed:
            return f"{self.guess}\n{measured}\n\n{self.answer}"
        hit = "as you guessed" if guessed == self.measured else "not what you guessed"
        guess = f"You guessed: {self.guesses[guessed - 1]}."
        return f"{self.guess}\n{guess} {measured} That is {hit}.\n\n{self.answer}"


def read_lesson(path: Path) -> Lesson:
    """A lesson from its file. Raises ConfigError if the file has a fault."""
    try:
        return msgspec.toml.decode(file_text(path), type=Lesson)
    except (OSError, ValueError, UsageError) as error:
        raise ConfigError(
            f"The lesson {path} has a fault that has to be repaired: {error}"
        ) from error


@cache
def lessons() -> dict[str, Lesson]:
    """All lessons by name, in the order of the numbers in their files' names."""
    found = {}
    for path in sorted(FOLDER.glob("*.toml")):
        _, _, name = path.stem.partition("-")
        found[name] = read_lesson(path)
    return found


def begun(
    name: str,
    *,
    control: bool = False,
    episodes: int | None = None,
    final_episodes: int | None = None,
) -> RunConfig:
    """Settings of a new run of a lesson, or of its control run; the run's folder is made, and says which lesson it is.

    Args:
        episodes: as in `RunConfig`. None: its default.
        final_episodes: as in `RunConfig`. None: its default.
    """
    lesson = lessons()[name]
    assignments = [WHOLE_MODEL]
    assignments += lesson.control if control else lesson.settings
    given = assigned(assignments)
    if episodes is not None:
        given["episodes"] = episodes
    if final_episodes is not None:
        given["final_episodes"] = final_episodes
    config = with_run_dir(run_config(lesson.agent, given))
    which = f"{name}, control" if control else name
    replace_file(Path(config.run_dir) / ABOUT_FILE, f"{which}: {lesson.title}".encode())
    return config
