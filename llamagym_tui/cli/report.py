"""``llamagym-tui report``: a run as one HTML file to share, and its figures as CSV.

The page needs no network and no script, and forbids both; every text in it is escaped, and steers no terminal.
"""

import csv
import io
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from llamagym_tui import __version__
from llamagym_tui.config import RunConfig, flat
from llamagym_tui.demos.watched_episode import EpisodeRecorder, WatchedEpisode
from llamagym_tui.errors import UsageError
from llamagym_tui.model_registry import with_defaults
from llamagym_tui.protocol import events
from llamagym_tui.protocol.literal import literal
from llamagym_tui.returns import counted, evaluated_return, margin, smoothing_window, thinned
from llamagym_tui.run_store import read_config, read_events
from llamagym_tui.screens.conversation.entry_text import paragraphs
from llamagym_tui.screens.past_runs.run_table import ENDINGS, played_text
from llamagym_tui.screens.policy_map.film import film_svg, run_film
from llamagym_tui.screens.policy_map.mapped_policy import MappedPolicy
from llamagym_tui.screens.steering.version_list import version_line
from llamagym_tui.screens.widgets.numbers import baselines, plain, tick_labels
from llamagym_tui.screens.widgets.plot import nice_ticks
from llamagym_tui.state.prompts import played_by
from llamagym_tui.state.reduce import reduce
from llamagym_tui.state.run import RunState, initial_state
from llamagym_tui.state.run_summary import RunSummary, differences, summary_of
from llamagym_tui.state.transcript import Fact, Reply
from llamagym_tui.user_files import file_text, replace_file

WIDTH, HEIGHT, LEFT, TOP = 860, 300, 64, 24
"""Of the inside of the chart, and its margins."""
TEMPLATE = Environment(
    autoescape=True,
    finalize=lambda value: value if isinstance(value, Markup) else literal(str(value)),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
).from_string(file_text(Path(__file__).with_name("report.html")))


class Story(NamedTuple):
    """What a report shows of a run: of recorded episodes the worst and the best."""

    state: RunState
    summary: RunSummary
    extremes: list[WatchedEpisode]
    updates: list[events.UpdateFinished]


def write(run_dir: Path, output: Path, *, with_csv: bool, film: Path | None = None) -> list[Path]:
    """Write the report of a run, its figures next to it, and its film; the files.

    Raises UsageError, too, if there is no film, or a file cannot be written.
    """
    story = story_of(run_dir)
    contents = {output: page(story, run_dir.name)}
    if with_csv:
        contents[output.with_suffix(".csv")] = figures(story.updates)
    if film is not None:
        contents[film] = run_film(story.state)
    for path, content in contents.items():
        try:
            replace_file(path, content.encode())
        except OSError as error:
            why = error.strerror or error
            raise UsageError(
                f"{path} cannot be written ({why}); name another file with --output."
            ) from error
    return list(contents)


def story_of(run_dir: Path) -> Story:
    state, recorder = initial_state(read_config(run_dir)), EpisodeRecorder()
    extremes, updates = list[WatchedEpisode](), list[events.UpdateFinished]()
    for event in read_events(run_dir):
        if isinstance(event, events.WatchedEvent):
            if recorder.add(event) and recorder.last is not None:
                extremes = sorted(
                    [*extremes, recorder.last], key=lambda episode: episode.episode_return
                )
                extremes = [extremes[0], extremes[-1]]
            continue
        state = reduce(state, event)
        match event:
            case events.UpdateFinished():
                updates.append(event)
            case events.RunStarted(updates=int(resumed)):
                updates = [
                    each for each in updates if each.update <= resumed
                ]  # those after it are made again
    return Story(state, summary_of(run_dir), extremes, updates)


def figures(updates: Sequence[events.UpdateFinished]) -> str:
    """Every figure of every update, a line each, as CSV."""
    names = [each.name for each in msgspec.structs.fields(events.UpdateStats)]
    rows = [[each.update, each.episodes, *msgspec.structs.astuple(each.stats)] for each in updates]
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([["update", "episodes_so_far", *names], *rows])
    return text.getvalue()


def page(story: Story, name: str) -> str:
    state, config = story.state, story.state.config
    active = {state.prompt_version: "active"}
    layout, shown = (
        state.map_layout or events.PolicyMapLaidOut(),
        [*state.film[:1], *state.film[1:][-1:]],
    )
    of = "After update {0.update:,}, prompt v{0.prompt_version}"
    maps = [film_svg([MappedPolicy(layout, each)], [of.format(each)]) for each in shown]
    return TEMPLATE.render(
        name=name,
        state=state,
        summary=summary(story),
        chart=_chart(state),
        prompts=[
            (version_line(known, "", active.get(known.version, "")).plain, known.text)
            for known in state.prompts
        ],
        maps=[Markup(each.replace(' xmlns="http://www.w3.org/2000/svg"', "")) for each in maps],
        episodes=[
            *zip(("The best", "The worst"), map(_talk, reversed(story.extremes)), strict=False)
        ],
        settings=differences(config, _usual(config), (state.settings, {})),
        command=command(state),
        version=__version__,
    )


def summary(story: Story) -> list[str]:
    """How a run ended and played, a line each."""
    state = story.state
    lines = [f"{played_text(story.summary)}; {ENDINGS[story.summary.ending]}"]
    if (mean := state.recent_mean) is not None:
        lines.append(
            f"mean return {mean.text} over {counted(mean.episodes, 'episode')}, those since the last change"
        )
    for found in state.evaluations:
        over = f"{found.episodes:,} {'greedy' if found.greedy else 'sampled'} episodes"
        of = played_by(found, state.prompts) + (f" ({found.outdated})" if found.outdated else "")
        lines.append(f"evaluated {evaluated_return(found).text} over {over}{of}")
    return lines


def _chart(state: RunState) -> dict[str, Any] | None:
    """The curve of mean return with its band, baselines and marks, by the template's names; None: too few episodes."""
    window = smoothing_window(state.returns.episodes)
    points, known = thinned(state.returns.trailing(window), WIDTH), baselines(state)
    if len(points) < 2:
        return None
    curve = [(point.episode, point.mean_return) for point in points]
    below, above = (
        [(p.episode, p.mean_return + side * margin(p.stderr)) for p in points] for side in (-1, 1)
    )
    # The band of the first few episodes is as wide as the returns are: it may leave the chart.
    sure = len(points) // 4
    values = [*known.values(), *(value for _, value in [*curve, *below[sure:], *above[sure:]])]
    pad = 0.06 * (max(values) - min(values)) or 0.5
    low, high, first, last = min(values) - pad, max(values) + pad, curve[0][0], curve[-1][0]

    def at(episode: float, value: float) -> tuple[float, float]:
        up, across = (
            (high - min(max(value, low), high)) / (high - low),
            (episode - first) / (last - first),
        )
        return round(LEFT + WIDTH * across, 1), round(TOP + HEIGHT * up, 1)

    ups, acrosses = nice_ticks(low, high, 5), nice_ticks(first, last, 6)
    return {
        "at": at, "window": window, "curve": curve, "band": [*above, *below[::-1]],
        "low": low, "high": high, "first": first, "last": last,
        "ups": zip(ups, tick_labels(ups), strict=True), "acrosses": zip(acrosses, tick_labels(acrosses), strict=True),
        "levels": [(f"{name} {plain(value)}", value) for name, value in known.items()],
        "marks": list(enumerate((mark for mark in state.marks if first <= mark.episode <= last), 1)),
    }  # fmt: skip


def _talk(episode: WatchedEpisode) -> list[tuple[str, str]]:
    """The paragraphs of an episode, each with its label."""
    facts: list[Fact] = [episode.started]
    for text, turn in zip(episode.observations, episode.turns, strict=True):
        shown = events.ObservationShown(episode=turn.episode, turn=turn.turn, text=text)
        facts += [shown, Reply(turn.episode, turn.turn, turn.reply, done=True), turn]
    parts = [
        part
        for fact in [*facts, episode.finished]
        if fact
        for part in paragraphs(fact, prompt_is_new=False)
    ]
    return [(part.label, "".join(piece.text for piece in part.pieces)) for part in parts]


def _usual(config: RunConfig) -> RunConfig:
    """The defaults of a run of an agent with a model."""
    given = with_defaults(
        {"agent": config.agent, "model": config.model, "run_dir": config.run_dir}, config.model
    )
    return msgspec.convert(given, RunConfig)


def command(state: RunState) -> str:
    """The command that begins such a run again; what was changed while it was under way, it does not repeat."""
    config, words = (
        state.config,
        ["llamagym-tui", "train", state.config.agent, "--model", state.config.model],
    )
    own = differences(config, _usual(config), ({}, {})).keys() - config.measured.keys()
    for name, value in flat(config).items():
        if name == "env":
            words += [word for key, each in value.items() for word in ("--env", f"{key}={each}")]
        elif name == "system_prompt" and value is not None:
            words += ["--prompt-file", "prompt.txt"]
        elif name in own and name not in ("observation_ranges", "measured_threads"):
            words += [
                "--set",
                f"{name}={value if isinstance(value, str) else msgspec.json.encode(value).decode()}",
            ]
    limit = (
        ["--episodes", str(max(1, state.episodes))]
        if config.episodes is config.minutes is None
        else []
    )
    return shlex.join([*words, *limit])
