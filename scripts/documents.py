"""Writes the parts of the documents that the code knows: ``python -m scripts.documents``.

They are the table of figures in ``docs/METRICS.md`` and the tables of keys and settings in ``docs/guide``, each between
two comments that name it. A test compares them with the code.
"""

from __future__ import annotations

import re
from pathlib import Path

from textual.binding import Binding
from textual.keys import format_key

from llamagym_tui.app.app import LlamaGymApp
from llamagym_tui.screens.playground.playground import PlaygroundScreen
from llamagym_tui.settings import FIGURES, GROUPS, LIVE, OPTIONS, RunConfig, flat

ROOT = Path(__file__).resolve().parents[1]
KEYED = (PlaygroundScreen, LlamaGymApp)
"""Classes whose keys work in the playground."""
SIGNS = {"minus": "-", "plus": "+", "comma": ",", "escape": "esc", "left_square_bracket": "["}
"""Keys that are better known by a sign."""


def figures() -> str:
    """The table of an update's figures, group by group."""
    lines = ["| figure | field | meaning | healthy |", "|---|---|---|---|"]
    for group in GROUPS:
        lines.append(f"| **{group}** | | | |")
        for name, figure in FIGURES.items():
            if figure.group == group:
                lines.append(f"| {figure.title} | `{name}` | {figure.meaning} | {figure.healthy} |")
    return "\n".join(lines)


def keys() -> str:
    """The table of the playground's keys, an action a row."""
    found: dict[tuple[str, str], list[str]] = {}
    for kind in KEYED:
        for binding in Binding.make_bindings(vars(kind)["BINDINGS"]):
            if not binding.description:
                continue
            what = binding.description
            if binding.tooltip:
                what = f"{what}: {binding.tooltip}"
            shown = SIGNS.get(binding.key) or binding.key_display or format_key(binding.key)
            found.setdefault((" ".join(what.split()), binding.id or ""), []).append(f"`{shown}`")
    lines = ["| key | | name |", "|---|---|---|"]
    for (what, name), shown in found.items():
        lines.append(f"| {' '.join(dict.fromkeys(shown))} | {what} | `{name}` |")
    return "\n".join(lines)


def settings() -> str:
    """The table of the settings of a run that may change live and have no option."""
    usual = flat(RunConfig(agent="", run_dir=""))
    lines = ["| setting | default | |", "|---|---|---|"]
    for name, option in OPTIONS.items():
        if name in LIVE and not option.flag:
            default = "" if usual[name] is None else usual[name]
            lines.append(f"| `{name}` | {default} | {option.help} |")
    return "\n".join(lines)


PARTS = {
    "figures": ("docs/METRICS.md", figures),
    "keys": ("docs/guide/watch-and-steer.md", keys),
    "settings": ("docs/guide/models-and-training.md", settings),
}
"""The document that each part stands in, and what makes it."""


def with_part(text: str, name: str, part: str) -> str:
    """A document with a part between its comments."""
    begin = f"<!-- generated: {name} -->"
    end = f"<!-- end: {name} -->"
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    assert pattern.search(text), f"the comments of {name} are missing"
    return pattern.sub(lambda _: f"{begin}\n{part}\n{end}", text)


def main() -> None:
    """Write all parts."""
    for name, (path, make) in PARTS.items():
        page = ROOT / path
        text = page.read_text(encoding="utf-8")
        page.write_text(with_part(text, name, make()), encoding="utf-8")
        print(path)


if __name__ == "__main__":
    main()
