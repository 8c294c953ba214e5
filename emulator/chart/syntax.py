"""Templates as text, tokens and a tree.

The language is the declared subset of Go's templates: text, output, variables, `if`, `with`,
`range`, `define`, `template` and comments, with pipelines of literals, fields, variables,
parentheses and function calls. Anything else is refused with its template and line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from emulator.chart.errors import ChartError

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant: string, number, true, false or nil."""

    value: object


@dataclass(frozen=True, slots=True)
class Reference:
    """A path of fields, from the dot (no variable), a variable or an expression in parentheses."""

    start: Expression | str
    path: Path = ()


@dataclass(frozen=True, slots=True)
class Call:
    """A function, or a method that a reference leads to, with its arguments."""

    function: str | Reference
    arguments: tuple[Expression, ...]


Expression = Literal | Reference | Call


@dataclass(frozen=True, slots=True)
class Text:
    """Literal text between actions."""

    text: str


@dataclass(frozen=True, slots=True)
class Output:
    """The value of an expression, printed; with a variable, kept instead."""

    expression: Expression
    line: int
    variable: str = ""
    declares: bool = False


@dataclass(slots=True)
class Block:
    """`if`, `with` or `range`: what follows when its expression has something, and when not."""

    keyword: str
    expression: Expression
    line: int
    variables: tuple[str, ...] = ()
    body: list[Node] = field(default_factory=list)
    otherwise: list[Node] = field(default_factory=list)


Node = Text | Output | Block


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str  # string number word field variable symbol
    text: str
    glued: bool  # no blank before it


_TOKEN = re.compile(
    r"""(?P<blank>\s*)(?:
    (?P<string>"(?:\\.|[^"\\\n])*"|`[^`]*`)
    |(?P<number>-?\d+(?:\.\d+)?(?![\w.]))
    |(?P<variable>\$\w*)
    |(?P<field>\.\w+|\.)
    |(?P<word>[A-Za-z]\w*)
    |(?P<symbol>:=|[=|(),])
    )""",
    re.VERBOSE,
)
_ACTION = re.compile(
    r"""\{\{(-(?=\s))?(
    \s*/\*.*?\*/\s*
    |(?:"(?:\\.|[^"\\\n])*"|`[^`]*`|(?!\}\})[^"`])*?
    )((?<=\s)-)?\}\}""",
    re.DOTALL | re.VERBOSE,
)
_COMMENT = re.compile(r"\s*/\*.*\*/\s*", re.DOTALL)
_CONSTANTS = {"true": True, "false": False, "nil": None}
_UNSUPPORTED = {"block", "break", "continue"}


def parse(name: str, source: str) -> tuple[list[Node], dict[str, list[Node]]]:
    """Read one template file.

    Returns:
        Its own nodes, and the nodes of every `define` in it.

    Raises:
        ChartError: where the text is not in the supported language.
    """
    return _Parser(name, source).run()


class _Parser:
    """One pass over the pieces of a template, with the open blocks on a stack."""

    def __init__(self, name: str, source: str) -> None:
        self._name, self._source = name, source
        self._line = 1
        self._top: list[Node] = []
        self._defines: dict[str, list[Node]] = {}
        self._lists = [self._top]  # where nodes go; the last is the innermost
        self._open: list[Block | None] = []  # one for each `end` to come; None for a define

    def run(self) -> tuple[list[Node], dict[str, list[Node]]]:
        """Read the pieces in order."""
        for text, action in _pieces(self._source):
            if "{{" in text:
                raise self._error(
                    f"an action after this line is not closed: {text[text.index('{{') :][:40]!r}"
                )
            if text:
                self._lists[-1].append(Text(text))
            if action is not None:
                self._line = 1 + self._source.count("\n", 0, action.start())
                self._act(action[2])
        if self._open:
            raise self._error("a block is not closed: {{ end }} is missing")
        return self._top, self._defines

    def _act(self, body: str) -> None:
        if _COMMENT.fullmatch(body):
            return
        tokens = list(self._tokens(body))
        if not tokens:
            raise self._error("an action is empty")
        keyword = tokens[0].text if tokens[0].kind == "word" else ""
        if keyword in _UNSUPPORTED:
            raise self._error(f"{{{{ {keyword} }}}} is not supported by this renderer")
        if keyword in {"if", "with", "range"}:
            self._begin(keyword, tokens[1:], self._lists[-1])
        elif keyword == "else":
            self._otherwise(tokens[1:])
        elif keyword == "end":
            self._end()
        elif keyword == "define":
            self._define(tokens)
        elif keyword == "template":
            call = Call("include", self._arguments(tokens[1:]))
            self._lists[-1].append(Output(call, self._line))
        else:
            self._output(tokens)

    def _begin(self, keyword: str, tokens: Sequence[_Token], where: list[Node]) -> None:
        variables, rest = _declared(tokens)
        block = Block(keyword, self._pipeline(rest), self._line, variables)
        where.append(block)
        self._open.append(block)
        self._lists.append(block.body)

    def _otherwise(self, tokens: Sequence[_Token]) -> None:
        block = self._open[-1] if self._open else None
        if block is None or self._lists[-1] is not block.body:
            raise self._error("{{ else }} stands outside a block")
        self._lists[-1] = block.otherwise
        if tokens:
            if tokens[0].text not in {"if", "with"}:
                raise self._error(
                    f"{{{{ else {tokens[0].text} }}}} is not supported by this renderer"
                )
            # The nested block shares this one's end: it takes its place on the stacks.
            self._open.pop()
            self._lists.pop()
            self._begin(tokens[0].text, tokens[1:], block.otherwise)

    def _end(self) -> None:
        if not self._open:
            raise self._error("{{ end }} closes nothing")
        self._open.pop()
        self._lists.pop()

    def _define(self, tokens: Sequence[_Token]) -> None:
        if len(tokens) != 2 or tokens[1].kind != "string" or self._open:
            raise self._error(
                'define takes one quoted name and stands outside blocks: {{ define "name" }}'
            )
        nodes = self._defines[_unquoted(tokens[1].text)] = []
        self._open.append(None)
        self._lists.append(nodes)

    def _output(self, tokens: Sequence[_Token]) -> None:
        if len(tokens) > 1 and tokens[0].kind == "variable" and tokens[1].text in {":=", "="}:
            expression = self._pipeline(tokens[2:])
            node = Output(expression, self._line, tokens[0].text, declares=tokens[1].text == ":=")
        else:
            node = Output(self._pipeline(tokens), self._line)
        self._lists[-1].append(node)

    def _tokens(self, body: str) -> Iterator[_Token]:
        position, end = 0, len(body.rstrip())
        while position < end:
            match = _TOKEN.match(body, position)
            if match is None or match.lastgroup is None:
                raise self._error(f"cannot read {body[position:end].strip()!r}")
            yield _Token(
                match.lastgroup, match[match.lastgroup], glued=not match["blank"] and position > 0
            )
            position = match.end()

    def _pipeline(self, tokens: Sequence[_Token]) -> Expression:
        """Read commands joined by `|`: each result is the last argument of the next command."""
        result: Expression | None = None
        for command in _split(tokens, "|"):
            operands = self._arguments(command)
            if not operands:
                raise self._error("a value or a function is missing")
            result = self._command(operands, result)
        if result is None:
            raise self._error("a value or a function is missing")
        return result

    def _command(self, operands: tuple[Expression, ...], piped: Expression | None) -> Expression:
        head, arguments = operands[0], operands[1:] + (() if piped is None else (piped,))
        if isinstance(head, Call) and isinstance(head.function, str) and not head.arguments:
            return Call(head.function, arguments)
        if not arguments:
            return head
        if isinstance(head, Reference):
            return Call(head, arguments)
        raise self._error("only a function takes arguments")

    def _arguments(self, tokens: Sequence[_Token]) -> tuple[Expression, ...]:
        """Read operands side by side; a bare word is a function call without arguments as yet."""
        operands: list[Expression] = []
        rest = list(tokens)
        while rest:
            token = rest.pop(0)
            if token.text == "(":
                start = self._pipeline(self._until_closed(rest))
                path = _glued_fields(rest)
                operands.append(
                    Reference(start, path) if path or isinstance(start, Call) else start
                )
            elif token.kind == "variable":
                operands.append(Reference(token.text, _glued_fields(rest)))
            elif token.kind == "field":
                first = () if token.text == "." else (token.text[1:],)
                operands.append(Reference("", first + _glued_fields(rest)))
            elif token.kind == "string":
                operands.append(Literal(_unquoted(token.text)))
            elif token.kind == "number":
                operands.append(Literal(json.loads(token.text)))
            elif token.text in _CONSTANTS:
                operands.append(Literal(_CONSTANTS[token.text]))
            elif token.kind == "word":
                operands.append(Call(token.text, ()))
            else:
                raise self._error(f"{token.text!r} is out of place")
        return tuple(operands)

    def _until_closed(self, rest: list[_Token]) -> list[_Token]:
        """Take the tokens up to the parenthesis that closes the one just taken."""
        depth = 1
        for index, token in enumerate(rest):
            depth += {"(": 1, ")": -1}.get(token.text, 0) if token.kind == "symbol" else 0
            if not depth:
                taken = rest[:index]
                del rest[: index + 1]
                return taken
        raise self._error("a parenthesis is not closed")

    def _error(self, message: str) -> ChartError:
        return ChartError(message, place=f"{self._name}:{self._line}")


def _pieces(source: str) -> Iterator[tuple[str, re.Match[str] | None]]:
    """Yield the text before each action, trimmed by its dashes, with the action; the rest last."""
    position, trim = 0, False
    for action in _ACTION.finditer(source):
        text = source[position : action.start()]
        text = text.lstrip() if trim else text
        yield text.rstrip() if action[1] else text, action
        position, trim = action.end(), bool(action[3])
    rest = source[position:]
    yield rest.lstrip() if trim else rest, None


def _declared(tokens: Sequence[_Token]) -> tuple[tuple[str, ...], Sequence[_Token]]:
    """Split `$key, $value := pipeline` into its variables and the pipeline."""
    for index, token in enumerate(tokens):
        if token.text == ":=":
            return tuple(t.text for t in tokens[:index] if t.kind == "variable"), tokens[
                index + 1 :
            ]
    return (), tokens


def _split(tokens: Sequence[_Token], separator: str) -> Iterator[Sequence[_Token]]:
    """Split at a separator outside parentheses."""
    depth, begin = 0, 0
    for index, token in enumerate(tokens):
        depth += {"(": 1, ")": -1}.get(token.text, 0) if token.kind == "symbol" else 0
        if token.kind == "symbol" and token.text == separator and not depth:
            yield tokens[begin:index]
            begin = index + 1
    yield tokens[begin:]


def _glued_fields(rest: list[_Token]) -> Path:
    """Take the fields that follow without a blank."""
    path: list[str] = []
    while rest and rest[0].kind == "field" and rest[0].glued and rest[0].text != ".":
        path.append(rest.pop(0).text[1:])
    return tuple(path)


def _unquoted(text: str) -> str:
    return text[1:-1] if text.startswith("`") else str(json.loads(text))
