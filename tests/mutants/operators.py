"""The mistakes: what is changed, and how a mutant is named.

A change that only people see is not made: log lines, events, texts, annotations, docstrings, asserts.
Nor are module constants (they are settings; no promise rests on their values).
"""

from __future__ import annotations

import ast
import copy
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import takewhile

SKIPPED_FIELDS = frozenset({"annotation", "returns", "decorator_list", "args", "bases", "keywords_of_class"})
SAID = frozenset({"log", "event"})
"""Methods that only say something."""
COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}
NAMES = {"min": "max", "max": "min", "any": "all", "all": "any"}
EXACT = (ast.Eq, ast.NotEq, ast.Is, ast.IsNot, ast.In, ast.NotIn)
"""Their negation is the other comparison."""
AROUND = 40
"""Characters that a mutant's name has before and after what is changed."""
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Mutant:
    """One mistake; `number` is its place among those of the file."""

    path: str
    """From the root of the tree."""
    function: str
    """Qualified name of the function; of the class for a default; empty in a module."""
    line: int
    what: str
    number: int

    @property
    def name(self) -> str:
        """Independent of the line, so that it can be kept in a file."""
        return f"{self.path}:{self.function}: {self.what}"


@dataclass(frozen=True)
class _Change:
    function: str
    line: int
    old: ast.AST
    new: ast.AST
    make: Callable[[], None]

    @property
    def what(self) -> str:
        """Before any change is made."""
        return _what(self.old, self.new)


def mutants(path: str, source: str) -> list[Mutant]:
    """Those of one file, in the order of the file."""
    seen: Counter[str] = Counter()
    found = []
    for number, change in enumerate(_changes(ast.parse(source))):
        what = change.what
        seen[key := f"{change.function}: {what}"] += 1
        what += f" #{seen[key]}" if seen[key] > 1 else ""
        found.append(Mutant(path, change.function, change.line, what, number))
    return found


def mutated(source: str, number: int) -> ast.Module:
    """The tree with one mistake in it."""
    tree = ast.parse(source)
    list(_changes(tree))[number].make()
    return ast.fix_missing_locations(tree)


def _changes(tree: ast.Module) -> Iterator[_Change]:
    for statement in tree.body:
        if isinstance(statement, (*FUNCTIONS, ast.ClassDef)):
            yield from _inside(statement, (), None)


def _inside(node: ast.AST, scope: tuple[str, ...], function: ast.AST | None) -> Iterator[_Change]:
    if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
        scope = (*scope, node.name)
        function = node if isinstance(node, FUNCTIONS) else function
    for name, value in ast.iter_fields(node):
        if name in SKIPPED_FIELDS and not (name == "args" and isinstance(node, ast.Call)):
            continue
        children = value if isinstance(value, list) else [value]
        for index, child in enumerate(children):
            if isinstance(child, ast.AST) and not _silent(child):
                put = partial(value.__setitem__, index) if isinstance(value, list) else partial(setattr, node, name)
                for new in _replacements(child, function):
                    yield _Change(".".join(scope), _line(child), child, new, partial(put, new))
                if not isinstance(child, ast.Raise):
                    yield from _inside(child, scope, function)


def _silent(node: ast.AST) -> bool:
    """Does nothing come of it but a text?"""
    if isinstance(node, (ast.JoinedStr, ast.Assert, ast.Import, ast.ImportFrom)):
        return True
    if not isinstance(node, ast.Expr):
        return False
    call = node.value
    if isinstance(call, ast.Constant):
        return True
    return isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in SAID


def _line(node: ast.AST) -> int:
    return node.target.lineno if isinstance(node, ast.comprehension) else getattr(node, "lineno", 0)


def _what(old: ast.AST, new: ast.AST) -> str:
    if isinstance(new, ast.Pass):
        return f"drop {_text(old)[: 2 * AROUND]}"
    one, other = _text(old), _text(new)
    before = _common(one, other)
    after = _common(one[before:][::-1], other[before:][::-1])
    first, rest = max(0, before - AROUND), max(0, after - AROUND)
    return f"{one[first : len(one) - rest]} -> {other[first : len(other) - rest]}"


def _common(one: str, other: str) -> int:
    """Characters that are equal at the beginning."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _text(node: ast.AST) -> str:
    head = copy.copy(node)
    if isinstance(head, (ast.If, ast.While)):
        head.body, head.orelse = [ast.Pass()], []
    return " ".join(ast.unparse(head).removesuffix("pass").split())


def _replacements(node: ast.AST, function: ast.AST | None) -> Iterator[ast.AST]:
    if isinstance(node, ast.stmt):
        yield from _statements(node, function)
    elif isinstance(node, ast.expr):
        yield from _expressions(node)
    elif isinstance(node, ast.comprehension):
        for index in range(len(node.ifs)):
            yield _with(node, ifs=[*node.ifs[:index], *node.ifs[index + 1 :]])


def _with(node: ast.AST, **fields: object) -> ast.AST:
    new = copy.copy(node)
    for name, value in fields.items():
        setattr(new, name, value)
    return new


def _statements(node: ast.stmt, function: ast.AST | None) -> Iterator[ast.AST]:
    if isinstance(node, (ast.If, ast.While)):
        yield from (_with(node, test=test) for test in _negated(node.test))
    elif isinstance(node, (ast.Expr, ast.AugAssign, ast.Raise, ast.Continue, ast.Break, ast.Delete)):
        yield ast.Pass()
    elif isinstance(node, (ast.Assign, ast.AnnAssign)) and function is not None:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if node.value is not None and all(isinstance(each, (ast.Attribute, ast.Subscript)) for each in targets):
            yield ast.Pass()
    elif isinstance(node, ast.Return):
        yield from _returned(node, function)


def _returned(node: ast.Return, function: ast.AST | None) -> Iterator[ast.AST]:
    if node.value is None:
        yield ast.Pass()
        return
    annotation = getattr(function, "returns", None)
    kind = ast.unparse(annotation) if annotation is not None else ""
    if kind == "bool" and not isinstance(node.value, ast.Constant):
        yield from (_with(node, value=value) for value in _negated(node.value))
    elif kind == "str" and not (isinstance(node.value, ast.Constant) and not node.value.value):
        yield _with(node, value=ast.Constant(""))


def _negated(test: ast.expr) -> Iterator[ast.expr]:
    """Nothing for what has a change of its own that says the same."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], EXACT):
        return
    yield ast.UnaryOp(ast.Not(), test)


def _expressions(node: ast.expr) -> Iterator[ast.AST]:
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        yield _with(node, ops=[COMPARISONS[type(node.ops[0])]()])
    elif isinstance(node, ast.BoolOp):
        yield _with(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())
        for index in range(len(node.values)):
            rest = [*node.values[:index], *node.values[index + 1 :]]
            yield rest[0] if len(rest) == 1 else _with(node, values=rest)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node.operand
    elif isinstance(node, ast.IfExp):
        yield from (_with(node, test=test) for test in _negated(node.test))
    elif isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC:
        yield _with(node, op=ARITHMETIC[type(node.op)]())
    elif isinstance(node, ast.Constant):
        yield from _constants(node)
    elif isinstance(node, ast.Call):
        yield from _calls(node)


def _constants(node: ast.Constant) -> Iterator[ast.AST]:
    if isinstance(node.value, bool):
        yield ast.Constant(not node.value)
    elif isinstance(node.value, (int, float)):
        yield ast.Constant(node.value + 1)


def _calls(node: ast.Call) -> Iterator[ast.AST]:
    if isinstance(node.func, ast.Name) and node.func.id in NAMES:
        yield _with(node, func=ast.Name(NAMES[node.func.id], ast.Load()))
    for index in range(len(node.keywords)):
        yield _with(node, keywords=[*node.keywords[:index], *node.keywords[index + 1 :]])
    if len(node.args) > 1 and not isinstance(node.args[-1], ast.Starred):
        yield _with(node, args=node.args[:-1])
