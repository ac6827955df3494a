"""``llamagym-tui report``: a run as one HTML file to share, and its figures as CSV.

The page needs no network and no script, and forbids both. Every text of a prompt, a model, an environment or a setting
gets into it through `safe`. The events are read by the reducer that the screens have.
"""

import csv
import io
import shlex
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

import msgspec

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
HEAD = file_text(Path(__file__).with_name("report.html"))


class Story(NamedTuple):
    """What a report shows of a run: of recorded episodes the worst and the best."""

    state: RunState
    summary: RunSummary
    extremes: list[WatchedEpisode]
    updates: list[events.UpdateFinished]


def write(run_dir: Path, output: Path, *, with_csv: bool, film: Path | None = None) -> list[Path]:
    """Write the report of a run, its figures next to it, and its film; the files.

    Raises:
        RunStoreError: the run cannot be read.
        UsageError: there is no film, or a file cannot be written.
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
            raise UsageError(f"{path} cannot be written ({why}); name another file with --output.") from error
    return list(contents)


def story_of(run_dir: Path) -> Story:
    state, recorder = initial_state(read_config(run_dir)), EpisodeRecorder()
    extremes, updates = list[WatchedEpisode](), list[events.UpdateFinished]()
    for event in read_events(run_dir):
        if isinstance(event, events.WatchedEvent):
            if recorder.add(event) and recorder.last is not None:
                extremes = sorted([*extremes, recorder.last], key=lambda episode: episode.episode_return)
                extremes = [extremes[0], extremes[-1]]
            continue
        state = reduce(state, event)
        match event:
            case events.UpdateFinished():
                updates.append(event)
            case events.RunStarted(updates=int(resumed)):
                updates = [each for each in updates if each.update <= resumed]  # those after it are made again
    return Story(state, summary_of(run_dir), extremes, updates)


def figures(updates: Sequence[events.UpdateFinished]) -> str:
    """Every figure of every update, a line each, as CSV."""
    names = [each.name for each in msgspec.structs.fields(events.UpdateStats)]
    rows = [[each.update, each.episodes, *msgspec.structs.astuple(each.stats)] for each in updates]
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([["update", "episodes_so_far", *names], *rows])
    return text.getvalue()


def safe(text: object) -> str:
    """A text as text of the page, without what could control a terminal."""
    return escape(literal(str(text)))


def page(story: Story, name: str) -> str:
    """The report of a run of some name."""
    state, title = story.state, f"{safe(story.state.agent)} · {safe(story.state.model)}"
    sections = {
        "Return": chart(state),
        "Prompts": _prompts(state),
        "What the policy does": _maps(state) or "<p>No policy map was recorded.",
        "Episodes": _episodes(story),
        "Settings": _settings(state),
        "To reproduce": _reproduced(state),
    }
    head = f"{HEAD}<title>{title}</title><h1>{title}</h1><p>{safe(name)}{_summary(story)}"
    return head + "".join(f"\n<h2>{heading}</h2>\n{content}" for heading, content in sections.items())


def _summary(story: Story) -> str:
    state = story.state
    lines = [f"{played_text(story.summary)}; {ENDINGS[story.summary.ending]}"]
    if (mean := state.recent_mean) is not None:
        lines.append(f"mean return {mean.text} over {counted(mean.episodes, 'episode')}, those since the last change")
    for found in state.evaluations:
        over = f"{found.episodes:,} {'greedy' if found.greedy else 'sampled'} episodes"
        of = played_by(found, state.prompts) + (f" ({found.outdated})" if found.outdated else "")
        lines.append(f"evaluated {evaluated_return(found).text} over {over}{of}")
    return f"<ul><li>{'<li>'.join(map(safe, lines))}</ul><p>± is half the 95 % confidence interval."


def chart(state: RunState) -> str:
    """The curve of mean return with its band, baselines and marks."""
    window = smoothing_window(state.returns.episodes)
    points, known = thinned(state.returns.trailing(window), WIDTH), baselines(state)
    if len(points) < 2:
        return "<p>There were too few episodes for a curve."
    curve = [(point.episode, point.mean_return) for point in points]
    below, above = ([(p.episode, p.mean_return + side * margin(p.stderr)) for p in points] for side in (-1, 1))
    # The band of the first few episodes is as wide as the returns are: it may leave the chart.
    sure = len(points) // 4
    values = [*known.values(), *(value for _, value in [*curve, *below[sure:], *above[sure:]])]
    pad = 0.06 * (max(values) - min(values)) or 0.5
    draw = Pen(curve[0][0], curve[-1][0], min(values) - pad, max(values) + pad)
    marks = [mark for mark in state.marks if draw.first <= mark.episode <= draw.last]
    parts = [draw.line("band", [*above, *below[::-1]], "polygon"), *_axes(draw, known)]
    for episode in dict.fromkeys(mark.episode for mark in marks):
        numbers = ",".join(str(number) for number, mark in enumerate(marks, 1) if mark.episode == episode)
        parts.append(draw.line("mark", [(episode, draw.low), (episode, draw.high)]))
        parts.append(draw.label(episode, draw.high, numbers, "middle", 0, -8))
    parts.append(draw.line("curve", curve))
    changes = "".join(f"<li>at episode {m.episode:,}, update {m.update:,}: {safe(m.label)}" for m in marks)
    size = f"0 0 {LEFT + WIDTH + 12} {TOP + HEIGHT + 24}"
    return (
        f'<svg role="img" aria-label="mean return" viewBox="{size}">{"".join(parts)}</svg><p>Mean return of the last '
        f"{window:,} episodes, over episodes; shaded: 95 % confidence interval.<ol>{changes}</ol>"
    )


class Pen(NamedTuple):
    """Draws in a chart of some bounds, in which a place is an episode and a return."""

    first: float
    last: float
    low: float
    high: float

    def place(self, episode: float, value: float) -> tuple[float, float]:
        up = (self.high - min(max(value, self.low), self.high)) / (self.high - self.low)
        across = (episode - self.first) / (self.last - self.first)
        return round(LEFT + WIDTH * across, 1), round(TOP + HEIGHT * up, 1)

    def line(self, kind: str, places: Sequence[tuple[float, float]], shape: str = "polyline") -> str:
        points = " ".join(f"{x},{y}" for x, y in (self.place(*each) for each in places))
        return f'<{shape} class="{kind}" points="{points}"/>'

    def label(self, episode: float, value: float, text: str, anchor: str, dx: int, dy: int) -> str:
        x, y = self.place(episode, value)
        return f'<text x="{x}" y="{y}" dx="{dx}" dy="{dy}" text-anchor="{anchor}">{safe(text)}</text>'


def _axes(draw: Pen, known: Mapping[str, float]) -> Iterator[str]:
    """Both axes, and the baselines."""
    ups, acrosses = nice_ticks(draw.low, draw.high, 5), nice_ticks(draw.first, draw.last, 6)
    rows = [("axis", value, text, draw.first, -8, 4) for value, text in zip(ups, tick_labels(ups), strict=True)]
    rows += [("level", value, f"{name} {plain(value)}", draw.last, 0, -4) for name, value in known.items()]
    for kind, value, text, at, dx, dy in rows:
        yield draw.line(kind, [(draw.first, value), (draw.last, value)])
        yield draw.label(at, value, text, "end", dx, dy)
    for at, text in zip(acrosses, tick_labels(acrosses), strict=True):
        yield draw.label(at, draw.low, text, "middle", 0, 18)


def _prompts(state: RunState) -> str:
    marks = {state.prompt_version: "active"}
    lines = [(version_line(known, "", marks.get(known.version, "")), known.text) for known in state.prompts]
    return "".join(f"<p>{safe(line.plain)}<pre>{safe(text) or '(none)'}</pre>" for line, text in lines)


def _maps(state: RunState) -> str:
    """The first and the last policy map."""
    layout, shown = state.map_layout or events.PolicyMapLaidOut(), [*state.film[:1], *state.film[1:][-1:]]
    of = "After update {0.update:,}, prompt v{0.prompt_version}"
    pictures = [film_svg([MappedPolicy(layout, each)], [of.format(each)]) for each in shown]
    return "".join(pictures).replace(' xmlns="http://www.w3.org/2000/svg"', "")


def _episodes(story: Story) -> str:
    shown = zip(("The best", "The worst"), reversed(story.extremes), strict=False)
    parts = [f"<h3>{title} that was recorded</h3><pre>{_talk(each)}</pre>" for title, each in shown]
    return "".join(parts) or "<p>No whole conversation was recorded."


def _talk(episode: WatchedEpisode) -> str:
    facts: list[Fact] = [episode.started]
    for text, turn in zip(episode.observations, episode.turns, strict=True):
        shown = events.ObservationShown(episode=turn.episode, turn=turn.turn, text=text)
        facts += [shown, Reply(turn.episode, turn.turn, turn.reply, done=True), turn]
    parts = [part for fact in [*facts, episode.finished] if fact for part in paragraphs(fact, prompt_is_new=False)]
    return "\n".join(
        f"<b>{safe(part.label):<7}</b>{safe(''.join(piece.text for piece in part.pieces))}" for part in parts
    )


def _settings(state: RunState) -> str:
    changed = differences(state.config, _usual(state.config), (state.settings, {}))
    rows = "".join(f"<tr><td>{safe(name)}<td>{safe(own)}<td>{safe(usual)}" for name, (own, usual) in changed.items())
    return f"<table><tr><th>setting<th>here<th>default{rows}</table><p>All others have their defaults."


def _usual(config: RunConfig) -> RunConfig:
    """The defaults of a run of an agent with a model."""
    given = with_defaults({"agent": config.agent, "model": config.model, "run_dir": config.run_dir}, config.model)
    return msgspec.convert(given, RunConfig)


def command(state: RunState) -> str:
    """The command that begins such a run again; what was changed while it was under way, it does not repeat."""
    config, words = state.config, ["llamagym-tui", "train", state.config.agent, "--model", state.config.model]
    own = differences(config, _usual(config), ({}, {})).keys() - config.measured.keys()
    for name, value in flat(config).items():
        if name == "env":
            words += [word for key, each in value.items() for word in ("--env", f"{key}={each}")]
        elif name == "system_prompt" and value is not None:
            words += ["--prompt-file", "prompt.txt"]
        elif name in own and name not in ("observation_ranges", "measured_threads"):
            words += ["--set", f"{name}={value if isinstance(value, str) else msgspec.json.encode(value).decode()}"]
    limit = ["--episodes", str(max(1, state.episodes))] if config.episodes is config.minutes is None else []
    return shlex.join([*words, *limit])


def _reproduced(state: RunState) -> str:
    on = f"Played on {state.run.device}; w" if state.run is not None else "W"
    prompt = " prompt.txt holds the first prompt above." if state.config.system_prompt is not None else ""
    changes = " The command repeats none of the changes that are marked in the chart." if state.marks else ""
    notes = f"{on}ritten by llamagym-tui {__version__}.{prompt}{changes}"
    return f"<pre>{safe(command(state))}</pre><p>{safe(notes)}"
