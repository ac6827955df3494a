"""Lessons: short guided experiments, one TOML file each in `llamagym_tui/lessons`.

Checks are statements on figures that the runs record; what was measured stands in the file, with its command.
"""

import math
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any, Literal

import msgspec
from msgspec import Struct

from llamagym_tui.config import RunConfig, UpdateStats
from llamagym_tui.errors import ConfigError, UsageError
from llamagym_tui.run_store import ABOUT_FILE
from llamagym_tui.setup.assignments import settings
from llamagym_tui.setup.run_config import run_config, with_run_dir
from llamagym_tui.user_files import file_text, replace_file

FOLDER = Path(__file__).parents[1] / "lessons"


class Check(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A statement on a run: a figure of its updates is above or below a number."""

    figure: str
    """A field of `UpdateStats`."""
    last: int = 5
    """Updates at the end, of which the median is taken: the KL of a single one can jump a hundredfold."""
    less_control: bool = False
    """Whether the same figure of the control run is subtracted."""
    holds: Literal["above", "below"]
    bound: float

    def __post_init__(self) -> None:
        if self.figure not in UpdateStats.__struct_fields__:
            raise ValueError(f"{self.figure!r} is no figure of an update")

    def measured(self, run: Sequence[UpdateStats], control: Sequence[UpdateStats]) -> float:
        """The figure, by the updates of both runs; NaN where there were none, of which no statement holds."""
        return self._median(run) - (self._median(control) if self.less_control else 0.0)

    def _median(self, run: Sequence[UpdateStats]) -> float:
        values = [getattr(stats, self.figure) for stats in run[-self.last :]]
        return median(values) if values else math.nan

    def is_true(self, measured: float) -> bool:
        return measured > self.bound if self.holds == "above" else measured < self.bound

    @property
    def statement(self) -> str:
        over = f"median of the last {self.last} updates" if self.last > 1 else "last update"
        less = ", less the control run's" if self.less_control else ""
        return f"{self.figure.replace('_', ' ')} ({over}{less}) is {self.holds} {self.bound:g}"


class Lesson(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    title: str
    shows: str
    """In one sentence."""
    agent: str
    minutes: float
    """That its check takes on a laptop, both runs together."""
    episodes: int
    """After which each of both runs ends when it is checked."""
    settings: list[str]
    """NAME=VALUE, as ``--set`` takes them; a prompt is ``system_prompt=…``."""
    control: list[str] = []
    """Those of the control run; none: the agent's own settings."""
    steps: list[str]
    look: str
    question: str
    answer: str
    checks: list[Check]

    def __post_init__(self) -> None:
        settings([*self.settings, *self.control])

    def text(self) -> str:
        """For people, without the answer; keys stand in it by the ids of their bindings in braces."""
        steps = "\n".join(f"{at}. {step}" for at, step in enumerate(self.steps, 1))
        return f"{self.shows}\n\n{steps}\n\nLook at: {self.look}\n\nQuestion: {self.question}"


def read_lesson(path: Path) -> Lesson:
    """A lesson from its file. Raises ConfigError: it has a fault."""
    try:
        return msgspec.toml.decode(file_text(path), type=Lesson)
    except (OSError, ValueError, UsageError) as error:
        raise ConfigError(
            f"The lesson {path} has a fault, to be repaired there: {error}"
        ) from error


@cache
def lessons() -> dict[str, Lesson]:
    """By name, in the order of their files' numbers."""
    return {
        path.stem.partition("-")[2]: read_lesson(path) for path in sorted(FOLDER.glob("*.toml"))
    }


def begun(name: str, *, control: bool = False, **options: Any) -> RunConfig:
    """Settings of a new run of a lesson, whose folder is made and named for it; `options` as `run_config` has them."""
    lesson = lessons()[name]
    chosen = lesson.control if control else lesson.settings
    config = with_run_dir(
        run_config(agent=lesson.agent, run_dir=None, resume=False, assignments=chosen, **options)
    )
    about = f"{name}{', control' * control}: {lesson.title}"
    replace_file(Path(config.run_dir) / ABOUT_FILE, about.encode())
    return config
