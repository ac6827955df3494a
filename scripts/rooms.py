"""Counts the rooms of the project, the arrows between them and the circles: `python -m scripts.rooms`.

A room is a folder, or a module beside one. An arrow is an import from one room by another, however often it is written;
imports inside functions and for type checkers only count like all others. A circle is a group of rooms, or of modules,
each of which reaches all others by arrows.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "llamagym_tui"
LINKED = ("agents", "screens", "sft_data")
"""Folders at the top that belong to the package under their own name."""
BESIDE = ("benchmarks", "scripts")
Graph = dict[str, set[str]]


def modules(root: Path = ROOT) -> dict[str, Path]:
    """Files by dotted module name; a package stands for its `__init__`."""
    found = {}
    for top in (PACKAGE, *LINKED, *BESIDE):
        prefix = [PACKAGE, top] if top in LINKED else [top]
        for path in (root / top).rglob("*.py"):
            inside = path.relative_to(root / top).with_suffix("").parts
            if top == PACKAGE and inside[0] in LINKED:
                continue
            parts = [*prefix, *(inside[:-1] if inside[-1] == "__init__" else inside)]
            found[".".join(parts)] = path
    return found


def imported(tree: ast.AST) -> Iterator[str]:
    """Dotted names that a module imports anywhere; `from a import b` gives ``a.b``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def module_graph(files: Mapping[str, Path]) -> Graph:
    """Each module with those that it imports."""
    graph: Graph = {}
    for name, path in files.items():
        found = {_module_of(target, files) for target in imported(ast.parse(path.read_text(encoding="utf-8")))}
        graph[name] = {target for target in found if target and target != name}
    return graph


def _module_of(target: str, files: Mapping[str, Path]) -> str:
    """The module that a dotted name is in; empty if it is none of ours."""
    while target and target not in files:
        target = target.rpartition(".")[0]
    return target


def rooms(graph: Graph, levels: int) -> Graph:
    """The graph with each module named by its first parts.

    Args:
        graph: of modules.
        levels: parts of a name that are kept: 2 for the rooms beside each other in the package.
    """
    joined: Graph = {}
    for name, targets in graph.items():
        room = ".".join(name.split(".")[: 1 if name.startswith(BESIDE) else levels])
        others = {".".join(target.split(".")[: 1 if target.startswith(BESIDE) else levels]) for target in targets}
        joined.setdefault(room, set()).update(others - {room})
    return joined


def circles(graph: Graph) -> list[list[str]]:
    """Groups of nodes that reach each other, by name."""
    reached = {node: _reachable(graph, node) for node in graph}
    groups = {frozenset({node, *(other for other in reached[node] if node in reached[other])}) for node in graph}
    return sorted(sorted(group) for group in groups if len(group) > 1)


def _reachable(graph: Graph, start: str) -> set[str]:
    found: set[str] = set()
    waiting = [start]
    while waiting:
        for target in graph.get(waiting.pop(), ()):
            if target not in found:
                found.add(target)
                waiting.append(target)
    return found


def arrows(graph: Graph) -> int:
    """How many pairs of rooms there are of which the first imports the second."""
    return sum(map(len, graph.values()))


def report(graph: Graph) -> Iterable[str]:
    """What the command prints."""
    for title, shown in (
        ("rooms on the top two levels", rooms(graph, 2)),
        ("rooms on the top three levels", rooms(graph, 3)),
        ("modules", graph),
    ):
        found = circles(shown)
        yield f"{title}: {len(shown)}, arrows {arrows(shown)}, circles {len(found)}"
        yield from ("  circle: " + ", ".join(group) for group in found)


if __name__ == "__main__":
    sys.stdout.write("\n".join(report(module_graph(modules()))) + "\n")
