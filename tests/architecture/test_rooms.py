"""The house stays readable: few rooms, few arrows between them, and no circles (`scripts.rooms` counts them)."""

from __future__ import annotations

from pathlib import Path

from scripts.rooms import arrows, circles, module_graph, modules, rooms


def graph_of(folder: Path, **sources: str) -> dict[str, set[str]]:
    """The graph of a made-up package; ``__`` in a name stands for a dot."""
    for name, source in sources.items():
        path = folder / "llamagym_tui" / (name.replace("__", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    return module_graph(modules(folder))


def test_no_modules_and_no_rooms_import_each_other_in_a_circle() -> None:
    graph = module_graph(modules())
    assert circles(graph) == []
    assert circles(rooms(graph, 2)) == []
    assert circles(rooms(graph, 3)) == []


def test_there_are_few_rooms_and_few_arrows_between_them() -> None:
    found = rooms(module_graph(modules()), 2)
    assert len(found) <= 30
    assert arrows(found) <= 123


def test_at_most_ten_modules_stand_at_the_top_of_the_package() -> None:
    top = [
        name
        for name, path in modules().items()
        if name.count(".") == 1 and path.name != "__init__.py"
    ]
    assert len([name for name in top if name.startswith("llamagym_tui.")]) <= 10


def test_an_import_in_a_function_and_one_for_type_checkers_make_a_circle(tmp_path: Path) -> None:
    graph = graph_of(
        tmp_path,
        game__a="def f():\n    from llamagym_tui.state import b\n",
        state__b="from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import llamagym_tui.game.a\n",
        state__c="from llamagym_tui.game.a import f\n",
    )
    assert circles(graph) == [["llamagym_tui.game.a", "llamagym_tui.state.b"]]
    assert rooms(graph, 2) == {
        "llamagym_tui.game": {"llamagym_tui.state"},
        "llamagym_tui.state": {"llamagym_tui.game"},
    }
    assert arrows(rooms(graph, 2)) == 2
