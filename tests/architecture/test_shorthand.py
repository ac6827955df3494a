"""The lint against shorthand: each kind of it is found, and code that only looks like it is not."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.shorthand import FOREIGN, KINDS, ROOT, findings, functions

REFUSED = {
    "attributes": [
        "def f(self, a, b):\n    self.a, self.b = a, b",
        "def f(self):\n    before, self.now = self.now, 1",
        "def f(self, words):\n    self.first, self.rest = words",
        "def f(self):\n    self.a = self.b = 0",
        "(table.title, [table.style]) = words",
    ],
    "constants": [
        "FIRST, MOST = 256, 20_000",
        "STICK, HIT = range(2)",
        "LEAST = MOST = 8",
        "class A:\n    WIDTH, HEIGHT = 21, 8",
    ],
    "times condition": [
        "text = 's' * (count != 1)",
        "rows = [rescue] * may_rescue",
        "rows = [rescue] * has_failed()",
        "def f(is_last):\n    return ', ' * is_last",
        "def f(control: bool):\n    return f', {control}' * control",
        "left *= not done",
        "left *= isinstance(command, Stop)",
        "total = 10 * (1 in cards and total <= 11)",
    ],
    "index by condition": [
        "word = ('no', 'yes')[is_done]",
        "word = ('no', 'yes')[count > 1]",
        "compares = any(found)\nruns = (False, True)[: 1 + compares]",
        "def f():\n    runs, compares = [], any(found)\n    return (False, True)[: 1 + compares]",
    ],
    "nested ternary": [
        "a = 1 if x else 2 if y else 3",
        "a = (1 if x else 2) if y else 3",
        "a = f'{1 if x else 2}' if y else ''",
        "a = 1 if (x if y else z) else 2",
    ],
    "starred literal": [
        "a = [*b, *[0] * count]",
        "a = [*b, *[True] * 3, *()]",
        "a = [*b, *([c] if c else [])]",
        "a = [*b, *(c and [d])]",
        "a = f(*('title', text))",
        "a = {**b, **({'c': 1} if c else {})}",
        "a = f(**{'title': text})",
    ],
    "any keywords": [
        "def f(**more: Any): ...",
        "def f(**more: object): ...",
        "def f(**more): ...",
        "class A:\n    async def f(self, *a: int, **more: Any): ...",
    ],
    "setattr in a loop": [
        "for name in names:\n    setattr(self, name, 0)",
        "while names:\n    if x:\n        setattr(self, names.pop(), 0)",
        "[setattr(self, name, 0) for name in names]",
    ],
    "density": ["x = a[b[c[d[e[f[g[h[i]]]]]]]]\n" * 10],
}
TAKEN = [
    "def f():\n    left, right = pair",
    "def f(self, a):\n    self.a = a\n    first, second = self.pair",
    "self.a[0], b = 1, 2",
    "def f():\n    low, high = 0, 1",
    "FIRST = 256\nMOST = 20_000",
    "line = '-' * width",
    "rows = [0] * len(names)",
    "loss = loss * (mask > 0)",
    "area = width * height",
    "word = words[is_done]",
    "word = ('no', 'maybe', 'yes')[at]",
    "a = 1 if x else 2\nb = 3 if y else 4",
    "a = [1 if x else 2, 3 if y else 4]",
    "a = [*b, *c]",
    "a = [*b, *(each.name for each in c)]",
    "a = [*(b or c)]",
    "a = {**b, 'c': 1}",
    "def f(**parts: str): ...",
    "f(**more)",
    "setattr(owner, name, found)",
    "for name in names:\n    getattr(self, name)",
    '"""A docstring is no code."""\n' + "x = a + b\n" * 10,
]


def kinds_in(source: str, path: str = "llamagym_tui/example.py") -> set[str]:
    return {each.kind for each in findings(source, path)}


@pytest.mark.parametrize(
    ("kind", "source"), [(kind, source) for kind, sources in REFUSED.items() for source in sources]
)
def test_shorthand_is_refused(kind: str, source: str) -> None:
    assert kinds_in(source) == {kind}


@pytest.mark.parametrize("source", TAKEN)
def test_code_that_says_one_thing_at_a_time_is_taken(source: str) -> None:
    assert kinds_in(source) == set()


def test_every_kind_has_an_example() -> None:
    assert REFUSED.keys() == KINDS.keys()


def test_index_arithmetic_may_be_denser_where_a_line_is_a_formula() -> None:
    source = "x = a[b[c[d[e]]]]\n" * 10
    assert kinds_in(source, "llamagym_tui/state/example.py") == {"density"}
    assert kinds_in(source, "llamagym_tui/engine/tokens/example.py") == set()


def test_a_finding_is_printed_with_its_place_and_what_to_write_instead() -> None:
    found = findings("x = 0\nFIRST, MOST = 8, 20", "agents/example.py")
    assert [str(each) for each in found] == [
        "agents/example.py:2: Several constants are assigned at once; "
        "give each a line and a docstring of its own."
    ]


def test_what_a_library_asks_for_is_excepted_by_its_name() -> None:
    source = "class AgentBase:\n    def draw(self, observation, **more: Any): ..."
    assert kinds_in(source, "llamagym_tui/game/agent_base.py") == set()
    assert kinds_in(source, "llamagym_tui/game/other.py") == {"any keywords"}


def test_every_exception_is_of_a_function_that_is_there_and_takes_keywords() -> None:
    known = {
        f"{path}::{name}"
        for path in {exception.split("::")[0] for exception in FOREIGN}
        for name, function in functions(ast.parse((ROOT / path).read_text()))
        if function.args.kwarg
    }
    assert FOREIGN.keys() - known == set()


def test_the_command_ends_with_one_where_there_is_shorthand(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "scripts.shorthand"]
    (tmp_path / "example.py").write_text("FIRST, MOST = 8, 20\n")
    ended = subprocess.run([*command, str(tmp_path)], cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 1
    assert "example.py:1: Several constants" in ended.stdout
    (tmp_path / "example.py").write_text("FIRST = 8\n")
    ended = subprocess.run([*command, str(tmp_path)], cwd=ROOT, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (0, "")
