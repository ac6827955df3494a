"""Measures of the house that packing code into fewer lines does not improve: ``python -m scripts.house``.

- **weight**: nodes of the syntax tree of all Python in git, and a ninth of the bytes of data that people write. Nine
  bytes are about what a node takes up.
- **density**: nodes for each line of code, of the whole and of the densest files, beside their ceiling.
- **rooms, arrows, circles**: as `scripts.rooms` counts them.
- **walks** and **changes**: how many files one has to open to follow something through the code, and to edit for a
  change. The files are written down in ``walks.toml``, which says how they are counted.
- **ledger**: whether ``docs/LEDGER.md`` has every command, setting and key, and nothing that is gone.

None of them is a gate; what `walks.toml` or the ledger has wrong is printed, and the exit code is 1 then.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain, product
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from scripts.rooms import module_graph, modules, report
from scripts.shorthand import FEWEST_LINES, ceiling_of
from scripts.syntax import code_lines, node_count

ROOT = Path(__file__).resolve().parents[1]
WALKS = Path(__file__).with_name("walks.toml")
LEDGER = ROOT / "docs" / "LEDGER.md"
BYTES_OF_A_NODE = 9
DENSEST = 10
"""Files whose density is printed."""

DATA = (".html", ".jinja", ".json", ".tcss", ".toml")
"""Endings of data that people write."""
NOT_WRITTEN = {
    "benchmarks/first_model/": "an earlier bundled model, written by its training",
    "llamagym_tui/bundled_model/": "the bundled model, written by scripts.bundled_model",
    "sft_data/": "demonstrations, written by `demos generate`",
    "tests/recorded/": "runs, written by the trainer",
}
"""Folders whose data is generated and has no weight, with what wrote it. Snapshots and pictures are SVG, no data."""


class Measured(Struct, frozen=True):
    """A Python file."""

    path: str
    nodes: int
    lines: int
    """Lines of code."""

    @property
    def density(self) -> float:
        return self.nodes / max(self.lines, 1)


class Row(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    path: str
    symbol: str
    """What is looked at in the file: a name or a dotted one, in other files than Python a text. Empty: a new file."""
    what: str
    """What happens there."""


class Way(Struct, frozen=True, forbid_unknown_fields=True):
    """A walk, or a change."""

    title: str
    what: str
    before: int
    """Its number of files at first."""
    rows: list[Row]

    @property
    def files(self) -> int:
        return len({row.path for row in self.rows})


class Ways(Struct, frozen=True, forbid_unknown_fields=True):
    walks: list[Way]
    changes: list[Way]


# Weight and density


def tracked(root: Path = ROOT) -> list[str]:
    """Names of all files in git; a link is the file that it points to, so it is left out."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True, check=True
    )
    names = [name for name in listed.stdout.split("\0") if name]
    return [name for name in names if (root / name).is_file() and not (root / name).is_symlink()]


def measured(path: str, source: str) -> Measured:
    tree = ast.parse(source)
    return Measured(path, node_count(tree), code_lines(source, tree))


def part_of(path: str) -> str:
    """The part of the project that a file counts to: a room of the package, else its folder at the top."""
    folders = path.split("/")[:-1]
    if not folders:
        return "top"
    if folders[0] in ("llamagym_tui", "docs"):
        return "/".join(folders[:2])
    return folders[0]


def is_written_data(path: str) -> bool:
    """Whether a file is data that a person writes."""
    return path.endswith(DATA) and not path.startswith(tuple(NOT_WRITTEN))


def weight_lines(python: Iterable[Measured], data: dict[str, int]) -> Iterator[str]:
    """The weight of each part, the heaviest first.

    Args:
        data: bytes of each file of data.
    """
    nodes: Counter[str] = Counter()
    for file in python:
        nodes[part_of(file.path)] += file.nodes
    of_data: Counter[str] = Counter()
    for path, size in data.items():
        of_data[part_of(path)] += round(size / BYTES_OF_A_NODE)
    whole = nodes.total() + of_data.total()
    yield f"weight: {whole:,} ({nodes.total():,} of Python, {of_data.total():,} of data)"
    for part, weight in (nodes + of_data).most_common():
        yield f"  {weight:>8,}  {part}" + (f" (data {of_data[part]:,})" if of_data[part] else "")


def density_lines(python: list[Measured]) -> Iterator[str]:
    nodes = sum(file.nodes for file in python)
    lines = sum(file.lines for file in python)
    yield f"density: {nodes / lines:.2f} nodes a line of code ({lines:,} lines); the densest files:"
    long_enough = [file for file in python if file.lines >= FEWEST_LINES]
    for file in sorted(long_enough, key=lambda file: -file.density)[:DENSEST]:
        yield f"  {file.density:>5.2f} of {ceiling_of(file.path):g}  {file.path}"


# Walks and changes


def ways() -> Ways:
    return msgspec.toml.decode(WALKS.read_bytes(), type=Ways)


def way_lines(found: Ways) -> Iterator[str]:
    for title, kind in (("files on a walk", found.walks), ("files of a change", found.changes)):
        yield f"{title}:"
        for way in kind:
            yield f"  {way.files:>3} (before: {way.before})  {way.title}: {way.what}"


def way_faults(way: Way, root: Path = ROOT) -> Iterator[str]:
    """What of a walk is not there any more."""
    for row in way.rows:
        path = root / row.path
        if not row.symbol:
            if path.exists():
                yield f"{way.title}: {row.path} is there, so its row needs a symbol"
        elif not path.is_file():
            yield f"{way.title}: there is no file {row.path}"
        elif not has_symbol(path.read_text(encoding="utf-8"), row.symbol, path.suffix):
            yield f"{way.title}: {row.path} has no {row.symbol}"


def has_symbol(text: str, symbol: str, suffix: str) -> bool:
    """Whether a file has a function, class or variable of a dotted name; of other files than Python: the text."""
    if suffix != ".py":
        return symbol in text
    body: list[ast.stmt] = ast.parse(text).body
    for name in symbol.split("."):
        found = next((node for node in body if name in _names(node)), None)
        if found is None:
            return False
        body = getattr(found, "body", [])
    return True


def _names(node: ast.stmt) -> set[str]:
    """Names that a statement defines."""
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return {name}
        case ast.Assign(targets=targets):
            return {each.id for each in targets if isinstance(each, ast.Name)}
        case ast.AnnAssign(target=ast.Name(id=name)):
            return {name}
    return set()


# The ledger


Entries = set[tuple[str, ...]]
FEWEST_WORDS = 4
"""Words of a sentence on who uses something for what."""


class Use(Struct, frozen=True):
    """A row of the ledger."""

    names: list[list[str]]
    """What stands in backticks in each cell but the last."""
    sentence: str


def ledger(text: str) -> dict[str, list[Use]]:
    """The rows of each table by the heading above it."""
    tables: dict[str, list[Use]] = {}
    heading = ""
    for line in text.splitlines():
        if line.startswith("## "):
            heading = line.removeprefix("## ")
        elif line.startswith("| `"):
            *cells, sentence = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
            names = [re.findall(r"`([^`]+)`", cell) for cell in cells]
            tables.setdefault(heading, []).append(Use(names, sentence))
    return tables


def commands() -> Entries:
    """The commands of the command line, as they are typed."""
    from typer.main import get_command

    from llamagym_tui.cli.main import app

    group: Any = get_command(app)
    names: Entries = set()
    for name, command in group.commands.items():
        names |= {(f"{name} {each}",) for each in getattr(command, "commands", {})} or {(name,)}
    return names


def settings() -> Entries:
    """The settings of a run by their dotted names."""
    from llamagym_tui.config import setting_types

    return {(name,) for name in setting_types()}


def keys() -> Entries:
    """Each key with the class that binds it and its action."""
    from llamagym_tui.app.app import LlamaGymApp
    from llamagym_tui.screens.help.all_bindings import bindings_of, keyed_classes

    return {
        (kind.__name__, binding.key, binding.action)
        for kind in [*keyed_classes(), LlamaGymApp]
        for binding in bindings_of(kind)
    }


def ledger_faults(text: str) -> Iterator[str]:
    """What the ledger lacks, and what of it is gone."""
    tables = ledger(text)
    for use in chain.from_iterable(tables.values()):
        if len(use.sentence.split()) < FEWEST_WORDS:
            yield f"ledger: too little on who uses {use.names}: {use.sentence}"
    for heading, there in (("Commands", commands()), ("Settings", settings())):
        named: Entries = {(name,) for use in tables.get(heading, []) for name in use.names[0]}
        yield from _differences(heading, named, there)
    there = keys()
    named = set[tuple[str, ...]]()
    for use in tables.get("Keys", []):
        kinds, own_keys, actions = use.names
        # A row may have several actions, each with some of its keys; a key that is of none of them is gone.
        row = {entry for entry in there if entry[0] in kinds and entry[2] in actions}
        named |= {entry for entry in row if entry[1] in own_keys}
        named |= {(kinds[0], key, "") for key in set(own_keys) - {entry[1] for entry in row}}
        bound = {(kind, action) for kind, _, action in row}
        named |= {(kind, "", action) for kind, action in {*product(kinds, actions)} - bound}
    yield from _differences("Keys", named, there)


def _differences(heading: str, named: Entries, there: Entries) -> Iterator[str]:
    for entry in sorted(there - named):
        yield f"ledger, {heading}: {' '.join(filter(None, entry))} is missing"
    for entry in sorted(named - there):
        yield f"ledger, {heading}: {' '.join(filter(None, entry))} is gone"


def main() -> int:
    """Print all measures; the exit code, 1 where walks or ledger name what is not there."""
    names = tracked()
    python = [
        measured(name, (ROOT / name).read_text(encoding="utf-8"))
        for name in names
        if name.endswith(".py")
    ]
    data = {name: (ROOT / name).stat().st_size for name in names if is_written_data(name)}
    found = ways()
    for lines in (
        weight_lines(python, data),
        density_lines(python),
        report(module_graph(modules())),
        way_lines(found),
    ):
        print("\n".join(lines), end="\n\n")
    faults = [fault for way in (*found.walks, *found.changes) for fault in way_faults(way)]
    faults += ledger_faults(LEDGER.read_text(encoding="utf-8"))
    print("\n".join(faults) or "walks, changes and ledger name what is there, and all of it")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
