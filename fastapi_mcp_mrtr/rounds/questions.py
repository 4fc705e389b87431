"""Questions by the type they ask for, and what can be seen of asks in a handler's source.

Pure: it reads source text and names, and runs nothing of the handler.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from .forms import InvalidAnswer, Question
from .schemas import elicitation_schema
from .sentinels import (
    log,
    need_input,
    need_roots,
    need_sampling,
    need_url,
    not_yet,
    prefixed,
    progress,
    step,
)
from .titles import Titles

__all__ = [
    "DeclaredAsk",
    "InvalidAnswer",
    "Question",
    "Titles",
    "declared_asks",
    "elicitation_schema",
]


_PARAMETERS: Final[tuple[str, ...]] = ("key", "message", "schema")
"""Of `need_input`."""

_SENTINELS: Final = (
    need_input,
    need_url,
    need_sampling,
    need_roots,
    not_yet,
    step,
    progress,
    log,
    prefixed,
)
"""What does nothing unless it is yielded."""


@dataclass(frozen=True, slots=True)
class DeclaredAsk:
    """A `need_input` as written in a handler."""

    key: str | None
    """None if it is computed."""
    question: Question


def declared_asks(fn: Callable[..., Any]) -> list[DeclaredAsk]:
    """The forms a handler visibly asks for, in the order of its source.

    What cannot be seen is left out, and checked when it is asked: computed schemas, local names,
    handlers without source.

    Raises:
        TypeError: A schema cannot be expressed: the message names handler, key and field. Or a
            statement is an ask, a step or a sub-flow without `yield`: it names handler and line.
    """
    function = _function(fn)
    body = None if function is None else _body(function)
    if function is None or body is None:
        return []
    names = _Names(function)
    nodes = list(_own(body))
    for node in nodes:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            _refuse_unyielded(function, node.value, names)
    return [
        ask
        for call in nodes
        if isinstance(call, ast.Call)
        and names.value(call.func) is need_input
        and (ask := _declared(function.__qualname__, call, names)) is not None
    ]


def _function(fn: Any) -> Any:
    """The Python function behind a handler; None if there is none."""
    while isinstance(fn, partial):
        fn = fn.func
    fn = inspect.unwrap(fn)
    if not inspect.isroutine(fn):
        fn = type(fn).__call__
    fn = getattr(fn, "__func__", fn)
    return fn if inspect.isfunction(fn) else None


def _body(function: Any) -> list[ast.stmt] | None:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, SyntaxError):  # no source, or a lambda in the middle of a statement
        return None
    match tree.body:
        case [ast.FunctionDef() | ast.AsyncFunctionDef() as definition]:
            return definition.body
    return None


def _own(nodes: Any) -> Iterator[ast.AST]:
    """All of a function's own body. What is nested has names of its own."""
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            continue
        yield node
        yield from _own(ast.iter_child_nodes(node))


def _refuse_unyielded(function: Any, call: ast.Call, names: _Names) -> None:
    """Refuse a call that is a whole statement, if it does nothing that way. Raises: TypeError."""
    called = names.value(call.func)
    if not (
        any(called is sentinel for sentinel in _SENTINELS)
        or inspect.isgeneratorfunction(called)
        or inspect.isasyncgenfunction(called)
    ):
        return
    # The source begins with the decorators, and so does the code object.
    line = function.__code__.co_firstlineno + call.lineno - 1
    name = ast.unparse(call.func)
    raise TypeError(
        f"{function.__qualname__}, line {line}: {name}(...) was not yielded, so it does nothing: "
        f"write `yield {name}(...)`"
    )


def _declared(handler: str, call: ast.Call, names: _Names) -> DeclaredAsk | None:
    given: dict[str, ast.expr] = dict(zip(_PARAMETERS, call.args, strict=False))
    given.update((keyword.arg, keyword.value) for keyword in call.keywords if keyword.arg)
    schema = names.value(given.get("schema"))
    if schema is _UNSEEN:
        return None
    key = names.value(given.get("key"))
    try:
        question = elicitation_schema(schema)
    except TypeError as error:
        shown = repr(key) if isinstance(key, str) else "a question"
        raise TypeError(f"{handler}, {shown}: {error}") from None
    return DeclaredAsk(key if isinstance(key, str) else None, question)


_UNSEEN: Final = object()
"""The value of an expression that cannot be told from the source."""

_PLAIN: Final = (
    ast.Name,
    ast.Attribute,
    ast.Subscript,
    ast.Tuple,
    ast.List,
    ast.Dict,
    ast.Constant,
    ast.BinOp,
    ast.operator,
    ast.UnaryOp,
    ast.unaryop,
    ast.expr_context,
    ast.keyword,
)
"""What a type is written with. Evaluating it runs no code of the handler's author."""

_DESCRIBING: Final = ("pydantic", "annotated_types")
"""Packages whose calls describe a type, like `Field(ge=1)`."""


class _Names:
    """The names a function's body sees, without its own locals."""

    def __init__(self, function: Any) -> None:
        code = function.__code__
        self._locals = {*code.co_varnames, *code.co_cellvars}
        self._globals = function.__globals__
        try:
            self._enclosing: Mapping[str, Any] = inspect.getclosurevars(function).nonlocals
        except ValueError:  # a name of the enclosing function is not assigned yet
            self._locals.update(code.co_freevars)
            self._enclosing = {}

    def value(self, node: ast.expr | None) -> Any:
        """What an expression stands for; `_UNSEEN` if that takes running the handler."""
        if node is None or not self._is_plain(node):
            return _UNSEEN
        code = compile(ast.Expression(node), "<handler>", "eval")
        try:
            return eval(code, self._globals, dict(self._enclosing))  # noqa: S307 - see _PLAIN
        except Exception:
            return _UNSEEN

    def _is_plain(self, node: ast.AST) -> bool:
        for part in ast.walk(node):
            if isinstance(part, ast.Name) and part.id in self._locals:
                return False
            if isinstance(part, ast.Call):
                if not self._describes(part.func):
                    return False
            elif not isinstance(part, _PLAIN):
                return False
        return True

    def _describes(self, node: ast.expr) -> bool:
        called = self.value(node)
        package = (getattr(called, "__module__", None) or "").partition(".")[0]
        return called is Titles or package in _DESCRIBING
