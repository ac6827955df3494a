"""``llamagym-tui report``: a run as one HTML file to share, and its figures as CSV.

The page needs no network and no script, and forbids both; every text in it is escaped, and steers no terminal.
"""

import csv
import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from llamagym_tui import __version__
from llamagym_tui.errors import RunStoreError, UsageError
from llamagym_tui.protocol import events
from llamagym_tui.protocol.literal import echo, literal
from llamagym_tui.rollouts.index import Rollouts
from llamagym_tui.runs.model_registry import with_defaults
from llamagym_tui.runs.run_store import read_config, read_events
from llamagym_tui.screens.conversation.turns import return_text
from llamagym_tui.screens.past_runs.run_table import ENDINGS, played_text
from llamagym_tui.screens.playground.prompt_editor import version_line
from llamagym_tui.screens.policy_map.film import film_svg, run_film
from llamagym_tui.screens.policy_map.mapped_policy import MappedPolicy
from llamagym_tui.screens.rollouts.parts import Part, parts_of
from llamagym_tui.screens.widgets.numbers import baselines, plain
from llamagym_tui.settings import RunConfig
from llamagym_tui.state.history import History
from llamagym_tui.state.prompts import played_by
from llamagym_tui.state.returns import NORMAL, counted, evaluated_return, smoothing_window, thinned
from llamagym_tui.state.run import RunState
from llamagym_tui.state.run_summary import RunSummary, differences, summarised
from llamagym_tui.state.texts import warm_start_text
from llamagym_tui.user_files import file_text, replace_file

TEMPLATE = Environment(
    autoescape=True,
    finalize=lambda value: value if isinstance(value, Markup) else literal(str(value)),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
).from_string(file_text(Path(__file__).with_name("report.html")))

MOST_POINTS = 860
"""Points of the curve."""


class Story(NamedTuple):
    """The parts of a run that its report shows."""

    state: RunState
    summary: RunSummary
    warm_starts: list[events.WarmStartFinished]

    @property
    def methods(self) -> str:
        """The training of the model, in words."""
        words = {"sft": "demonstrations (SFT)", "dpo": "a person's corrections (DPO)"}
        found = [words[each.method] for each in self.warm_starts]
        if self.state.updates or not found:
            found.append("reinforcement learning")
        return ", then by ".join(dict.fromkeys(found))


def write(run_dir: Path, output: Path, *, with_csv: bool, film: Path | None = None) -> list[Path]:
    """Write the report of a run, its figures next to it, and its film; returns the files.

    A run without policy maps has no film, which one sentence says. Raises UsageError if a file cannot be written.
    """
    story = story_of(run_dir)
    contents = {output: page(story, run_dir).encode()}
    if with_csv:
        contents[output.with_suffix(".csv")] = figures(run_dir).encode()
    if film is not None:
        try:
            contents[film] = run_film(story.state).encode()
        except UsageError as error:
            echo(str(error), to=sys.stderr)
    for path, content in contents.items():
        try:
            replace_file(path, content)
        except OSError as error:
            why = error.strerror or error
            raise UsageError(
                f"{path} cannot be written ({why}); name another file with --output."
            ) from error
    return list(contents)


def story_of(run_dir: Path) -> Story:
    """Read a run's log.

    Raises:
        RunStoreError: the run cannot be read.
    """
    history = History(run_dir, read_config(run_dir))
    warm_starts: list[events.WarmStartFinished] = []
    while not history.complete:
        found = history.read_on()
        warm_starts += [each for each in found if isinstance(each, events.WarmStartFinished)]
    if history.fault:
        raise RunStoreError(history.fault)
    return Story(history.state, summarised(history), warm_starts)


def extremes(run_dir: Path) -> Iterator[tuple[str, list[Part]]]:
    """The best and the worst episode that was recorded, in parts but for the prompt; nothing if none was."""
    rollouts = Rollouts(str(run_dir))
    while rollouts.read_on():
        pass
    known = sorted(rollouts.entries, key=lambda entry: entry.reward or 0.0)
    for title, entry in zip(("The best", "The worst"), (*known[-1:], *known[:1]), strict=False):
        parts = [part for part in parts_of(rollouts.rollout(entry)) if part.label != "system"]
        yield title, [*parts, Part("return", *return_text(entry.reward or 0.0))]


def figures(run_dir: Path) -> str:
    """Every figure of every update, a line each, as CSV; of an update that was made twice, those of the second time."""
    updates = {
        event.update: event
        for event in read_events(run_dir)
        if isinstance(event, events.UpdateFinished)
    }
    names = [each.name for each in msgspec.structs.fields(events.UpdateStats)]
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["update", "episodes_so_far", *names])
    for _, event in sorted(updates.items()):
        table.writerow([event.update, event.episodes, *msgspec.structs.astuple(event.stats)])
    return text.getvalue()


def page(story: Story, run_dir: Path) -> str:
    state = story.state
    config = state.config
    prompts = []
    for known in state.prompts:
        note = "active" if known.version == state.prompt_version else ""
        prompts.append((version_line(known, "", note).plain, known.text))
    layout = state.map_layout or events.PolicyMapLaidOut()
    first_and_last = [state.film[0], state.film[-1]] if len(state.film) > 1 else list(state.film)
    maps = []
    for each in first_and_last:
        title = f"After update {each.update:,}, prompt v{each.prompt_version}"
        svg = film_svg([MappedPolicy(layout, each)], [title])
        maps.append(Markup(svg.replace(' xmlns="http://www.w3.org/2000/svg"', "")))
    given = {"agent": config.agent, "model": config.model, "run_dir": config.run_dir}
    usual = msgspec.convert(with_defaults(given, config.model), RunConfig)
    return TEMPLATE.render(
        name=run_dir.name,
        state=state,
        summary=summary(story),
        chart=chart_of(state),
        prompts=prompts,
        maps=maps,
        episodes=list(extremes(run_dir)),
        settings=differences([config, usual], [state.settings, {}]),
        version=__version__,
    )


def summary(story: Story) -> list[str]:
    """The end of a run and its mean returns, in lines."""
    state = story.state
    lines = [f"{played_text(story.summary)}; {ENDINGS[story.summary.ending]}"]
    lines += [warm_start_text(each) for each in story.warm_starts]
    mean = state.recent_mean
    if mean is not None:
        over = counted(mean.episodes, "episode")
        lines.append(f"mean return {mean.text} over {over}, those since the last change")
    for found in state.evaluations:
        over = f"{found.episodes:,} {'greedy' if found.greedy else 'sampled'} episodes"
        line = f"evaluated {evaluated_return(found).text} over {over}"
        line += played_by(found, state.prompts)
        if found.outdated:
            line += f" ({found.outdated})"
        lines.append(line)
    return lines


def chart_of(state: RunState) -> dict[str, Any] | None:
    """The curve of mean return as an SVG in units of the data; None if there are too few episodes."""
    window = smoothing_window(state.returns.episodes)
    points = thinned(state.returns.trailing(window), MOST_POINTS)
    if len(points) < 2:
        return None
    known = baselines(state)
    values = [point.mean_return for point in points] + [*known.values()]
    pad = 0.06 * (max(values) - min(values)) or 0.5
    low = min(values) - pad
    high = max(values) + pad
    first = points[0].episode
    last = points[-1].episode

    def line(standard_errors: float) -> list[str]:
        """The places of the curve, moved by some standard errors; y grows downwards."""
        return [
            f"{point.episode},{-(point.mean_return + standard_errors * point.stderr):.6g}"
            for point in points
        ]

    levels = {f"{name} {plain(value)}": value for name, value in known.items()}
    levels |= {plain(value): value for value in (min(values), max(values))}
    marks = [mark for mark in state.marks if first <= mark.episode <= last]
    return {
        "window": window,
        "box": (first, -high, last - first, high - low),
        "curve": line(0),
        "band": [*line(NORMAL), *line(-NORMAL)[::-1]],
        "levels": [
            (text, value, 100 * (high - value) / (high - low)) for text, value in levels.items()
        ],
        "marks": [(mark, 100 * (mark.episode - first) / (last - first)) for mark in marks],
    }
