"""`track`: what a run has logged, handed to TensorBoard, Trackio or Weights & Biases; nothing leaves the machine.

Reads ``events.jsonl`` alone, so a run never waits for a tracker: `following` reads along in another process.
"""

import contextlib
import math
import os
import select
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from html import escape
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from llamagym_tui.cli.options import Tracker
from llamagym_tui.config import flat
from llamagym_tui.demos.watched_episode import EpisodeRecorder, WatchedEpisode
from llamagym_tui.errors import require_library
from llamagym_tui.protocol import events
from llamagym_tui.protocol.event_log import followed
from llamagym_tui.protocol.literal import literal
from llamagym_tui.run_store import CONFIG_FILE, EVENTS_FILE, TRACKER_LOG_FILE, is_run, read_config
from llamagym_tui.state.reduce import reduce
from llamagym_tui.state.run import initial_state
from llamagym_tui.user_files import discard, growing_file, make_folder

PROJECT = "llamagym-tui"
EVERY_S = {"play": 5.0, "conversation": 30.0}
"""The least time between two points of a run's mean return, and between two sample conversations, in seconds."""
LAST_WORDS_S = 20.0
"""How long we wait for the export of a run's end, in seconds; after that it goes on by itself."""


class Point(NamedTuple):
    """What a tracker gets of one moment of a run."""

    at_s: float
    update: int
    turns: int
    episodes: int
    figures: dict[str, float]
    texts: dict[str, str]
    """Texts by their kinds, in Markdown."""


def track(run_dir: Path, to: Tracker, wait: Callable[[float], bool] = lambda seconds: True) -> str:
    """Export a run; returns a sentence on where it is.

    Args:
        wait: waits for so many seconds at most, and returns whether the run is over.
    Raises:
        UsageError: the tracker's library is not installed.
        RunStoreError: the run cannot be read.
    """
    require_library(to, to)
    while not is_run(run_dir) and not wait(1.0):
        pass
    sink = SINKS[to](run_dir)
    reader = _Reader(run_dir)
    unsent: list[Point] = []
    count = 0
    try:
        for event in followed(run_dir / EVENTS_FILE, wait):
            if event is None:  # all that there is so far has been read
                for point in unsent:
                    sink.add(point)
                count += len(unsent)
                unsent = []
                continue
            if isinstance(event, events.RunStarted) and event.episodes is not None:
                unsent = [point for point in unsent if point.episodes <= event.episodes]
            found = reader.take(event)
            if found is not None:
                unsent.append(found)
    finally:
        sink.close()
    return f"{count:,} points of {run_dir.name} are in {sink.place}"


class _Reader:
    """Turns the events of a run into points, those of play and of conversations seldom enough to be looked at."""

    def __init__(self, run_dir: Path) -> None:
        self._state = initial_state(read_config(run_dir))
        self._recorder = EpisodeRecorder()
        self._turns = 0
        self._due = dict.fromkeys(EVERY_S, 0.0)

    def take(self, event: events.AnyEvent) -> Point | None:
        """What a tracker gets of an event; None: nothing."""
        figures: dict[str, float] = {}
        texts: dict[str, str] = {}
        if isinstance(event, events.WatchedEvent):
            has_ended = self._recorder.add(event)
            last = self._recorder.last
            if has_ended and last is not None and self._is_due("conversation", event.at_s):
                texts["conversation"] = _conversation(last)
        else:
            marks_before = self._state.marks
            state = reduce(self._state, event)
            self._state = state
            if state.marks and state.marks[-1:] != marks_before[-1:]:
                texts["marks"] = literal(f"update {state.updates:,}: {state.marks[-1].label}")
            match event:
                case events.RunStarted() | events.PromptChanged():
                    texts["prompt"] = f"v{event.prompt_version}\n\n{_verbatim(event.system_prompt)}"
                case events.EpisodesCounted(env_steps=turns):
                    self._turns = turns
                    recent = state.recent_mean
                    if recent is not None and self._is_due("play", event.at_s):
                        figures["play/mean_return"] = recent.mean
                case events.UpdateFinished(stats=stats):
                    for name, value in msgspec.structs.asdict(stats).items():
                        figures[f"update/{name}"] = value
                case events.EvaluationFinished():
                    kind = "greedy" if event.greedy else "sampled"
                    figures[f"evaluation/{kind}_mean_return"] = event.mean_return
                    figures[f"evaluation/{kind}_stderr"] = event.return_stderr
        figures = {name: value for name, value in figures.items() if math.isfinite(value)}
        if not figures and not texts:
            return None
        return Point(
            at_s=event.at_s,
            update=self._state.updates,
            turns=self._turns,
            episodes=self._state.episodes,
            figures=figures,
            texts=texts,
        )

    def _is_due(self, kind: str, at_s: float) -> bool:
        if at_s < self._due[kind]:
            return False
        self._due[kind] = at_s + EVERY_S[kind]
        return True


def _conversation(episode: WatchedEpisode) -> str:
    lines = [f"prompt v{episode.started.prompt_version}, return {episode.episode_return:g}"]
    for observation, turn in zip(episode.observations, episode.turns, strict=True):
        action = turn.action_name if turn.how != "failed" else f"none, so {turn.action_name}"
        lines += [
            f"env: {observation}",
            f"agent: {turn.reply}",
            f"action: {action}, reward {turn.reward:g}",
        ]
    conversation = _verbatim("\n".join(lines))
    return f"episode {episode.started.episode:,}\n\n{conversation}"


def _verbatim(text: str) -> str:
    """A foreign text as a block of Markdown in which nothing is markup."""
    return "\n".join(f"    {line}" for line in literal(text).split("\n"))


class _TensorBoard:
    """Writes event files; each figure of an update is there twice, over updates and over turns."""

    def __init__(self, run_dir: Path) -> None:
        writer = import_module("tensorboard.summary.writer.event_file_writer")
        self._events = import_module("tensorboard.compat.proto.event_pb2")
        self._scalar = import_module("tensorboard.plugins.scalar.summary_v2").scalar_pb
        self._text = import_module("tensorboard.plugins.text.summary_v2").text_pb
        folder = run_dir / "tensorboard"
        self.place = f"{folder}; open them with `tensorboard --logdir {folder}`"
        discard(folder)  # of an earlier export, which this one replaces
        make_folder(folder)
        self._began_at = (run_dir / CONFIG_FILE).stat().st_mtime
        self._writer = writer.EventFileWriter(str(folder))
        self.close = self._writer.close

    def add(self, point: Point) -> None:
        for name, value in point.figures.items():
            _, is_of_update, figure = name.partition("update/")
            if is_of_update:
                self._write(point, point.turns, self._scalar(f"by turns/{figure}", value))
                self._write(point, point.update, self._scalar(f"by update/{figure}", value))
            else:
                self._write(point, point.turns, self._scalar(name, value))
        for name, text in point.texts.items():
            self._write(point, point.turns, self._text(name, text))
        self._writer.flush()

    def _write(self, point: Point, step: int, summary: Any) -> None:
        self._writer.add_event(
            self._events.Event(wall_time=self._began_at + point.at_s, step=step, summary=summary)
        )


class _Logged:
    """Writes to a library with the interface of wandb's: a row for each point, with the counts to draw charts over."""

    def __init__(self, run: Any, text: Callable[[str], Any], place: str) -> None:
        self._run = run
        self._text = text
        self.place = place
        self.close = run.finish

    def add(self, point: Point) -> None:
        counts = {
            "update": point.update,
            "turns": point.turns,
            "episodes": point.episodes,
            "seconds": point.at_s,
        }
        texts = {name: self._text(text) for name, text in point.texts.items()}
        self._run.log(counts | point.figures | texts)


def _trackio(run_dir: Path) -> _Logged:
    trackio = import_module("trackio")
    run = trackio.init(
        PROJECT,
        name=run_dir.name,
        config=flat(read_config(run_dir)),
        embed=False,
        auto_log_gpu=False,
        auto_log_cpu=False,
    )
    place = f"Trackio; open it with `trackio show --project {PROJECT}`"
    return _Logged(run, trackio.Markdown, place)


def _wandb(run_dir: Path) -> _Logged:
    os.environ.setdefault("WANDB_MODE", "offline")
    wandb = import_module("wandb")
    run = wandb.init(
        project=PROJECT, name=run_dir.name, dir=str(run_dir), config=flat(read_config(run_dir))
    )
    run.define_metric("*", step_metric="turns")
    place = f"{run_dir / 'wandb'}; `wandb sync` uploads them"
    return _Logged(run, lambda text: wandb.Html(f"<pre>{escape(text)}</pre>"), place)


SINKS: dict[Tracker, Callable[[Path], Any]] = {
    "tensorboard": _TensorBoard,
    "trackio": _trackio,
    "wandb": _wandb,
}
"""What takes the points of a run for each tracker: an object that has `add`, `close` and, for people, a `place`."""


@contextlib.contextmanager
def following(run_dir: Path, to: Tracker | None, notify: Callable[[str], None]) -> Iterator[None]:
    """While a run goes on, let a tracker follow it from a process of its own, which ends with this one.

    `notify` gets one sentence, from another thread, if it ends by an error, or cannot be started.
    """
    if to is None:
        yield
        return
    words = [sys.executable, "-m", "llamagym_tui", "track", str(run_dir), "--to", to, "--follow"]
    process = None

    def watch(process: subprocess.Popen[bytes]) -> None:
        if process.wait():
            with contextlib.suppress(RuntimeError):  # of an app that has ended
                notify(
                    f"The tracker has ended, and the run goes on without it; its log is {run_dir / TRACKER_LOG_FILE}."
                )

    try:
        make_folder(run_dir)
        with growing_file(run_dir / TRACKER_LOG_FILE) as log:
            # A session of its own, so that ctrl+c is the run's.
            process = subprocess.Popen(
                words,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,
            )
        threading.Thread(target=watch, args=(process,), daemon=True).start()
    except OSError as error:
        notify(f"The tracker cannot be started ({error}), and the run goes on without it.")
    try:
        yield
    finally:
        if process is not None:  # its stdin ends, as the run has: what is left is exported
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=LAST_WORDS_S)


def until_closed(seconds: float) -> bool:
    """Wait for the end of stdin; a `wait` of `track`."""
    return bool(select.select([sys.stdin], [], [], seconds)[0])
