"""Faults as text: `api.refuse code=503 verb=update times=3`, `node.flicker node=node-1`.

A command is a name and parameters. What it can take is read off the fault or the function behind
it, so this list and the Python API cannot drift apart.
"""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any

from emulator.cluster import Cluster
from emulator.control import actions
from emulator.control.values import CommandError, convert
from emulator.faults.effects import Conflict, Delay, Gone, Hangup, Refuse, Silence
from emulator.hubs import broken_bodies, wrong_answers

_EFFECTS: Mapping[str, type] = {
    "api.refuse": Refuse,
    "api.conflict": Conflict,
    "api.delay": Delay,
    "api.hangup": Hangup,
    "api.gone": Gone,
    "api.silence": Silence,
}
_SELECTION = {
    "verb": "str", "resource": "str", "namespace": "str", "name": "str", "user": "str",
    "times": "int", "skip": "int",
}  # fmt: skip
_HUB_FAULTS: Mapping[str, Callable[..., Any]] = {
    "hub.status": wrong_answers.Status,
    "hub.html": wrong_answers.HtmlPage,
    "hub.redirect": wrong_answers.Redirect,
    "hub.delay": wrong_answers.Delay,
    "hub.ignore-range": wrong_answers.IgnoreRange,
    "hub.wrong-range": wrong_answers.WrongRange,
    "hub.resize": wrong_answers.Resize,
    "hub.gzip": wrong_answers.Gzip,
    "hub.unmeasured": wrong_answers.Unmeasured,
    "hub.next-link": wrong_answers.NextLink,
    "hub.flip": broken_bodies.Flip,
    "hub.reset": broken_bodies.Reset,
    "hub.close": broken_bodies.Close,
    "hub.stall": broken_bodies.Stall,
    "hub.overrun": broken_bodies.Overrun,
    "hub.broken-chunks": broken_bodies.BrokenChunks,
    "hub.hangup": broken_bodies.Hangup,
    "hub.expired-url": actions.expired_url,
    "hub.masked-digests": actions.masked_digests,
}
_PLACES = {"at": "str", "path": "str", "method": "str", "times": "int", "skip": "int"}
_SETTABLE = ("int", "float", "str", "bool", "bytes")


@dataclass(frozen=True, slots=True)
class _Command:
    """One command: its parameters (name to type), and what does it."""

    parameters: Mapping[str, str]
    required: frozenset[str]
    text: str
    do: Callable[..., object]


def run(cluster: Cluster, text: str) -> str:
    """Do what one command says; return a line about it.

    Raises:
        CommandError: there is no such command, or a parameter does not fit.
    """
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise CommandError(f"{text!r}: {error}") from None
    if not words:
        raise CommandError("an empty command: see the list")
    name, given = words[0], _pairs(words[1:])
    command = _COMMANDS.get(name)
    if command is None:
        raise CommandError(f"there is no command {name!r}: see the list")
    for key in given.keys() - command.parameters.keys():
        known = ", ".join(command.parameters) or "none"
        raise CommandError(f"{name} has no parameter {key!r}; it takes {known}")
    for key in sorted(command.required - given.keys()):
        raise CommandError(f"{name} needs {key}=")
    arguments = {
        key: convert(f"{name} {key}", value, command.parameters[key])
        for key, value in given.items()
    }
    try:
        said = command.do(cluster, **arguments)
    except (LookupError, ValueError, OSError) as error:
        raise CommandError(f"{name}: {error}") from None
    return f"done: {text.strip()}" + (f": {said}" if isinstance(said, str) else "")


def usage() -> Iterator[str]:
    """Yield one line for each command: its name, parameters, and what it does."""
    for name, command in _COMMANDS.items():
        words = [
            f"{key}=" if key in command.required else f"[{key}=]" for key in command.parameters
        ]
        yield f"{' '.join([name, *words])}: {command.text}"


def _pairs(words: list[str]) -> dict[str, str]:
    pairs = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            raise CommandError(f"{word!r}: write parameters as key=value")
        pairs[key.replace("-", "_")] = value
    return pairs


def _summary(documented: object) -> str:
    return (inspect.getdoc(documented) or "").partition("\n")[0].rstrip(".")


def _parameters(kind: Any) -> tuple[dict[str, str], frozenset[str]]:
    """Return what of a fault can be said as text, and what has to be."""
    if not hasattr(kind, "__dataclass_fields__"):
        return {}, frozenset()
    settable = {
        one.name: str(one.type)
        for one in fields(kind)
        if str(one.type).split(" | ")[0] in _SETTABLE
    }
    needed = {one.name for one in fields(kind) if one.name in settable and one.default is MISSING}
    return settable, frozenset(needed)


def _effect(kind: type) -> _Command:
    own, needed = _parameters(kind)

    def do(cluster: Cluster, **given: Any) -> None:
        effect = kind(**{key: value for key, value in given.items() if key in own})
        selection = {key: value for key, value in given.items() if key not in own}
        cluster.faults.add(effect, **selection)

    return _Command({**own, **_SELECTION}, needed, _summary(kind), do)


def _hub_fault(kind: Callable[..., Any]) -> _Command:
    own, needed = _parameters(kind)
    places = {key: type_ for key, type_ in _PLACES.items() if key not in own}

    def do(cluster: Cluster, **given: Any) -> None:
        for hub in actions.hubs(cluster):
            fault = kind(**{key: value for key, value in given.items() if key in own})
            hub.faults.add(fault, **{k: v for k, v in given.items() if k not in own})

    return _Command({**own, **places}, needed, _summary(kind), do)


def _call(do: Callable[..., object]) -> _Command:
    """Return the command that calls a function with the parameters of its signature."""
    parameters = list(inspect.signature(do).parameters.values())[1:]
    types = {one.name: str(one.annotation) for one in parameters}
    needed = frozenset(one.name for one in parameters if one.default is one.empty)
    return _Command(types, needed, _summary(do), do)


def _on_node(method: str, text: str) -> _Command:
    return _Command(
        {"node": "str"},
        frozenset(("node",)),
        text,
        lambda cluster, node: getattr(actions.at(cluster, node), method)(),
    )


def _on_hubs(method: str, text: str) -> _Command:
    def do(cluster: Cluster) -> None:
        for hub in actions.hubs(cluster):
            getattr(hub, method)()

    return _Command({}, frozenset(), text, do)


def _on_faults(method: str, text: str) -> _Command:
    return _Command({}, frozenset(), text, lambda cluster: getattr(cluster.faults, method)())


_COMMANDS: Mapping[str, _Command] = {
    **{name: _effect(kind) for name, kind in _EFFECTS.items()},
    "api.stop": _on_faults("stop_api_server", "Refuse connections to the API server"),
    "api.start": _on_faults("start_api_server", "Serve the API again, at the same address"),
    "api.restart": _on_faults("restart_api_server", "Stop and start: every watch breaks"),
    "api.forget-history": _on_faults("forget_history", "410 for whoever is not up to date"),
    "api.drop-watches": _call(actions.drop_watches),
    "api.silence-watches": _call(actions.silence_watches),
    "token.expire": _call(actions.expire_token),
    "token.rotate": _call(actions.rotate_token),
    "service.route": _call(actions.route_service),
    "service.cut": _call(actions.cut_service),
    "service.mend": _call(actions.mend_service),
    "node.add": _call(actions.add_node),
    "node.stop-kubelet": _on_node("stop_kubelet", "End kubelet as a crash would: the node is lost"),
    "node.start-kubelet": _on_node("start_kubelet", "Start kubelet again"),
    "node.restart-kubelet": _on_node("restart_kubelet", "End kubelet and start it again"),
    "node.flicker": _on_node("flicker_drivers", "Let every driver leave CSINode for a moment"),
    "node.remove": _on_node("remove", "Take the machine away and delete its Node"),
    "node.deadline": _call(actions.shorten_deadline),
    "node.fill-disk": _call(actions.fill_disk),
    "node.fail-disk": _call(actions.fail_disk),
    "node.fail-mount": _call(actions.fail_mount),
    **{name: _hub_fault(kind) for name, kind in _HUB_FAULTS.items()},
    "hub.stop": _on_hubs("stop", "Refuse connections to the hub"),
    "hub.start": _on_hubs("start", "Let the hub listen again"),
    "hub.stop-content": _on_hubs("stop_content_host", "Refuse connections to the content host"),
    "hub.start-content": _on_hubs("start_content_host", "Let the content host listen again"),
    "relay.open": _call(actions.open_relay),
    "relay.cut": _call(actions.cut_relay),
    "relay.hold": _call(actions.hold_relay),
    "relay.mend": _call(actions.mend_relay),
    "clock.advance": _call(actions.advance),
    "show": _call(actions.show),
    "release": _call(actions.release),
    "clear": _call(actions.clear),
}
