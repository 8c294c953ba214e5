"""Templates become text: the tree walked over values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from emulator.chart.errors import ChartError
from emulator.chart.functions import FUNCTIONS, Value, holds, printed
from emulator.chart.syntax import Block, Call, Expression, Literal, Node, Output, Reference, Text


@dataclass(slots=True)
class _Scope:
    """What the dot and the variables are at one place; `$` is the dot of the whole template."""

    dot: Value
    variables: dict[str, Value] = field(default_factory=dict)
    outer: _Scope | None = None

    def inner(self, dot: Value) -> _Scope:
        return _Scope(dot, outer=self)

    def holder(self, name: str) -> _Scope | None:
        """Return the innermost scope that declares a variable."""
        scope: _Scope | None = self
        while scope is not None and name not in scope.variables:
            scope = scope.outer
        return scope


class Renderer:
    """Renders templates that may include one another by name."""

    def __init__(self, defines: Mapping[str, Sequence[Node]]) -> None:
        """Know every named template of a chart."""
        self._defines = defines
        self._depth = 0

    def render(self, name: str, nodes: Sequence[Node], dot: Value) -> str:
        """Return one template's text.

        Raises:
            ChartError: with the template and line.
        """
        return "".join(self._walk(name, nodes, _Scope(dot, {"$": dot})))

    def _walk(self, name: str, nodes: Sequence[Node], scope: _Scope) -> Iterator[str]:
        for node in nodes:
            if isinstance(node, Text):
                yield node.text
                continue
            try:
                yield from (
                    self._output(node, scope)
                    if isinstance(node, Output)
                    else self._block(name, node, scope)
                )
            except ChartError as error:
                if error.place:  # the innermost place is the one to look at
                    raise
                raise ChartError(str(error), place=f"{name}:{node.line}") from error
            except (TypeError, ValueError, AttributeError, KeyError, IndexError) as error:
                raise ChartError(str(error), place=f"{name}:{node.line}") from error

    def _output(self, node: Output, scope: _Scope) -> Iterator[str]:
        value = self._value(node.expression, scope)
        if not node.variable:
            yield printed(value)
        elif node.declares:
            scope.variables[node.variable] = value
        elif (holder := scope.holder(node.variable)) is not None:
            holder.variables[node.variable] = value
        else:
            raise ChartError(f"{node.variable} is not declared")

    def _block(self, name: str, node: Block, scope: _Scope) -> Iterator[str]:
        value = self._value(node.expression, scope)
        if node.keyword == "range":
            yield from self._range(name, node, value, scope)
        elif holds(value):
            inner = scope.inner(value if node.keyword == "with" else scope.dot)
            inner.variables.update(dict.fromkeys(node.variables, value))
            yield from self._walk(name, node.body, inner)
        else:
            yield from self._walk(name, node.otherwise, scope.inner(scope.dot))

    def _range(self, name: str, node: Block, value: Value, scope: _Scope) -> Iterator[str]:
        """Walk a list in order, or a map by its sorted keys."""
        if not holds(value):
            yield from self._walk(name, node.otherwise, scope.inner(scope.dot))
            return
        if not isinstance(value, Mapping | list):
            raise ChartError("range takes a list or a map")
        pairs = (
            [(key, value[key]) for key in sorted(value)]
            if isinstance(value, Mapping)
            else enumerate(value)
        )
        for key, item in pairs:
            inner = scope.inner(item)
            inner.variables.update(zip(reversed(node.variables), (item, key), strict=False))
            yield from self._walk(name, node.body, inner)

    def _value(self, expression: Expression, scope: _Scope) -> Value:
        if isinstance(expression, Literal):
            return expression.value
        if isinstance(expression, Reference):
            value = self._referred(expression, scope)
            return value() if callable(value) else value
        return self._call(expression, scope)

    def _referred(self, reference: Reference, scope: _Scope) -> Value:
        """Follow fields; a missing one is nil, and nil has no fields."""
        if not isinstance(reference.start, str):
            value = self._value(reference.start, scope)
        elif not reference.start:
            value = scope.dot
        elif (holder := scope.holder(reference.start)) is not None:
            value = holder.variables[reference.start]
        else:
            raise ChartError(f"{reference.start} is not declared")
        for index, name in enumerate(reference.path):
            if not isinstance(value, Mapping):
                so_far = ".".join(("", *reference.path[:index])) or "."
                what = "nothing" if value is None else f"a {type(value).__name__}"
                raise ChartError(f"{so_far} is {what} and has no field {name!r}")
            value = value.get(name)
        return value

    def _call(self, call: Call, scope: _Scope) -> Value:
        if isinstance(call.function, Reference):
            method = self._referred(call.function, scope)
            if not callable(method):
                raise ChartError(f".{'.'.join(call.function.path)} takes no arguments")
            return method(*(self._value(argument, scope) for argument in call.arguments))
        if call.function in {"and", "or"}:
            return self._short_circuit(call, scope)
        arguments = [self._value(argument, scope) for argument in call.arguments]
        if call.function == "include":
            return self._include(*arguments)
        function: Callable[..., Value] | None = FUNCTIONS.get(call.function)
        if function is None:
            raise ChartError(f"function {call.function!r} is not supported by this renderer")
        return function(*arguments)

    def _short_circuit(self, call: Call, scope: _Scope) -> Value:
        """Return the first operand that decides, without looking at those after it."""
        value: Value = None
        for argument in call.arguments:
            value = self._value(argument, scope)
            if holds(value) is (call.function == "or"):
                break
        return value

    def _include(self, name: str, dot: Value = None) -> str:
        if name not in self._defines:
            raise ChartError(f"no template is defined as {name!r}")
        if self._depth > 100:
            raise ChartError(f"{name!r} includes itself without end")
        self._depth += 1
        try:
            return self.render(f"templates/{name}", self._defines[name], dot)
        finally:
            self._depth -= 1
