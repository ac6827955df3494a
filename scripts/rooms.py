"""Counts the rooms of the project, the arrows between them and the circles: `python -m scripts.rooms`.

- A **room** is what the first two parts of a module's dotted name give: `llamagym_tui.engine` is one, with all of its
  modules, and so is `llamagym_tui.config`, a module next to it. The second count takes three parts. `benchmarks` and
  `scripts` are one room each.
- An **arrow** goes from one room to another if any module of the first imports any module of the second. It counts
  once, however many imports there are, and imports inside functions or for type checkers count too.
- A **circle** is a group of rooms that all reach each other along arrows. One arrow each way is the smallest.

The third count is of modules as if each were a room: two files can import each other without any circle of rooms.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "llamagym_tui"
LINKED = ("agents", "screens", "sft_data")
"""Folders at the top of the checkout that are packages in `PACKAGE`."""
OUTSIDE = ("benchmarks", "scripts")
Graph = dict[str, set[str]]
"""Each node with the nodes that it imports."""


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
    """Dotted names that are imported anywhere in a module; `from a import b` gives ``a.b``."""
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


def rooms(graph: Graph, levels: int) -> Graph:
    """The modules' graph with all modules of a room joined.

    Args:
        graph: of modules.
        levels: parts of the dotted name that name a room.
    """

    def room_of(module: str) -> str:
        return ".".join(module.split(".")[: 1 if module.startswith(OUTSIDE) else levels])

    joined: Graph = {}
    for module, targets in graph.items():
        room = room_of(module)
        joined.setdefault(room, set()).update({room_of(target) for target in targets} - {room})
    return joined


def arrows(graph: Graph) -> int:
    return sum(map(len, graph.values()))


def circles(graph: Graph) -> list[list[str]]:
    """The circles, each as a sorted list of names."""
    reached = {node: _reachable(graph, node) for node in graph}
    groups = {
        frozenset({node, *(other for other in reached[node] if node in reached[other])})
        for node in graph
    }
    return sorted(sorted(group) for group in groups if len(group) > 1)


def _reachable(graph: Graph, start: str) -> set[str]:
    """Nodes that can be reached from one along one arrow or more."""
    found: set[str] = set()
    waiting = [start]
    while waiting:
        new = graph.get(waiting.pop(), set()) - found
        found |= new
        waiting += new
    return found


def report(graph: Graph) -> Iterator[str]:
    """The lines that the command prints, for a graph of modules."""
    counted = {
        "rooms on the top two levels": rooms(graph, 2),
        "rooms on the top three levels": rooms(graph, 3),
    }
    for title, nodes in {**counted, "modules": graph}.items():
        found = circles(nodes)
        yield f"{title}: {len(nodes)}, arrows {arrows(nodes)}, circles {len(found)}"
        yield from ("  circle: " + ", ".join(group) for group in found)


if __name__ == "__main__":
    print("\n".join(report(module_graph(modules()))))
