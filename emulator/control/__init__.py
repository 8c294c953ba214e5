"""Breaking a running cluster by hand: commands as text, and the endpoint that takes them."""

from emulator.control.commands import run, usage
from emulator.control.endpoint import Endpoint
from emulator.control.values import CommandError

__all__ = ["CommandError", "Endpoint", "run", "usage"]
