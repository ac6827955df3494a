"""Sizes of a Python file by its syntax: nodes, lines of code, and nodes a line.

A **node** is one of Python's syntax tree without `Load` and `Store`, which only repeat how a name is used. Their number
is the same however the code is laid out. A **line of code** is neither blank nor a comment or docstring alone.
"""

from __future__ import annotations

import ast
import io
import tokenize

NOT_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def node_count(tree: ast.AST) -> int:
    """The number of nodes, `Load` and `Store` left out."""
    return sum(not isinstance(node, ast.Load | ast.Store) for node in ast.walk(tree))


def code_lines(source: str, tree: ast.AST) -> int:
    """The number of lines that hold code; docstrings, those of attributes included, are none."""
    docstrings = {
        line
        for node in ast.walk(tree)
        if is_docstring(node)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in NOT_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - docstrings)


def is_docstring(node: ast.AST) -> bool:
    """Whether a node is a string that stands alone as a statement."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )
