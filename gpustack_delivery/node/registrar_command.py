"""`gpustack-delivery registrar`: registers the node plugin with kubelet, as its own process."""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

from gpustack_delivery.adapters.ending import ending
from gpustack_delivery.errors import ConfigurationFault
from gpustack_delivery.node.registrar import Registrar


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    add = parser.add_argument
    add("--csi-address", default="/csi/csi.sock", metavar="FILE", help="default: %(default)s")
    add(
        "--registration-path",
        default="",
        metavar="FILE",
        help="the same socket as kubelet sees it (default: as --csi-address)",
    )
    add("--plugins-registry", default="/registration", metavar="DIR", help="default: %(default)s")


def run(args: argparse.Namespace) -> int:
    """Register, and stay until told to stop."""
    address, registry = Path(args.csi_address), Path(args.plugins_registry)
    path = Path(args.registration_path or args.csi_address)
    for flag, given in (
        ("--csi-address", address),
        ("--plugins-registry", registry),
        ("--registration-path", path),
    ):
        if not given.is_absolute():
            raise ConfigurationFault(f"{flag} must be an absolute path: {str(given)!r}")
    logging.basicConfig(level="INFO", format="%(asctime)s %(levelname)s %(name)s %(message)s")
    registrar = Registrar(address, registry, path)
    with ending() as end:
        try:
            registrar.start()
            end.wait()
        finally:
            registrar.stop()
    return 0
