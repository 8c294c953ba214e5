"""The command line: one program, one command for each job.

A command is a module with `add_arguments` and `run`; it is imported only when it is asked for, so
that the node plugin starts without the worker's modules and a production image needs no emulator. A
`ConfigurationFault` that leaves a command becomes one line on standard error and exit status 2.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import Final, Protocol, cast

from gpustack_delivery.errors import ConfigurationFault, DeliveryError
from gpustack_delivery.terminal import Parser, one_line, tolerate_any_text

COMMANDS: Final = {
    "model-manager": ("gpustack_delivery.node.command", "run the node plugin"),
    "registrar": (
        "gpustack_delivery.node.registrar_command",
        "register the node plugin with kubelet",
    ),
    "verify": (
        "gpustack_delivery.node.verify_command",
        "hash published trees again and name every file that is wrong",
    ),
    "worker": ("gpustack_delivery.worker.command", "run the controllers and webhooks"),
    "manifest": (
        "gpustack_delivery.worker.manifest_command",
        "print the manifest digest of a folder or of a hub revision",
    ),
    "volume": (
        "gpustack_delivery.worker.volume_command",
        "print the volume by which a Pod mounts an artifact",
    ),
    "demo": ("gpustack_delivery.demo", "deliver a real model on the embedded cluster"),
}


class Command(Protocol):
    """What a command's module offers."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the flags."""

    def run(self, args: argparse.Namespace) -> int:
        """Do the job and return the exit status."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return 0, or 1 for a failure while running, or 2 for wrong input."""
    tolerate_any_text()
    arguments = list(sys.argv[1:] if argv is None else argv)
    name = arguments[0] if arguments else ""
    if name not in COMMANDS:
        _overview().parse_args(arguments or ["--help"])
        return 2
    parser = Parser(
        prog=f"gpustack-delivery {name}", description=f"{COMMANDS[name][1].capitalize()}."
    )
    try:
        command = _load(name)
        command.add_arguments(parser)
        status = command.run(parser.parse_args(arguments[1:]))
        sys.stdout.flush()
        return status
    except ConfigurationFault as fault:
        return _complain(name, str(fault), 2)
    except DeliveryError as error:
        return _complain(name, str(error), 1)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Whoever read our output has seen enough; the interpreter must not try to flush the rest.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141


def _overview() -> argparse.ArgumentParser:
    parser = Parser(
        prog="gpustack-delivery",
        description="Model weights delivered once per node, verified, mounted read-only.",
        epilog="`gpustack-delivery COMMAND --help` lists a command's flags.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    ours = version("gpustack-delivery")
    parser.add_argument("--version", action="version", version=f"gpustack-delivery {ours}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, (_, summary) in COMMANDS.items():
        commands.add_parser(name, help=summary, add_help=False)
    return parser


def _load(name: str) -> Command:
    try:
        return cast(Command, importlib.import_module(COMMANDS[name][0]))
    except ModuleNotFoundError as error:
        if (error.name or "").startswith(("gpustack_delivery", "emulator")):
            raise
        raise ConfigurationFault(
            f"this command needs the package {error.name}: pip install 'gpustack-delivery[demo]'"
        ) from error


def _complain(name: str, message: str, status: int) -> int:
    sys.stderr.write(f"gpustack-delivery {name}: {one_line(message)}\n")
    return status


if __name__ == "__main__":
    sys.exit(main())
