"""Lessons: short guided experiments, one TOML file each in `llamagym_tui/lessons`.

A comment at the top of each file gives the figures that its claims come from.
"""

import re
from functools import cache
from pathlib import Path

import msgspec
from msgspec import Struct

from llamagym_tui.errors import ConfigError, UsageError
from llamagym_tui.runs.run_store import ABOUT_FILE
from llamagym_tui.settings import RunConfig
from llamagym_tui.settings.typed import assigned
from llamagym_tui.setup.run_config import run_config, with_run_dir
from llamagym_tui.user_files import file_text, replace_file

NAMED = re.compile(r"\{([\w.]+)\}")
"""A key in a lesson's text: the id of its binding in braces."""
FOLDER = Path(__file__).parents[1] / "lessons"
WHOLE_MODEL = "full_finetuning=true"
"""Lessons train all weights unless their own settings say otherwise, because every PPO setting matters then."""


class Lesson(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An experiment: its settings, its steps, a question and the answer."""

    title: str
    shows: str
    """The claim, in one sentence."""
    agent: str
    minutes: float
    """Minutes of training on a laptop."""
    settings: list[str]
    """Settings of the run, each NAME=VALUE as ``--set`` takes it; a prompt is ``system_prompt=…``."""
    steps: list[str]
    look: str
    """Where to look."""
    question: str
    answer: str

    def __post_init__(self) -> None:
        assigned(self.settings)  # raises UsageError for a faulty one

    @property
    def text(self) -> str:
        """The lesson without its answer; keys are ids of bindings in braces."""
        steps = "\n".join(f"{number}. {step}" for number, step in enumerate(self.steps, 1))
        return f"{self.shows}\n\n{steps}\n\nLook at: {self.look}\n\nQuestion: {self.question}"


def read_lesson(path: Path) -> Lesson:
    """Read a lesson from its file. Raises ConfigError if the file has a fault."""
    try:
        return msgspec.toml.decode(file_text(path), type=Lesson)
    except (OSError, ValueError, UsageError) as error:
        raise ConfigError(f"The lesson {path} has a fault: {error}") from error


@cache
def lessons() -> dict[str, Lesson]:
    """All lessons by name, in the order of their files' numbers."""
    found = {}
    for path in sorted(FOLDER.glob("*.toml")):
        _, _, name = path.stem.partition("-")
        found[name] = read_lesson(path)
    return found


def begun(name: str) -> RunConfig:
    """Settings of a new run of a lesson; makes the run's folder and notes the lesson in it."""
    lesson = lessons()[name]
    given = assigned([WHOLE_MODEL, *lesson.settings])
    config = with_run_dir(run_config(lesson.agent, given))
    about = Path(config.run_dir) / ABOUT_FILE
    replace_file(about, f"{name}: {lesson.title}".encode())
    return config
