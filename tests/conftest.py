"""The real clients that `make setup` put beside the interpreter come before the rest of PATH."""

from __future__ import annotations

import os

from tests.clients import BESIDE

os.environ["PATH"] = os.pathsep.join([str(BESIDE), os.environ.get("PATH", os.defpath)])
