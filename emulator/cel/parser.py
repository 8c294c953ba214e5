"""The part of the Common Expression Language that validation rules are written in.

Literals, all operators, field and index access, `has`, the comprehension macros and the common
functions over strings, lists and maps. An expression that uses more is refused when it is
compiled, so a rule is never silently skipped. Field names are checked against the schema as far
as it is known, as the real server does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from emulator.cel.functions import (
    FUNCTIONS,
    MACROS,
    METHODS,
    Eval,
    Scope,
    call,
    combine,
    field_of,
    indexed,
    truth,
)

Json = dict[str, Any]

_TOKEN = re.compile(
    r"\s*(?:(?P<float>\d+\.\d+(?:[eE][+-]?\d+)?)|(?P<int>0x[0-9a-fA-F]+|\d+)(?P<unsigned>[uU])?"
    r"|(?P<raw>[rR])?(?P<string>'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\")"
    r"|(?P<name>[A-Za-z_]\w*)|(?P<op>\|\||&&|==|!=|<=|>=|[-+*/%<>!?:.,()\[\]{}]))"
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"', "`": "`", "?": "?"}
_UNESCAPED = {"__dot__": ".", "__dash__": "-", "__slash__": "/", "__underscores__": "__"}


_ABSENT: Any = object()
_WORDS = {"true": True, "false": False, "null": None}
_READS: Mapping[str, Callable[[str], Any]] = {
    "int": lambda text: int(text, 0),
    "float": float,
    "string": str,
}
_LITERALS = "NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER"
_STARTS = f"{{'[', '{{', '(', '.', '-', '!', 'true', 'false', 'null', {_LITERALS}}}"
_STARTS_OR_END = _STARTS.replace("'(', '.'", "'(', ')', '.'")
_LEVELS = (("||",), ("&&",), ("==", "!=", "<", "<=", ">", ">=", "in"), ("+", "-"), ("*", "/", "%"))


class CompileError(ValueError):
    """An expression cannot be compiled; the text is what a CRD's author would see."""


@dataclass(frozen=True, slots=True)
class Node:
    """A compiled part: how to evaluate it, and the schema of the result, where it is known."""

    eval: Eval
    schema: Json | None = None
    path: tuple[Node, str] | None = None  # operand and field, when the part is a field access


@dataclass(frozen=True, slots=True)
class Expression:
    """A compiled expression and the names it uses."""

    eval: Eval
    names: frozenset[str]


def compile_expression(text: str, variables: Mapping[str, Json | None]) -> Expression:
    """Compile an expression over variables whose schemas may be known. Raises CompileError."""
    parser = _Parser(text, dict(variables))
    node = parser.ternary()
    if parser.kind != "end":
        parser.fail(f"Syntax error: mismatched input '{parser.text}'")
    return Expression(node.eval, frozenset(parser.used))


def _constant(value: Any) -> Node:
    return Node(lambda _: value)


class _Parser:
    """Recursive descent; one token of lookahead."""

    def __init__(self, source: str, schemas: dict[str, Json | None]) -> None:
        self.source, self.schemas, self.used = source, schemas, set[str]()
        self.position = self.start = 0
        self.kind = self.text = ""
        self.advance()

    def fail(self, message: str, at: int | None = None) -> None:
        """Raise with the place, as the compiler of the real server prints it."""
        column = self.start if at is None else at
        dots = "." * column
        raise CompileError(
            f"ERROR: <input>:1:{column + 1}: {message}\n | {self.source}\n | {dots}^"
        )

    def advance(self) -> None:
        """Move to the next token."""
        rest = self.source[self.position :]
        if not rest.strip():
            self.start, self.kind, self.text = len(self.source), "end", "<EOF>"
            return
        found = _TOKEN.match(self.source, self.position)
        if found is None:
            self.start = self.position + len(rest) - len(rest.lstrip())
            self.fail(f"Syntax error: token recognition error at: '{self.source[self.start]}'")
            return
        self.kind = next(
            name for name in ("float", "int", "string", "name", "op") if found[name] is not None
        )
        self.text, self.start, self.position = found[self.kind], found.start(self.kind), found.end()
        if self.kind == "string":
            body = self.text[1:-1]
            self.text = (
                body
                if found["raw"]
                else re.sub(r"\\(.)", lambda one: _ESCAPES.get(one[1], one[0]), body)
            )

    def take(self, text: str) -> bool:
        """Step over an operator if it is next."""
        if self.kind == "op" and self.text == text:
            self.advance()
            return True
        return False

    def expect(self, text: str) -> None:
        """Step over an operator that must be next."""
        if not self.take(text):
            self.fail(f"Syntax error: mismatched input '{self.text}' expecting '{text}'")

    def ternary(self) -> Node:
        """condition ? yes : no"""
        condition = self.binary(0)
        if not self.take("?"):
            return condition
        yes = self.ternary()
        self.expect(":")
        no = self.ternary()
        test, then, otherwise = condition.eval, yes.eval, no.eval
        return Node(lambda scope: then(scope) if truth(test(scope)) else otherwise(scope))

    def binary(self, level: int) -> Node:
        """One level of binary operators."""
        if level == len(_LEVELS):
            return self.unary()
        left = self.binary(level + 1)
        while self.kind in ("op", "name") and self.text in _LEVELS[level]:
            operator = self.text
            self.advance()
            right = self.binary(level + 1)
            left = Node(combine(operator, left.eval, right.eval))
        return left

    def unary(self) -> Node:
        """! and -"""
        if self.take("!"):
            inner = self.unary().eval
            return Node(lambda scope: not truth(inner(scope)))
        if self.take("-"):
            inner = self.unary().eval
            return Node(lambda scope: -inner(scope))
        return self.member()

    def member(self) -> Node:
        """A primary and what follows it: .field, [index], .method(...)"""
        node = self.primary()
        while True:
            at = self.start
            if self.take("."):
                name = self.text
                if self.kind != "name":
                    self.fail(f"Syntax error: mismatched input '{name}'")
                self.advance()
                node = self.method(node, name) if self.take("(") else self.select(node, name, at)
            elif self.take("["):
                index = self.ternary()
                self.expect("]")
                items = (node.schema or {}).get("items") or (node.schema or {}).get(
                    "additionalProperties"
                )
                schema = items if isinstance(items, dict) else None
                node = Node(indexed(node.eval, index.eval), schema)
            else:
                return node

    def select(self, operand: Node, name: str, at: int) -> Node:
        """operand.name, checked against the schema."""
        field = re.sub(r"__(dot|dash|slash|underscores)__", lambda one: _UNESCAPED[one[0]], name)
        below: Json | None = None
        schema = operand.schema
        if schema is not None:
            additional = schema.get("additionalProperties")
            open_ = (
                schema.get("x-kubernetes-preserve-unknown-fields") or schema.get("type") != "object"
            )
            below = schema.get("properties", {}).get(field)
            if below is None and isinstance(additional, dict):
                below = additional
            elif below is None and not open_:
                self.fail(f"undefined field '{field}'", at)
        evaluate = operand.eval
        return Node(lambda scope: field_of(evaluate(scope), field), below, (operand, field))

    def arguments(self) -> list[Node]:
        """The rest of an argument list."""
        found: list[Node] = []
        if self.kind == "end":
            self.fail(f"Syntax error: mismatched input '<EOF>' expecting {_STARTS_OR_END}")
        while not self.take(")"):
            found.append(self.ternary())
            if not self.take(","):
                self.expect(")")
                break
        return found

    def method(self, operand: Node, name: str) -> Node:
        """operand.name(...): a macro or a function on a receiver."""
        if name in MACROS:
            return self.macro(operand, name)
        function, at = METHODS.get(name), self.start
        arguments = [one.eval for one in self.arguments()]
        if function is None:
            self.fail(f"undeclared reference to '{name}', or not emulated", at)
            raise AssertionError
        receiver = operand.eval
        return Node(call(name, function, [receiver, *arguments]))

    def macro(self, operand: Node, name: str) -> Node:
        """operand.exists(x, predicate) and its relatives."""
        variable = self.text
        self.advance()
        self.expect(",")
        before = self.schemas.get(variable, _ABSENT)
        items = (operand.schema or {}).get("items")
        self.schemas[variable] = items if isinstance(items, dict) else None
        body = self.ternary().eval
        self.expect(")")
        if before is _ABSENT:
            del self.schemas[variable]
        else:
            self.schemas[variable] = before
        return Node(MACROS[name](operand.eval, variable, body))

    def primary(self) -> Node:
        """A literal, a name, a call, or an expression in parentheses."""
        kind, text = self.kind, self.text
        if self.take("("):
            node = self.ternary()
            self.expect(")")
            return node
        if self.take("["):
            return self.list_literal()
        if self.take("{"):
            return self.map_literal()
        self.advance()
        if kind == "name":
            return self.name(text)
        if kind in _READS:
            return _constant(_READS[kind](text))
        self.fail(f"Syntax error: mismatched input '{text}' expecting {_STARTS}")
        raise AssertionError

    def name(self, name: str) -> Node:
        """A literal word, a function call or a variable."""
        if name in _WORDS:
            return _constant(_WORDS[name])
        at = self.start
        if self.take("("):
            if name == "has":
                return self.has()
            function = FUNCTIONS.get(name)
            if function is None:
                self.fail(f"undeclared reference to '{name}', or not emulated", at)
                raise AssertionError
            return Node(call(name, function, [one.eval for one in self.arguments()]))
        if name not in self.schemas:
            self.fail(f"undeclared reference to '{name}' (in container '')", at)
        self.used.add(name)
        return Node(lambda scope: scope[name], self.schemas[name])

    def has(self) -> Node:
        """has(operand.field)"""
        argument = self.ternary()
        self.expect(")")
        if argument.path is None:
            self.fail("invalid argument to has() macro")
            raise AssertionError
        operand, field = argument.path
        evaluate = operand.eval

        def present(scope: Scope) -> bool:
            held = evaluate(scope)
            return isinstance(held, dict) and held.get(field) is not None

        return Node(present)

    def list_literal(self) -> Node:
        """[a, b]"""
        parts: list[Eval] = []
        while not self.take("]"):
            parts.append(self.ternary().eval)
            if not self.take(","):
                self.expect("]")
                break
        return Node(lambda scope: [part(scope) for part in parts])

    def map_literal(self) -> Node:
        """{a: b}"""
        parts: list[tuple[Eval, Eval]] = []
        while not self.take("}"):
            key = self.ternary().eval
            self.expect(":")
            parts.append((key, self.ternary().eval))
            if not self.take(","):
                self.expect("}")
                break
        return Node(lambda scope: {key(scope): value(scope) for key, value in parts})
