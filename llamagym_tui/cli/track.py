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
from typing import Any, Literal, NamedTuple

import msgspec

from llamagym_tui.config import flat
from llamagym_tui.demos.watched_episode import EpisodeRecorder, WatchedEpisode
from llamagym_tui.errors import require_library
from llamagym_tui.protocol import events
from llamagym_tui.protocol.event_log import followed
from llamagym_tui.protocol.literal import literal
from llamagym_tui.run_store import CONFIG_FILE, EVENTS_FILE, is_run, read_config
from llamagym_tui.state.reduce import reduce
from llamagym_tui.state.run import initial_state
from llamagym_tui.user_files import discard, growing_file, make_folder

Tracker = Literal["tensorboard", "trackio", "wandb"]
PROJECT = "llamagym-tui"
LOG_FILE = "tracker.log"
"""In the run folder: what the library of a tracker that follows a run prints."""
EVERY_S = {"play": 5.0, "conversation": 30.0}
"""Seconds of a run between two points of its mean return, and between two sample conversations, at least."""
LAST_WORDS_S = 20.0
"""Seconds that the end of a run is waited for to be exported; after that it goes on by itself."""


class Point(NamedTuple):
    """What there is to see at a place of a run."""

    at_s: float
    update: int
    turns: int
    episodes: int
    figures: dict[str, float]
    texts: dict[str, str]
    """As Markdown."""


def track(run_dir: Path, to: Tracker, wait: Callable[[float], bool] = lambda seconds: True) -> str:
    """Export a run; where it went, for people.

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
    reader, unsent, count = _Reader(run_dir), list[Point](), 0
    try:
        for event in followed(run_dir / EVENTS_FILE, wait):
            if event is None:  # all that there is so far has been read
                for point in unsent:
                    sink.add(point)
                count, unsent = count + len(unsent), []
                continue
            if isinstance(event, events.RunStarted) and (resumed_at := event.episodes) is not None:
                unsent = [point for point in unsent if point.episodes <= resumed_at]
            if (found := reader.take(event)) is not None:
                unsent.append(found)
    finally:
        sink.close()
    return f"{count:,} points of {run_dir.name} are in {sink.place}"


class _Reader:
    def __init__(self, run_dir: Path) -> None:
        self._state, self._recorder, self._turns = (
            initial_state(read_config(run_dir)),
            EpisodeRecorder(),
            0,
        )
        self._due = dict.fromkeys(EVERY_S, 0.0)

    def take(self, event: events.AnyEvent) -> Point | None:
        figures, texts = dict[str, float](), dict[str, str]()
        if isinstance(event, events.WatchedEvent):
            if (
                self._recorder.add(event)
                and (last := self._recorder.last)
                and self._is_due("conversation", event.at_s)
            ):
                texts["conversation"] = _conversation(last)
        else:
            marks = self._state.marks
            self._state = state = reduce(self._state, event)
            if state.marks[-1:] not in ((), marks[-1:]):
                texts["marks"] = literal(f"update {state.updates:,}: {state.marks[-1].label}")
            match event:
                case events.RunStarted() | events.PromptChanged():
                    texts["prompt"] = f"v{event.prompt_version}\n\n{_verbatim(event.system_prompt)}"
                case events.EpisodesCounted(env_steps=turns):
                    self._turns = turns
                    if (recent := state.recent_mean) and self._is_due("play", event.at_s):
                        figures["play/mean_return"] = recent.mean
                case events.UpdateFinished(stats=stats):
                    figures |= {
                        f"update/{name}": value
                        for name, value in msgspec.structs.asdict(stats).items()
                    }
                case events.EvaluationFinished(seed=None):
                    kind = f"evaluation/{'greedy' if event.greedy else 'sampled'}"
                    figures |= {
                        f"{kind}_mean_return": event.mean_return,
                        f"{kind}_stderr": event.return_stderr,
                    }
        figures = {name: value for name, value in figures.items() if math.isfinite(value)}
        counts = self._state.updates, self._turns, self._state.episodes
        return Point(event.at_s, *counts, figures, texts) if figures or texts else None

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
    return f"episode {episode.started.episode:,}\n\n{_verbatim(chr(10).join(lines))}"


def _verbatim(text: str) -> str:
    """A foreign text as a block of Markdown in which nothing is markup."""
    return "\n".join(f"    {line}" for line in literal(text).split("\n"))


class _TensorBoard:
    """Event files; each figure of an update is there twice, over updates and over turns."""

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
            self._write(
                point,
                point.turns,
                self._scalar(f"by turns/{figure}" if is_of_update else name, value),
            )
            if is_of_update:
                self._write(point, point.update, self._scalar(f"by update/{figure}", value))
        for name, text in point.texts.items():
            self._write(point, point.turns, self._text(name, text))
        self._writer.flush()

    def _write(self, point: Point, step: int, summary: Any) -> None:
        self._writer.add_event(
            self._events.Event(wall_time=self._began_at + point.at_s, step=step, summary=summary)
        )


class _Logged:
    """A library that has the interface of wandb's: a row a point, with the counts by which a chart can be drawn."""

    def __init__(self, run: Any, text: Callable[[str], Any], place: str) -> None:
        self._run, self._text, self.place, self.close = run, text, place, run.finish

    def add(self, point: Point) -> None:
        counts = {
            "update": point.update,
            "turns": point.turns,
            "episodes": point.episodes,
            "seconds": point.at_s,
        }
        self._run.log(
            counts | point.figures | {name: self._text(text) for name, text in point.texts.items()}
        )


def _trackio(run_dir: Path) -> _Logged:
    trackio, quiet = (
        import_module("trackio"),
        {"embed": False, "auto_log_gpu": False, "auto_log_cpu": False},
    )
    run = trackio.init(PROJECT, name=run_dir.name, config=flat(read_config(run_dir)), **quiet)
    return _Logged(
        run, trackio.Markdown, f"Trackio; open it with `trackio show --project {PROJECT}`"
    )


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
"""A tracker's side of an export of a run: an object that has `add`, `close` and a `place`, for people."""


@contextlib.contextmanager
def following(run_dir: Path, to: Tracker | None, notify: Callable[[str], None]) -> Iterator[None]:
    """While a run goes on, have a tracker follow it from a process of its own, which ends with this one.

    `notify` gets one sentence, from another thread, if it ends by an error, or cannot be started.
    """
    if to is None:
        yield
        return
    words = [sys.executable, "-m", "llamagym_tui", "track", str(run_dir), "--to", to, "--follow"]
    quiet, process = subprocess.DEVNULL, None

    def watch(process: subprocess.Popen[bytes]) -> None:
        if process.wait():
            with contextlib.suppress(RuntimeError):  # of an app that has ended
                notify(
                    f"The tracker has ended, and the run goes on without it; its log is {run_dir / LOG_FILE}."
                )

    try:
        make_folder(run_dir)
        with growing_file(run_dir / LOG_FILE) as log:
            # A session of its own, so that ctrl+c is the run's.
            process = subprocess.Popen(
                words, stdin=subprocess.PIPE, stdout=quiet, stderr=log, start_new_session=True
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
    """Waits for the end of stdin, as `track` takes it."""
    return bool(select.select([sys.stdin], [], [], seconds)[0])
