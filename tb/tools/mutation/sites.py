"""Finds mutable places in a source file, and generates the source with both versions of each."""

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["RUNTIME", "Mutant", "changed", "mutants"]

RUNTIME = "_mutation_switch"
"""Name of `tb.tools.mutation.switch` in changed sources."""

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitOr,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
}
_REDUCTIONS = {"any": "all", "all": "any"}
_CONDITIONS = {"If", "Elif"}
_WIDTHS = {"Signal": 0, "unsigned": 0, "signed": 0, "Const": 1}
"""Place of the width among the arguments of a call."""


@dataclass(frozen=True)
class Mutant:
    """A mutant of a source file.

    Members
    -------
    number : within its file, in source order.
    line, text : line in the original, and its text.
    change : description of the change.
    """

    file: str
    number: int
    line: int
    text: str
    change: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.change}: {self.text}"


def mutants(file: str, source: str) -> list[Mutant]:
    """All mutants of a source file."""
    lines = source.splitlines()
    sites = _Sites({})
    sites.visit(ast.parse(source))
    return [
        Mutant(file, number, line, lines[line - 1].strip(), change)
        for number, (line, change) in enumerate(sites.found)
    ]


def changed(path: Path, active: Mapping[int, int]) -> ast.Module:
    """The source with the mutants in `active`, which maps numbers within the file to numbers at run
    time."""
    tree = _Sites(active).visit(ast.parse(path.read_text()))
    place = next(
        (n for n, one in enumerate(tree.body) if not _first(one)),
        len(tree.body),
    )
    tree.body.insert(
        place, ast.parse(f"from signalbox.tb.tools.mutation import switch as {RUNTIME}").body[0]
    )
    return ast.fix_missing_locations(tree)


def _first(statement: ast.stmt) -> bool:
    """Whether a statement must stay at the start of a module."""
    text = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return text or (isinstance(statement, ast.ImportFrom) and statement.module == "__future__")


class _Sites(ast.NodeTransformer):
    """Numbers mutants in the order of traversal, and inserts the active ones."""

    def __init__(self, active: Mapping[int, int]) -> None:
        self.found: list[tuple[int, str]] = []
        self._active = active
        self._functions = 0
        self._domain: str | None = None
        self._states: list[str] = []  # of the file; no file has two machines
        self._state: str | None = None

    def _take(self, node: ast.AST, change: str) -> int | None:
        """Count a mutant. Returns its number at run time if it is active."""
        self.found.append((getattr(node, "lineno", 0), change))
        return self._active.get(len(self.found) - 1)

    # Nodes without mutants

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self._functions += 1
        node.body = [one for statement in node.body for one in _listed(self.visit(statement))]
        self._functions -= 1
        return node

    visit_AsyncFunctionDef = visit_FunctionDef  # type: ignore[assignment]

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        if any(_named(base) == "Struct" for base in node.bases):
            for field in node.body:
                if isinstance(field, ast.AnnAssign):
                    field.annotation = self._width(self.visit(field.annotation))
        node.body = [
            self.visit(one) if isinstance(one, ast.FunctionDef | ast.ClassDef) else one
            for one in node.body
        ]
        return node

    def visit_Module(self, node: ast.Module) -> ast.AST:
        named = (_state(one) for one in ast.walk(node) if isinstance(one, ast.With))
        self._states = [*dict.fromkeys(state for state in named if state is not None)]
        node.body = [
            self.visit(one) if isinstance(one, ast.FunctionDef | ast.ClassDef) else one
            for one in node.body
        ]
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if node.value is not None:
            node.value = self.visit(node.value)
        return node

    def _same(self, node: ast.AST) -> ast.AST:
        return node

    visit_Raise = visit_Assert = visit_JoinedStr = visit_MatchValue = _same

    # Expressions

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        if len(node.ops) > 1:
            return node
        other = _COMPARISONS[type(node.ops[0])]
        variants = [(f"{_name(node.ops[0])} to {_name(other())}", _compare(other()))]
        if _whole(node.comparators[0]):
            variants.append(("constant plus 1", _compare(node.ops[0], shift=1)))
        return self._pick(node, [node.left, node.comparators[0]], _compare(node.ops[0]), variants)

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        if (other := _OPERATORS.get(type(node.op))) is None:
            return node
        variants = [(f"{_name(node.op)} to {_name(other())}", _binary(other()))]
        if _whole(node.right):
            variants.append(("constant plus 1", _binary(node.op, shift=1)))
        return self._pick(node, [node.left, node.right], _binary(node.op), variants)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        if not isinstance(node.op, ast.Invert | ast.Not):
            return node
        return self._pick(
            node,
            [node.operand],
            lambda a: ast.UnaryOp(node.op, a),
            [("not negated", lambda a: a)],
        )

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        lazy = (ast.NamedExpr, ast.Await, ast.Yield, ast.YieldFrom)
        left_alone = not self._functions or any(isinstance(one, lazy) for one in ast.walk(node))
        self.generic_visit(node)
        if left_alone:
            return node
        other = ast.And() if isinstance(node.op, ast.Or) else ast.Or()
        operands: list[ast.expr] = [_function([], value) for value in node.values]
        return self._pick(
            node,
            operands,
            lambda *a: ast.BoolOp(node.op, [ast.Call(one, [], []) for one in a]),
            [
                (
                    "or to and" if isinstance(node.op, ast.Or) else "and to or",
                    lambda *a: ast.BoolOp(other, [ast.Call(one, [], []) for one in a]),
                )
            ],
        )

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        return self._decided(node)

    def visit_If(self, node: ast.If) -> ast.AST:
        return self._decided(node)

    def _decided(self, node: ast.If | ast.IfExp) -> ast.AST:
        """Mutate a decision in Python if its condition is a plain name. Other conditions, such as
        comparisons, have mutants of their own."""
        plain = isinstance(node.test, ast.Name | ast.Attribute | ast.Subscript)
        self.generic_visit(node)
        if plain:
            variants: list[tuple[str, _Variant]] = [
                ("negated", lambda a: ast.UnaryOp(ast.Not(), a))
            ]
            node.test = self._pick(node.test, [node.test], lambda a: a, variants)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if any(isinstance(one, ast.Starred) for one in node.args):
            return node
        called = node.func
        if isinstance(called, ast.Name) and called.id == "Mux" and len(node.args) == 3:
            variants = [("first arm", lambda s, a, b: a), ("second arm", lambda s, a, b: b)]
            return self._pick(node, node.args, _call(called), variants)
        place = _WIDTHS.get(_named(called))
        if place is not None and len(node.args) > place:
            node.args[place] = self._width(node.args[place])
        if not isinstance(called, ast.Attribute):
            return node
        if called.attr == "Case" and node.args:
            node.args = [self._patterns(node.args)]
        if called.attr in _REDUCTIONS and not node.args:
            other = _REDUCTIONS[called.attr]
            return self._pick(
                node,
                [called.value],
                _method(called.attr),
                [(f"{called.attr} to {other}", _method(other))],
            )
        if called.attr in _CONDITIONS and len(node.args) == 1:
            node.args[0] = self._pick(
                node.args[0],
                [node.args[0]],
                lambda a: a,
                [
                    ("never", lambda a: ast.Constant(0)),
                    ("always", lambda a: ast.Constant(1)),
                ],
            )
        elif called.attr == "eq" and self._domain and len(node.args) == 1:
            self._assignment(node, called.value)
        return node

    def _assignment(self, node: ast.Call, target: ast.expr) -> None:
        """Mutate an assignment. A combinational assignment of 0 is not dropped, as a signal without
        an assignment is 0, too."""
        zero = _whole(node.args[0]) and _number(node.args[0]) == 0
        if _whole(node.args[0]):
            node.args[0] = self._constant(node.args[0], hardware=True)
        if zero and self._domain == "comb":
            return
        number = self._take(node, "assignment dropped")
        if number is not None:
            kept = "unassigned" if self._domain == "comb" else "held"
            arguments: list[ast.expr] = [ast.Constant(number), target, node.args[0]]
            node.args[0] = ast.Call(_runtime(kept), arguments, [])

    def _patterns(self, given: list[ast.expr]) -> ast.expr:
        """Patterns of a case, with a mutant for each that omits it. A case without patterns never
        holds."""

        def all_but(omitted: int | None) -> "_Variant":
            return lambda *a: ast.Tuple([v for n, v in enumerate(a) if n != omitted], ast.Load())

        variants = [(f"pattern {n + 1} dropped", all_but(n)) for n in range(len(given))]
        whole = ast.copy_location(ast.Tuple(given, ast.Load()), given[0])
        return ast.Starred(self._pick(whole, given, all_but(None), variants), ast.Load())

    # Constants that are not operands: widths, ranges, slices, initial values

    def _width(self, node: ast.expr) -> ast.expr:
        """Mutate a shape if it is known to be a number of bits or a range. Other shapes do not
        change."""
        if _whole(node):
            value = _number(node)
            names = [f"{value} to {value + more}" for more in (-1, 1)]
        elif _is_width(node):
            names = ["one bit fewer", "one bit more"]
        else:
            return node

        def wider(more: int) -> "_Variant":
            return lambda a: ast.Call(_runtime("wider"), [a, ast.Constant(more)], [])

        variants = [(names[0], wider(-1)), (names[1], wider(1))]
        return self._pick(node, [node], lambda a: a, variants)

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        return node

    def visit_keyword(self, node: ast.keyword) -> ast.AST:
        self.generic_visit(node)
        if _whole(node.value) and self._functions:
            node.value = self._constant(node.value)
        return node

    def visit_Return(self, node: ast.Return) -> ast.AST:
        self.generic_visit(node)
        if node.value is not None and _whole(node.value):
            node.value = self._constant(node.value)
        return node

    def visit_Slice(self, node: ast.Slice) -> ast.AST:
        self.generic_visit(node)
        for side in ("lower", "upper"):
            value = getattr(node, side)
            if value is not None and _whole(value):
                setattr(node, side, self._constant(value))
        return node

    def _constant(self, node: ast.expr, *, hardware: bool = False) -> ast.expr:
        value = _number(node)
        other = (value ^ 1) if hardware else value + 1
        return self._pick(
            node,
            [],
            lambda: ast.Constant(value),
            [(f"{value} to {other}", lambda: ast.Constant(other))],
            "value" if hardware else "pick",
        )

    # Statements

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        before, self._domain = self._domain, _domain(node.target)
        node.value = self.visit(node.value)
        self._domain = before
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        target = node.targets[0]
        if not (isinstance(target, ast.Attribute) and target.attr == "next"):
            self.generic_visit(node)
            return node
        number = self._take(node, "next state dropped")
        node.value = self._other_state(node.value)
        if number is None:
            return node
        call = ast.Call(_runtime("unless"), [ast.Constant(number), target.value], [])
        return ast.With([ast.withitem(call)], [node])

    def visit_With(self, node: ast.With) -> ast.AST:
        before, self._state = self._state, _state(node) or self._state
        self.generic_visit(node)
        self._state = before
        return node

    def _other_state(self, node: ast.expr) -> ast.expr:
        """A next state, with a mutant that replaces it by the state that follows it in the file.
        The present state is passed over, as it would be the same as a dropped assignment."""
        if not isinstance(node, ast.Constant) or node.value not in self._states:
            return node
        place = self._states.index(node.value)
        following = self._states[place + 1 :] + self._states[:place]
        other = next((one for one in following if one != self._state), None)
        if other is None:
            return node
        change = f"{node.value} to {other}"
        variants: list[tuple[str, _Variant]] = [(change, lambda: ast.Constant(other))]
        return self._pick(node, [], lambda: ast.Constant(node.value), variants)

    def _pick(
        self,
        node: ast.expr,
        operands: list[ast.expr],
        original: "_Variant",
        variants: "list[tuple[str, _Variant]]",
        function: str = "pick",
    ) -> ast.expr:
        """Insert a choice between `original` and its active variants."""
        numbered = [(self._take(node, change), make) for change, make in variants]
        active = [(number, make) for number, make in numbered if number is not None]
        if not active:
            return node
        names = [f"_{n}" for n in range(len(operands))]
        makers = [
            ast.Tuple([ast.Constant(number), _function(names, make(*_names(names)))], ast.Load())
            for number, make in active
        ]
        whole = _function(names, original(*_names(names)))
        arguments: list[ast.expr] = [whole, ast.Tuple(operands, ast.Load()), *makers]
        return ast.copy_location(ast.Call(_runtime(function), arguments, []), node)


_Variant = Callable[..., ast.expr]
"""An expression, as a function of its operands."""


def _listed(node: Any) -> list[ast.stmt]:
    return node if isinstance(node, list) else [node]


def _names(names: list[str]) -> list[ast.expr]:
    return [ast.Name(name, ast.Load()) for name in names]


def _runtime(function: str) -> ast.expr:
    return ast.Attribute(ast.Name(RUNTIME, ast.Load()), function, ast.Load())


def _function(names: list[str], body: ast.expr) -> ast.Lambda:
    parameters = [ast.arg(name) for name in names]
    return ast.Lambda(ast.arguments([], parameters, None, [], [], None, []), body)


def _number(node: ast.expr) -> int:
    assert isinstance(node, ast.Constant) and isinstance(node.value, int)
    return node.value


def _whole(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is int


def _named(node: ast.expr) -> str:
    """Last part of a name; "" for other expressions."""
    return getattr(node, "id", getattr(node, "attr", ""))


def _is_width(node: ast.expr) -> bool:
    """Whether the expression is a number of bits, or a range, by the names that are used here."""
    if isinstance(node, ast.Call):
        return _named(node.func) == "range"
    of_config = isinstance(node, ast.Attribute) and _named(node.value).endswith("config")
    return of_config or _named(node).lower().endswith("bits")


def _state(node: ast.With) -> str | None:
    """Name of the state whose block this is, if it is a constant."""
    call = node.items[0].context_expr
    if not isinstance(call, ast.Call) or _named(call.func) != "State" or not call.args:
        return None
    name = call.args[0].value if isinstance(call.args[0], ast.Constant) else None
    return name if isinstance(name, str) else None


def _compare(op: ast.cmpop, shift: int = 0) -> _Variant:
    return lambda a, b: ast.Compare(a, [op], [_shifted(b, shift)])


def _binary(op: ast.operator, shift: int = 0) -> _Variant:
    return lambda a, b: ast.BinOp(a, op, _shifted(b, shift))


def _shifted(value: ast.expr, shift: int) -> ast.expr:
    return ast.BinOp(value, ast.Add(), ast.Constant(shift)) if shift else value


def _call(function: ast.expr) -> _Variant:
    return lambda *a: ast.Call(function, list(a), [])


def _method(name: str) -> _Variant:
    return lambda a: ast.Call(ast.Attribute(a, name, ast.Load()), [], [])


def _name(node: ast.AST) -> str:
    return type(node).__name__


def _domain(target: ast.expr) -> str | None:
    """Domain of `m.d.sync` or `m.d[domain]`; None for other targets."""
    if isinstance(target, ast.Attribute):
        inner, name = target.value, target.attr
    elif isinstance(target, ast.Subscript):
        inner, name = target.value, "sync"
    else:
        return None
    return name if isinstance(inner, ast.Attribute) and inner.attr == "d" else None
