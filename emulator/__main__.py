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
import signal
import sys
from collections.abc import Sequence
from contextlib import ExitStack, closing
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

from emulator.chart import ChartError, render
from emulator.clock import ManualClock
from emulator.clock_service import ClockService
from emulator.cluster import Cluster
from emulator.control import CommandError, Endpoint, run
from emulator.errors import ApiError
from emulator.gpu import GPU_LABELS, GPU_RESOURCES
from emulator.hubs.errors import HubError
from emulator.hubs.huggingface import HuggingFaceHub
from emulator.node import NodeOptions

_STOP_SIGNALS = {signal.SIGINT, signal.SIGTERM}
_MOST_NODES = 254
_FAULT_SECONDS = 60.0


class UsageError(Exception):
    """A flag cannot be followed; the text says what would do."""


_EXPECTED = (UsageError, ApiError, ChartError, CommandError, HubError, OSError, ValueError)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command until it is interrupted; return 0, or 2 for what cannot be done."""
    arguments = _parser().parse_args(argv)
    # Every thread inherits the block, so that the signal waits for the main thread to ask for it.
    signal.pthread_sigmask(signal.SIG_BLOCK, _STOP_SIGNALS)
    try:
        with ExitStack() as stack:
            arguments.start(arguments, stack)
            sys.stdout.flush()
            if arguments.stays:
                signal.sigwait(_STOP_SIGNALS)
    except _EXPECTED as error:
        sys.stderr.write(f"emulator: {error}\n")
        return 2
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOP_SIGNALS)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m emulator", description=__doc__)
    parser.set_defaults(stays=True)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    up = commands.add_parser("up", help="start a cluster and stay until interrupted")
    up.add_argument("--nodes", type=int, default=1, metavar="N", help="how many nodes (1)")
    up.add_argument(
        "--kubernetes", default="1.30", metavar="VERSION", help="the version it plays (1.30)"
    )
    up.add_argument("--gpu-labels", action="store_true", help="make the nodes look like GPU nodes")
    up.add_argument("--chart", type=Path, metavar="DIR", help="render a Helm chart and apply it")
    up.add_argument("--namespace", default="gpustack-system", help="the chart's namespace")
    up.add_argument("--release", default="gpustack-delivery", help="the chart's release name")
    up.add_argument(
        "--hub",
        action="append",
        default=[],
        metavar="DIR=ORG/NAME",
        help="serve a folder as a repository of a hub; may be repeated",
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
        type=Path,
        metavar="SOCKET",
        help="let time stand still, and serve the clock that moves it on this socket",
    )
    up.set_defaults(start=_up)
    fault = commands.add_parser("fault", help="break a running cluster, or list how")
    fault.add_argument("file", type=Path, metavar="FILE", help="the control file that up names")
    fault.add_argument("command", nargs="*", metavar="COMMAND", help="such as 'api.restart'")
    fault.set_defaults(start=_fault, stays=False)
    hub = commands.add_parser("hub", help="a model hub alone").add_subparsers(required=True)
    serve = hub.add_parser("serve", help="serve a folder as a repository and stay")
    serve.add_argument("directory", type=Path, metavar="DIR")
    serve.add_argument(
        "--name", default="", metavar="ORG/NAME", help="local/ and the folder's name"
    )
    serve.set_defaults(start=_serve)
    return parser


def _up(arguments: argparse.Namespace, stack: ExitStack) -> None:
    """Start a cluster with everything that was asked for, and say how to reach it."""
    if not 1 <= arguments.nodes <= _MOST_NODES:
        raise UsageError(f"--nodes {arguments.nodes}: choose a number from 1 to {_MOST_NODES}")
    hubs = [_repository(text) for text in arguments.hub]
    objects = []
    if arguments.chart is not None:
        objects = render(
            arguments.chart,
            release=arguments.release,
            namespace=arguments.namespace,
            kubernetes=arguments.kubernetes,
        )
    clock = ManualClock() if arguments.clock is not None else None
    cluster = stack.enter_context(Cluster(kubernetes=arguments.kubernetes, clock=clock))
    if clock is not None:
        service = ClockService(clock, arguments.clock).start()
        stack.callback(service.stop)
    served = []
    if hubs:
        hub = cluster.add_hub()
        for folder, name in hubs:
            hub.add_repository(name, folder)
            served.append(f"hub {hub.url} serves {folder} as {name}")
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
    version = f"kubernetes v{arguments.kubernetes} at {cluster.url}"
    sys.stdout.write("\n".join([str(cluster.kubeconfig()), version, *served]) + "\n")


def _fault(arguments: argparse.Namespace, _: ExitStack) -> None:
    """Send one command to a running cluster, or list the commands, and say what came of it."""
    try:
        control = json.loads(arguments.file.read_text(encoding="utf-8"))
        address = urlsplit(control["url"])
    except (KeyError, TypeError, ValueError):
        raise UsageError(f"{arguments.file} is not the control file of a cluster") from None
    connection = HTTPConnection(address.hostname or "", address.port, timeout=_FAULT_SECONDS)
    headers = {"Authorization": f"Bearer {control['token']}"}
    with closing(connection):
        if arguments.command:
            connection.request("POST", "/do", " ".join(arguments.command).encode(), headers)
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
    name = arguments.name or f"local/{folder.resolve().name}"
    hub = HuggingFaceHub()
    hub.add_repository(name, folder)
    hub.start()
    stack.callback(hub.stop)
    sys.stdout.write(f"{hub.url}\nserves {folder} as {name}\n")


def _repository(text: str) -> tuple[Path, str]:
    """Split DIR=ORG/NAME at its last equals sign."""
    folder, _, name = text.rpartition("=")
    if not folder or name.count("/") != 1 or not all(name.split("/")):
        raise UsageError(f"--hub {text}: write it as DIR=ORG/NAME")
    return Path(folder), name


if __name__ == "__main__":
    sys.exit(main())
