"""Finds shorthand, code that has to be read twice: `python -m scripts.shorthand` prints each place and what to write.

It looks for the kinds in `KINDS` and no others, by the syntax tree. The exit code is 1 if there is any. What has to
stay as it is, because a library asks for it, is in `FOREIGN`, with the reason.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from scripts.syntax import code_lines, node_count

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("llamagym_tui", "agents", "screens", "scripts", "benchmarks")
"""Folders that are looked at; links in the package are the same files and are left out."""

KINDS = {
    "attributes": "Several attributes are assigned at once; give each a line of its own.",
    "constants": "Several constants are assigned at once; give each a line and a docstring of its own.",
    "times condition": "Something is multiplied by a condition; write an if.",
    "index by condition": "A literal is indexed by a condition; write an if or a table.",
    "nested ternary": "A ternary stands in a ternary; write ifs, a match or a table.",
    "starred literal": "A literal is unpacked in place; write its items out, join lists by +, or add in an if.",
    "any keywords": "Keywords of any kind are taken; name the arguments, or give their one type.",
    "setattr in a loop": "Attributes are set by name in a loop; write the assignments out.",
    "density": "has more nodes a line of code than its ceiling; write the densest lines out.",
}
"""The kinds of shorthand, with what is said of each place."""

CEILING = 9.5
"""Most nodes of the syntax tree for each line of code of a file; prose has 3 to 5, a formula a line about 10."""
FEWEST_LINES = 10
"""Lines of code from which on a file's density says anything."""
CEILINGS = {"llamagym_tui/engine/tokens/": 13.0, "llamagym_tui/engine/model/": 13.0}
"""Folders with a ceiling of their own: index arithmetic, in which a line is a formula."""

AGENT = "an agent's method takes as much of what is offered as it likes"
TRANSFORMERS = "the signature is that of transformers"
WRAPPED = "it stands in for another function, whatever that one takes"
FOREIGN = {
    "benchmarks/breakdown.py::Tokens.counting.watched": WRAPPED,
    "benchmarks/llamagym_side.py::main.generate_counted": WRAPPED,
    "benchmarks/peers_agilerl.py::Marks.__call__": WRAPPED,
    "benchmarks/peers_trl.py::Marks.on_step_end": TRANSFORMERS,
    "benchmarks/timing.py::Stopwatch.around.timed": WRAPPED,
    "llamagym_tui/app/leaving.py::Leaving.run_async": "the signature is that of Textual's App",
    "llamagym_tui/app/personal.py::PersonalApp.notify": "the signature is that of Textual's App",
    "llamagym_tui/app/terminal.py::Terminal.__init__": "the signature is that of Textual's driver",
    "llamagym_tui/cli/group.py::AgentOrCommand.main": "the signature is that of click's group",
    "llamagym_tui/engine/learning/sft.py::_callback.Callback.on_log": TRANSFORMERS,
    "llamagym_tui/engine/learning/sft.py::_callback.Callback.on_optimizer_step": TRANSFORMERS,
    "llamagym_tui/engine/learning/sft.py::_callback.Callback.on_pre_optimizer_step": TRANSFORMERS,
    "llamagym_tui/engine/learning/sft.py::arguments": "the names are those of TRL's configuration",
    "llamagym_tui/engine/model/caches.py::_RaggedLayer.update": TRANSFORMERS,
    "llamagym_tui/engine/model/value_head.py::AutoModelForCausalLMWithValueHead.forward": TRANSFORMERS,
    "llamagym_tui/engine/model/value_head.py::AutoModelForCausalLMWithValueHead.from_pretrained": TRANSFORMERS,
    "llamagym_tui/engine/model/value_head.py::AutoModelForCausalLMWithValueHead.generate": TRANSFORMERS,
    "llamagym_tui/game/agent_base.py::AgentBase.actions": AGENT,
    "llamagym_tui/game/agent_base.py::AgentBase.draw": AGENT,
    "llamagym_tui/game/agent_base.py::AgentBase.expert": AGENT,
    "llamagym_tui/game/agent_base.py::AgentBase.format_observation": AGENT,
    "llamagym_tui/game/agent_base.py::AgentBase.reveal": AGENT,
    "llamagym_tui/game/text_game.py::TextGame.__init__": "gymnasium.make passes what its user gave",
    "screens/widgets/sentence_input.py::OneLineInput.__init__": "the keywords are those of Textual's Input",
    "scripts/bundled_model/batches.py::shared_prefix_attention": TRANSFORMERS,
}
"""Functions, as ``path::Class.function``, that may take keywords of any kind, with the reason."""

CONDITION_CALLS = {"all", "any", "bool", "callable", "hasattr", "isinstance", "issubclass"}
CONDITION_METHODS = {"endswith", "exists", "is_dir", "is_file", "isdigit", "startswith"}
CONDITION_PREFIXES = ("can_", "has_", "is_", "may_", "needs_", "should_", "was_", "wants_")

Places = Iterator[tuple[str, int]]
"""A kind with the line where it stands."""
Function = ast.FunctionDef | ast.AsyncFunctionDef
Literal = ast.List | ast.Tuple | ast.Set | ast.Dict | ast.JoinedStr


class Finding(NamedTuple):
    path: str
    line: int
    kind: str
    sentence: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.sentence}"


def findings(source: str, path: str) -> list[Finding]:
    """All shorthand of a file, by line.

    Args:
        source: text of the file.
        path: its name from the top of the checkout, which decides ceiling and exceptions.
    """
    tree = ast.parse(source)
    nodes = list(ast.walk(tree))
    found = {
        Finding(path, line, kind, KINDS[kind])
        for kind, line in (
            *_of_assignments(nodes),
            *_of_conditions(nodes),
            *_of_ternaries(nodes),
            *_of_starred(nodes),
            *_of_keywords(tree, path),
            *_of_setattr(nodes),
        )
    }
    ceiling = ceiling_of(path)
    lines = code_lines(source, tree)
    density = node_count(tree) / max(lines, 1)
    if lines >= FEWEST_LINES and density > ceiling:
        words = f"The file, at {density:.1f} of {ceiling:g}, {KINDS['density']}"
        found.add(Finding(path, 1, "density", words))
    return sorted(found)


def ceiling_of(path: str) -> float:
    """The most nodes that a file may have for each line of code."""
    return next((most for folder, most in CEILINGS.items() if path.startswith(folder)), CEILING)


def _of_assignments(nodes: Sequence[ast.AST]) -> Places:
    """``self.a, self.b = a, b``, ``self.a = self.b = a``, and ``FIRST, MOST = 8, 20`` in a module or a class."""
    shared = {
        statement
        for parent in nodes
        if isinstance(parent, ast.Module | ast.ClassDef)
        for statement in parent.body
    }
    for node in nodes:
        if isinstance(node, ast.Assign):
            targets = [each for target in node.targets for each in _targets(target)]
            if len(targets) < 2:
                continue
            if any(isinstance(each, ast.Attribute) for each in targets):
                yield "attributes", node.lineno
            elif node in shared and all(isinstance(each, ast.Name) for each in targets):
                yield "constants", node.lineno


def _targets(target: ast.expr) -> Iterator[ast.expr]:
    """What an assignment's left side assigns to, one by one."""
    if isinstance(target, ast.Tuple | ast.List):
        for each in target.elts:
            yield from _targets(each)
    else:
        yield target


def _of_conditions(nodes: Sequence[ast.AST]) -> Places:
    """``[a] * is_last``, ``left *= not done``, ``("a", "b")[is_last]``."""
    flags = set(_flags(nodes))
    for node in nodes:
        match node:
            case ast.BinOp(op=ast.Mult(), left=left, right=right):
                for one, other in ((left, right), (right, left)):
                    literal = _is_literal(one) and _is_condition(other, flags)
                    if literal or _is_no_tensor(other):
                        yield "times condition", node.lineno
            case ast.AugAssign(op=ast.Mult(), value=value) if _is_condition(value, flags):
                yield "times condition", node.lineno
            case ast.Subscript(value=value, slice=index) if _is_literal(value):
                if any(_is_condition(each, flags) for each in ast.walk(index)):
                    yield "index by condition", node.lineno


def _flags(nodes: Sequence[ast.AST]) -> Iterator[str]:
    """Names and attributes that a file declares as bool, or assigns a condition to."""
    for node in nodes:
        match node:
            case ast.arg(arg=name, annotation=ast.Name(id="bool")):
                yield name
            case ast.AnnAssign(
                target=ast.Name(id=name) | ast.Attribute(attr=name),
                annotation=ast.Name(id="bool"),
            ):
                yield name
            case ast.FunctionDef(name=name, returns=ast.Name(id="bool")):
                yield name
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if _is_no_tensor(value):
                yield name
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)):
                for target, value in zip(names, values, strict=False):
                    if isinstance(target, ast.Name) and _is_no_tensor(value):
                        yield target.id


def _is_literal(node: ast.expr) -> bool:
    text = isinstance(node, ast.Constant) and isinstance(node.value, str)
    return text or isinstance(node, Literal | ast.ListComp)


def _is_condition(node: ast.AST, flags: set[str]) -> bool:
    """Whether a value is a bool, as far as the file shows."""
    match node:
        case ast.Compare():
            return True
        case (
            ast.Name(id=name)
            | ast.Attribute(attr=name)
            | ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name))
        ):
            known = name in flags or name in CONDITION_METHODS
            return known or name.startswith(CONDITION_PREFIXES) or _is_no_tensor(node)
    return _is_no_tensor(node)


def _is_no_tensor(node: ast.AST) -> bool:
    """Whether a value is a condition for certain; a comparison may be a tensor, a mask that textbooks multiply by."""
    match node:
        case ast.UnaryOp(op=ast.Not()) | ast.Constant(value=True) | ast.Constant(value=False):
            return True
        case ast.Compare(ops=ops):
            return any(isinstance(op, ast.In | ast.NotIn | ast.Is | ast.IsNot) for op in ops)
        case ast.BoolOp(values=values):
            return all(_is_no_tensor(each) or isinstance(each, ast.Compare) for each in values)
        case ast.Call(func=ast.Name(id=name)):
            return name in CONDITION_CALLS
    return False


def _of_ternaries(nodes: Sequence[ast.AST]) -> Places:
    """``a if x else b if y else c``, in brackets or not."""
    for node in nodes:
        if isinstance(node, ast.IfExp):
            inside = (each for each in ast.walk(node) if each is not node)
            if any(isinstance(each, ast.IfExp) for each in inside):
                yield "nested ternary", node.lineno


def _of_starred(nodes: Sequence[ast.AST]) -> Places:
    """``[*[a] * n]``, ``[*([a] if x else [])]``, ``f(**{"a": 1})``."""
    for node in nodes:
        match node:
            case ast.Starred(value=value, ctx=ast.Load()) | ast.keyword(arg=None, value=value):
                if _is_made_in_place(value):
                    yield "starred literal", value.lineno
            case ast.Dict(keys=keys, values=values):
                for key, value in zip(keys, values, strict=True):
                    if key is None and _is_made_in_place(value):
                        yield "starred literal", value.lineno


def _is_made_in_place(node: ast.expr) -> bool:
    """Whether what is unpacked is a literal, a product of one, or one of two."""
    match node:
        case ast.BinOp(op=ast.Mult(), left=left, right=right):
            return _is_made_in_place(left) or _is_made_in_place(right)
        case ast.BoolOp(op=ast.And()):
            return True
    return isinstance(node, Literal | ast.Constant | ast.IfExp)


def _of_keywords(tree: ast.AST, path: str) -> Places:
    """``def f(**more: Any)``."""
    for name, function in functions(tree):
        keywords = function.args.kwarg
        if keywords is None or f"{path}::{name}" in FOREIGN:
            continue
        kind = keywords.annotation
        if kind is None or ast.unparse(kind) in ("Any", "object", "typing.Any"):
            yield "any keywords", keywords.lineno


def functions(tree: ast.AST, inside: str = "") -> Iterator[tuple[str, Function]]:
    """The functions of a file by their names, those in classes and functions included."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, Function | ast.ClassDef):
            name = f"{inside}.{node.name}" if inside else node.name
            if isinstance(node, Function):
                yield name, node
            yield from functions(node, name)
        else:
            yield from functions(node, inside)


def _of_setattr(nodes: Sequence[ast.AST]) -> Places:
    """``for name in names: setattr(self, name, 0)``."""
    for node in nodes:
        if isinstance(node, ast.For | ast.While | ast.ListComp | ast.GeneratorExp):
            for each in ast.walk(node):
                match each:
                    case ast.Call(func=ast.Name(id="setattr")):
                        yield "setattr in a loop", each.lineno


def files(folders: Iterable[str] = FOLDERS, root: Path = ROOT) -> Iterator[Path]:
    """The Python files of some folders; `rglob` follows no link to a folder."""
    for folder in folders:
        yield from sorted((root / folder).rglob("*.py"))


def main() -> int:
    """Print all shorthand of the folders that the command line names, of `FOLDERS` if it names none."""
    count = 0
    for path in files(sys.argv[1:] or FOLDERS):
        name = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
        for finding in findings(path.read_text(encoding="utf-8"), str(name)):
            print(finding)
            count += 1
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
