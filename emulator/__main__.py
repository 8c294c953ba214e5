"""The emulator on a terminal.

`python -m emulator up` starts a cluster, prints the path of a kubeconfig as its first line and
stays until it is interrupted; `python -m emulator hub serve DIR` does the same with a model hub
alone. `python -m emulator fault FILE COMMAND` breaks a running cluster; FILE is the control file
that `up` names, and without a COMMAND it lists them. What cannot be done is said in one line on
standard error, with exit status 2.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import sys
from collections.abc import Sequence
from contextlib import ExitStack, closing
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from urllib.parse import urlsplit

from emulator.access.features import Features
from emulator.chart import ChartError, given, render
from emulator.clock import ManualClock
from emulator.clock_service import ClockService
from emulator.cluster import Cluster
from emulator.control import CommandError, Endpoint, run
from emulator.control.actions import address
from emulator.errors import ApiError
from emulator.gpu import GPU_LABELS, GPU_RESOURCES
from emulator.hubs.errors import HubError
from emulator.hubs.huggingface import HuggingFaceHub
from emulator.kinds.metadata import label_faults
from emulator.node import NodeOptions
from gpustack_delivery.terminal import (
    Parser,
    filled,
    one_line,
    plain,
    tolerate_any_text,
    whole_number,
)

_STOP_SIGNALS = {signal.SIGINT, signal.SIGTERM}
_MOST_NODES = 254
_FAULT_SECONDS = 60.0
# What a hub's clients take for a repository's name: NAME or ORG/NAME.
_NAME = re.compile(r"(?:(?!\.)[\w.-]{1,96}/)?(?!\.)[\w.-]{1,96}", re.ASCII)


class UsageError(Exception):
    """A flag cannot be followed; the text says what would do."""


_EXPECTED = (UsageError, ApiError, ChartError, CommandError, HubError, OSError, ValueError)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command until it is interrupted; return 0, or 2 for what cannot be done."""
    tolerate_any_text()
    arguments = _parser().parse_args(argv)
    # Every thread inherits the block, so that the signal waits for the main thread to ask for it.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _STOP_SIGNALS)
    try:
        with ExitStack() as stack:
            arguments.start(arguments, stack)
            sys.stdout.flush()
            if arguments.stays:
                signal.sigwait(_STOP_SIGNALS)
    except _EXPECTED as error:
        sys.stderr.write(f"emulator: {one_line(_words(error))}\n")
        return 2
    finally:
        while signal.sigtimedwait(_STOP_SIGNALS, 0):
            pass  # told twice
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return 0


def _words(error: Exception) -> str:
    """Return an error as people write it, without numbers and quotes of the system's."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)


def _parser() -> Parser:
    parser = Parser(prog="python -m emulator", description=__doc__)
    parser.set_defaults(stays=True)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _declare_up(commands.add_parser("up", help="start a cluster and stay until interrupted"))
    fault = commands.add_parser("fault", help="break a running cluster, or list how")
    fault.add_argument("file", type=_path, metavar="FILE", help="the control file that up names")
    fault.add_argument("command", nargs="*", metavar="COMMAND", help="such as 'api.restart'")
    fault.set_defaults(start=_fault, stays=False)
    hub = commands.add_parser("hub", help="a model hub alone").add_subparsers(required=True)
    serve = hub.add_parser("serve", help="serve a folder as a repository and stay")
    serve.add_argument("directory", type=_path, metavar="DIR")
    serve.add_argument(
        "--name", default="", metavar="ORG/NAME", help="local/ and the folder's name"
    )
    serve.set_defaults(start=_serve)
    return parser


def _declare_up(up: argparse.ArgumentParser) -> None:
    up.add_argument(
        "--nodes", type=whole_number(1, _MOST_NODES), default=1, metavar="N", help="how many (1)"
    )
    up.add_argument(
        "--kubernetes", default="1.30", metavar="VERSION", help="the version it plays (1.30)"
    )
    up.add_argument("--gpu-labels", action="store_true", help="make the nodes look like GPU nodes")
    up.add_argument("--chart", type=_path, metavar="DIR", help="render a Helm chart and apply it")
    up.add_argument(
        "--values",
        action="append",
        default=[],
        type=_path,
        metavar="FILE",
        help="lay a YAML file over the chart's values; may be repeated",
    )
    up.add_argument(
        "--set",
        action="append",
        default=[],
        dest="settings",
        metavar="KEY=VALUE",
        help="then one value, such as worker.replicas=2, written as YAML; may be repeated",
    )
    up.add_argument(
        "--namespace", type=_label, default="gpustack-system", help="the chart's namespace"
    )
    up.add_argument(
        "--release", type=_label, default="gpustack-delivery", help="the chart's release name"
    )
    up.add_argument(
        "--hub",
        action="append",
        default=[],
        metavar="DIR=ORG/NAME",
        help="serve a folder as a repository of a hub; may be repeated",
    )
    up.add_argument(
        "--route",
        action="append",
        default=[],
        metavar="NS/SERVICE=HOST:PORT",
        help="the program behind a Service, for its webhooks and APIServices; may be repeated",
    )
    up.add_argument(
        "--fault",
        action="append",
        default=[],
        metavar="COMMAND",
        help="break something from the start, as `fault` does; may be repeated",
    )
    up.add_argument(
        "--clock",
        type=_path,
        metavar="SOCKET",
        help="let time stand still, and serve the clock that moves it on this socket",
    )
    up.set_defaults(start=_up)


def _up(arguments: argparse.Namespace, stack: ExitStack) -> None:
    """Start a cluster with everything that was asked for, and say how to reach it."""
    try:
        Features.of(arguments.kubernetes)
    except ValueError as error:
        raise UsageError(f"--kubernetes: {error}") from None
    hubs = [_repository(text) for text in arguments.hub]
    objects = []
    values = given(arguments.values, arguments.settings)
    if values and arguments.chart is None:
        raise UsageError("--values and --set are a chart's: name it with --chart")
    if arguments.chart is not None:
        objects = render(
            arguments.chart,
            release=arguments.release,
            namespace=arguments.namespace,
            values=values,
            kubernetes=arguments.kubernetes,
        )
    routes = dict(map(_route, arguments.route))
    clock = ManualClock() if arguments.clock is not None else None
    cluster = stack.enter_context(Cluster(kubernetes=arguments.kubernetes, clock=clock))
    cluster.webhooks.routes.update(routes)
    if clock is not None:
        service = ClockService(clock, arguments.clock)
        try:
            service.start()
        except OSError as error:
            why = error.strerror or error
            raise UsageError(f"--clock {str(arguments.clock)!r}: no socket: {why}") from None
        stack.callback(service.stop)
    served = []
    if hubs:
        hub = cluster.add_hub()
        for folder, name in hubs:
            hub.add_repository(name, folder)
            served.append(f"hub {hub.url} serves {plain(str(folder))} as {name}")
    labels = dict(GPU_LABELS) if arguments.gpu_labels else {}
    options = NodeOptions(allocatable=GPU_RESOURCES if arguments.gpu_labels else {})
    for number in range(1, arguments.nodes + 1):
        cluster.add_node(f"node-{number}", labels=labels, options=options)
    if objects:
        namespace = {"apiVersion": "v1", "kind": "Namespace"}
        cluster.apply([{**namespace, "metadata": {"name": arguments.namespace}}, *objects])
    for command in arguments.fault:
        run(cluster, command)
    endpoint = Endpoint(cluster).start()
    stack.callback(endpoint.stop)
    control = cluster.folder / "control"
    endpoint.write(control)
    served.append(f"control {control}")
    version = f"kubernetes v{arguments.kubernetes.removeprefix('v')} at {cluster.url}"
    sys.stdout.write("\n".join([str(cluster.kubeconfig()), version, *served]) + "\n")


def _fault(arguments: argparse.Namespace, _: ExitStack) -> None:
    """Send one command to a running cluster, or list the commands, and say what came of it."""
    try:
        control = json.loads(arguments.file.read_text(encoding="utf-8"))
        address = urlsplit(control["url"])
        host, port = address.hostname or "", address.port or 0
        headers = {"Authorization": "Bearer {token}".format_map(control)}
    except OSError as error:
        raise UsageError(
            f"{arguments.file} cannot be read ({error.strerror}): name the file that `up` "
            "prints after the word control"
        ) from None
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
        raise UsageError(f"{arguments.file} is not the control file of a cluster") from None
    if not headers["Authorization"].isprintable():
        raise UsageError(f"{arguments.file} holds a token that no header can carry")
    try:
        _send(arguments.command, HTTPConnection(host, port, timeout=_FAULT_SECONDS), headers)
    except (OSError, HTTPException) as error:
        raise UsageError(
            f"the cluster of {arguments.file} does not answer at {host}:{port}: {_words(error)}"
        ) from None


def _send(command: list[str], connection: HTTPConnection, headers: dict[str, str]) -> None:
    with closing(connection):
        if command:
            body = " ".join(command).encode(errors="surrogateescape")
            connection.request("POST", "/do", body, headers)
        else:
            connection.request("GET", "/", headers=headers)
        response = connection.getresponse()
        text = response.read().decode().strip()
    if response.status != 200:
        raise UsageError(text)
    sys.stdout.write(f"{text}\n")


def _serve(arguments: argparse.Namespace, stack: ExitStack) -> None:
    """Start a hub that serves one folder, and say where."""
    folder = arguments.directory
    name = arguments.name or f"local/{Path(os.path.realpath(folder)).name}"
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} cannot be a repository's name: give another with --name")
    hub = HuggingFaceHub()
    hub.add_repository(name, folder)
    hub.start()
    stack.callback(hub.stop)
    sys.stdout.write(f"{hub.url}\nserves {plain(str(folder))} as {name}\n")


def _path(text: str) -> Path:
    return Path(filled(text))


def _label(text: str) -> str:
    if faults := label_faults(text):
        raise argparse.ArgumentTypeError(f"{text!r}: {faults[0]}")
    return text


def _repository(text: str) -> tuple[Path, str]:
    """Split DIR=ORG/NAME at its last equals sign."""
    folder, _, name = text.rpartition("=")
    if not folder or not _NAME.fullmatch(name) or "/" not in name:
        raise UsageError(f"--hub {text!r}: write it as DIR=ORG/NAME")
    return Path(folder), name


def _route(text: str) -> tuple[tuple[str, str], tuple[str, int]]:
    """Split NS/SERVICE=HOST:PORT."""
    service, _, target = text.partition("=")
    namespace, _, name = service.partition("/")
    try:
        if namespace and name and "/" not in name:
            return (namespace, name), address(target)
    except ValueError:
        pass
    raise UsageError(f"--route {text!r}: write it as NS/SERVICE=HOST:PORT")


if __name__ == "__main__":
    sys.exit(main())
