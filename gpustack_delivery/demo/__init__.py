"""The main job on the embedded cluster, told on a terminal: one real model, delivered and mounted.

`model` opens the folder to deliver, `stage` holds the cluster and what stands on it, `story` acts
it out, `screen` draws it. `add_arguments` and `run` are the command.
"""

from __future__ import annotations

from gpustack_delivery.demo.command import add_arguments, run

__all__ = ["add_arguments", "run"]
