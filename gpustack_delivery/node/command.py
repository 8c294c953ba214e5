"""`gpustack-delivery model-manager`: the node plugin as a process, from flags to signals."""

from __future__ import annotations

import argparse
import logging
import os
from pathlib import Path
from typing import Final

from gpustack_delivery.adapters.ending import ending
from gpustack_delivery.adapters.host import KernelDisk, KernelMounts, SystemClock
from gpustack_delivery.adapters.kube import connect
from gpustack_delivery.httpd import everywhere
from gpustack_delivery.node.peers.options import AUTHENTICATIONS, TOKEN_FILE, PeerOptions
from gpustack_delivery.node.plugin import Plugin, PluginOptions, World
from gpustack_delivery.ports import Clock, Kube
from gpustack_delivery.terminal import whole_number
from gpustack_delivery.vocabulary.resources import DRIVER_NAME

KUBELET_DIR: Final = "/var/lib/kubelet"
CACHE_ROOT: Final = "/var/lib/gpustack/models"
NAMESPACE: Final = "gpustack-system"
_LEVELS: Final = ("debug", "info", "warning", "error")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    add = parser.add_argument
    node = os.environ.get("KUBERNETES_NODE_NAME", "")
    namespace = os.environ.get("KUBERNETES_POD_NAMESPACE", "") or NAMESPACE
    add("--node-name", default=node, metavar="NAME", help="the Node; or $KUBERNETES_NODE_NAME")
    add("--namespace", default=namespace, help="the operator's; or $KUBERNETES_POD_NAMESPACE")
    add("--kubelet-dir", default=KUBELET_DIR, metavar="DIR", help="default: %(default)s")
    add("--cache-root", default=CACHE_ROOT, metavar="DIR", help="default: %(default)s")
    add("--csi-socket", default="", metavar="FILE", help="default: under the kubelet directory")
    add("--host", default=everywhere(), metavar="ADDRESS", help="default: everywhere")
    add(
        "--secure-port",
        type=whole_number(0, 65535),
        default=32444,
        metavar="PORT",
        help="HTTPS port (default: %(default)s)",
    )
    add("--kubeconfig", default="", metavar="FILE", help="default: the Pod's service account")
    add("--direct-writes", action="store_true", help="large files go past the page cache")
    add("--log-level", choices=_LEVELS, default="info", help="default: info")
    _add_peer_arguments(parser)


def _add_peer_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of node-to-node sync."""
    add = parser.add_argument
    add(
        "--peer-sync-port",
        type=whole_number(0, 65535),
        default=0,
        metavar="PORT",
        help="0 switches peer sync off",
    )
    add("--peer-sync-auth", choices=AUTHENTICATIONS, default="token", help="default: token")
    add("--peer-sync-service-account", default="", metavar="NAME", help="whose tokens count")
    add("--peer-sync-token-file", default=str(TOKEN_FILE), metavar="FILE", help="shown to peers")
    add(
        "--peer-sync-max-serving-streams",
        type=whole_number(1, 1024),
        default=8,
        metavar="N",
        help="1 to 1024",
    )
    add(
        "--peer-sync-streams-per-source",
        type=whole_number(1, 64),
        default=4,
        metavar="N",
        help="1 to 64",
    )


def run(args: argparse.Namespace, clock: Clock | None = None) -> int:
    """Run the plugin until it is told to stop, on the machine's clock unless another is given."""
    options = options_of(args)
    logging.basicConfig(
        level=args.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s %(message)s"
    )
    with ending() as end:
        kube = connect(args.kubeconfig)
        end.told = kube.hang_up  # nothing that is asked for now has to arrive
        try:
            plugin = Plugin(options, world_of(args, kube, clock or SystemClock()))
            plugin.start()
            try:
                end.wait()
            finally:
                plugin.stop()
        finally:
            kube.close()
    return 0


def world_of(args: argparse.Namespace, kube: Kube, clock: Clock) -> World:
    """Return the real machine, used as the flags say."""
    return World(clock, kube, KernelMounts(), KernelDisk(direct_writes=args.direct_writes))


def options_of(args: argparse.Namespace) -> PluginOptions:
    """Return the options that the flags name.

    Raises:
        ConfigurationFault: a flag cannot be used; the message names it.
    """
    kubelet = Path(args.kubelet_dir)
    default_socket = kubelet / "plugins" / DRIVER_NAME / "csi.sock"
    return PluginOptions(
        node_name=args.node_name,
        kubelet_dir=kubelet,
        cache_root=Path(args.cache_root),
        csi_socket=Path(args.csi_socket) if args.csi_socket else default_socket,
        secure_port=args.secure_port,
        namespace=args.namespace,
        host=args.host,
        peer_sync=_peer_options(args),
    )


def _peer_options(args: argparse.Namespace) -> PeerOptions:
    return PeerOptions(
        port=args.peer_sync_port,
        authentication=args.peer_sync_auth,
        service_account=args.peer_sync_service_account,
        max_serving_streams=args.peer_sync_max_serving_streams,
        streams_per_source=args.peer_sync_streams_per_source,
        token_file=Path(args.peer_sync_token_file),
        host=args.host,
    )
