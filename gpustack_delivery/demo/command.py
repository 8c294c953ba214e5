"""The `demo` command: flags in, a story on the terminal, and on request its outcome as JSON.

The exit status follows the outcome: 0 when everything the contract promises was seen, 1 when not, 2
for a folder that cannot be served. With `--stay` the cluster outlives the story until a signal.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from io import TextIOWrapper
from pathlib import Path

from rich.console import Console

from gpustack_delivery.adapters.ending import interruptible
from gpustack_delivery.demo.model import open_folder, packaged_model
from gpustack_delivery.demo.screen import Screen
from gpustack_delivery.demo.stage import Stage
from gpustack_delivery.demo.story import REPOSITORY, tell
from gpustack_delivery.terminal import filled


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument(
        "--model-dir",
        type=filled,
        metavar="DIR",
        help="the folder to serve as the model's repository, such as a Hugging Face snapshot; "
        "by default the packaged all-MiniLM-L6-v2",
    )
    parser.add_argument(
        "--json", action="store_true", help="end with one JSON object that holds the outcome"
    )
    parser.add_argument(
        "--stay", action="store_true", help="keep the cluster for kubectl, until Ctrl-C"
    )


def run(args: argparse.Namespace) -> int:
    """Play the demo; return 0 when its outcome is as promised."""
    folder = open_folder(Path(args.model_dir) if args.model_dir else packaged_model())
    # The screen tells the story; what the processes log would only tear it apart.
    logging.getLogger("gpustack_delivery").setLevel(logging.CRITICAL)
    if isinstance(sys.stdout, TextIOWrapper):
        # A terminal without the marks and bars gets question marks, and the story all the same.
        sys.stdout.reconfigure(errors="replace")
    console = Console(highlight=False)
    with interruptible(), Stage() as stage:
        screen = Screen(console)
        outcome = tell(stage, folder, screen)
        try:
            if args.stay:
                _invite(stage, screen)
            if args.json:
                console.file.write(json.dumps(outcome.to_wire()) + "\n")
            console.file.flush()
            if args.stay:
                stage.stay()
        except KeyboardInterrupt:
            if not args.stay:
                raise
    return 0 if outcome.ok else 1


def _invite(stage: Stage, screen: Screen) -> None:
    """Say how the cluster is used while it stays."""
    screen.chapter("The cluster stays until Ctrl-C; in another terminal")
    screen.say(f"export KUBECONFIG={stage.cluster.kubeconfig()}")
    screen.say("kubectl get mart,nms,pods -A")
    screen.say(f"the hub has {REPOSITORY} alone; an artifact's own counts may be 30 s old")
