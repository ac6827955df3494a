"""Measures the size of the project in ways that packing code into fewer lines does not improve.

``python -m scripts.house`` prints, for all Python files in git:

- the nodes of their syntax trees, room by room. `Load` and `Store` are left out: they repeat how a name is used.
- nodes for each line of code that is no comment or docstring, of the whole and of the densest files.
- rooms, arrows and circles. A room is the first two parts of a module's dotted name. An arrow joins two rooms of which
  one imports the other, in a function or for a type checker too. A circle is a group of rooms that reach each other.
"""

from __future__ import annotations

import ast
import io
import subprocess
import tokenize
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "llamagym_tui"
LINKED = ("agents", "screens", "sft_data")
"""Folders at the top of the checkout that are packages in `PACKAGE`."""
OUTSIDE = ("benchmarks", "scripts")
"""Packages that are one room each."""
DENSEST = 10
"""Files whose density is printed."""
FEWEST_LINES = 10
"""Lines of code below which a file's density says nothing."""
NOT_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
Graph = dict[str, set[str]]
"""Each node with the nodes that it imports."""


class Measured(NamedTuple):
    """A Python file."""

    path: str
    nodes: int
    lines: int
    """Lines of code."""


def tracked() -> list[str]:
    """Python files in git."""
    command = ["git", "ls-files", "-z", "*.py"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    names = [name for name in listed.stdout.split("\0") if name]
    return [name for name in names if (ROOT / name).is_file()]


def measured(path: str, source: str) -> Measured:
    """Count the nodes and the lines of code of a file."""
    tree = ast.parse(source)
    nodes = sum(not isinstance(node, ast.Load | ast.Store) for node in ast.walk(tree))
    docstrings: set[int] = set()
    for node in ast.walk(tree):
        if _is_docstring(node):
            docstrings.update(range(node.lineno, node.end_lineno + 1))
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in NOT_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    return Measured(path, nodes, len(lines - docstrings))


def _is_docstring(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def part_of(path: str) -> str:
    """The part of the project that a file belongs to: a room of the package, else its folder at the top."""
    folders = path.split("/")[:-1]
    if not folders:
        return "top"
    if folders[0] in (PACKAGE, "docs"):
        return "/".join(folders[:2])
    return folders[0]


def modules(root: Path = ROOT) -> dict[str, Path]:
    """Files by dotted module name; a package's name stands for its `__init__`."""
    found = {}
    for top in (PACKAGE, *LINKED, *OUTSIDE):
        prefix = [PACKAGE, top] if top in LINKED else [top]
        for path in (root / top).rglob("*.py"):
            inside = path.relative_to(root / top).with_suffix("").parts
            if inside[-1] == "__init__":
                inside = inside[:-1]
            found[".".join([*prefix, *inside])] = path
    return found


def module_graph(files: Mapping[str, Path]) -> Graph:
    """Our modules, each with those that it imports."""
    graph: Graph = {}
    for name, path in files.items():
        imported = _imported(ast.parse(path.read_text(encoding="utf-8")))
        graph[name] = {_module_of(target, files) for target in imported} - {"", name}
    return graph


def _imported(tree: ast.AST) -> Iterator[str]:
    """Dotted names that a module imports anywhere; `from a import b` gives ``a.b``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _module_of(target: str, files: Mapping[str, Path]) -> str:
    """Our module that an imported name belongs to; empty if it is not ours."""
    while target and target not in files:
        target = target.rpartition(".")[0]
    return target


def rooms(graph: Graph) -> Graph:
    """The graph of the modules with all modules of a room joined."""

    def room_of(module: str) -> str:
        parts = module.split(".")
        return parts[0] if parts[0] in OUTSIDE else ".".join(parts[:2])

    joined: Graph = {}
    for module, targets in graph.items():
        room = room_of(module)
        joined.setdefault(room, set()).update({room_of(target) for target in targets} - {room})
    return joined


def arrows(graph: Graph) -> int:
    """The number of pairs of which the first imports the second."""
    return sum(map(len, graph.values()))


def circles(graph: Graph) -> list[list[str]]:
    """The circles, each as a sorted list of names."""
    reached = {node: _reachable(graph, node) for node in graph}
    groups = {
        frozenset(other for other in reached[node] if node in reached[other]) for node in graph
    }
    return sorted(sorted(group) for group in groups if len(group) > 1)


def _reachable(graph: Graph, start: str) -> set[str]:
    found: set[str] = set()
    waiting = [start]
    while waiting:
        new = graph.get(waiting.pop(), set()) - found
        found |= new
        waiting += new
    return found


def main() -> None:
    """Print all measures."""
    python = [measured(name, (ROOT / name).read_text(encoding="utf-8")) for name in tracked()]
    nodes: Counter[str] = Counter()
    files: Counter[str] = Counter()
    for file in python:
        part = part_of(file.path)
        nodes[part] += file.nodes
        files[part] += 1
    print(f"nodes: {nodes.total():,} in {len(python)} files")
    for part, weight in nodes.most_common():
        print(f"  {weight:>8,}  {part} ({files[part]} files)")
    product = [part for part in nodes if part.startswith(PACKAGE) or part in LINKED]
    in_product = sum(nodes[part] for part in product)
    print(f"product: {in_product:,} in {sum(files[part] for part in product)} files")
    lines = sum(file.lines for file in python)
    print(f"density: {nodes.total() / lines:.2f} nodes a line of code ({lines:,} lines)")
    long_enough = [file for file in python if file.lines >= FEWEST_LINES]
    for file in sorted(long_enough, key=lambda file: -file.nodes / file.lines)[:DENSEST]:
        print(f"  {file.nodes / file.lines:>5.2f}  {file.path}")
    graph = module_graph(modules())
    for title, found in {"rooms": rooms(graph), "modules": graph}.items():
        print(
            f"{title}: {len(found)}, arrows {arrows(found)}, circles {len(circles(found))}",
            *map(", ".join, circles(found)),
            sep="\n  ",
        )


if __name__ == "__main__":
    main()
