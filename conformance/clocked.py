#!/usr/bin/env python
"""Our programs on a clock that the suite moves: `clocked.py SOCKET COMMAND FLAGS…`.

COMMAND is `worker` or `model-manager` with the flags that it always has; the code that runs is the
code that is shipped, on another clock than the machine's. This file lies beside the manifest and in
no package, and nothing in the shipped package asks for a clock: a production plugin cannot be put
on one by a flag, a variable or a file.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Final

from emulator.clock_service import RemoteClock
from gpustack_delivery.errors import DeliveryError
from gpustack_delivery.terminal import Parser

PROGRAMS: Final = {
    "model-manager": "gpustack_delivery.node.command",
    "worker": "gpustack_delivery.worker.command",
}


def main(arguments: list[str]) -> int:
    """Run a program until it is told to stop, and return its exit status."""
    parser = Parser(prog="clocked.py", description="Run it on a served clock.")
    parser.add_argument("socket", type=Path, help="where the clock is served")
    parser.add_argument("program", choices=PROGRAMS)
    args, flags = parser.parse_args(arguments[:2]), arguments[2:]
    program = importlib.import_module(PROGRAMS[args.program])
    flag_parser = Parser(prog=f"clocked.py SOCKET {args.program}")
    program.add_arguments(flag_parser)
    try:
        clock = RemoteClock(args.socket)
    except OSError as error:
        parser.error(f"no clock is served at {args.socket}: {error.strerror}")
    try:
        return int(program.run(flag_parser.parse_args(flags), clock))
    except DeliveryError as fault:
        parser.error(str(fault))
    finally:
        clock.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
