"""Node-to-node sync of one node: the listener for others, and the searches of its own attempts.

The listener runs as long as the plugin, whatever the Setting says: the Setting decides where this
node's own bytes come from. Port 0 means that none of this exists.

Rules: PS-OFF-01.
"""

from __future__ import annotations

from gpustack_delivery.errors import ConfigurationFault
from gpustack_delivery.node.downloading import Cancellation, Limits
from gpustack_delivery.node.peers.discovery import Directory
from gpustack_delivery.node.peers.options import PeerOptions
from gpustack_delivery.node.peers.pulling import Peers
from gpustack_delivery.node.peers.searching import Search
from gpustack_delivery.node.peers.serving import PeerServer, Seats
from gpustack_delivery.node.peers.tokens import TokenGate
from gpustack_delivery.node.trees import Trees
from gpustack_delivery.ports import Clock, Disk, Kube


class PeerSync:
    """Both sides of node-to-node sync, from `start` to `stop`.

    Args:
        options: the flags, with a port.
        place: the node's name and the operator's namespace.
        trees: what is served.
        limits: the node's, which hold for peers as well.
        world: the API, time and the disk.
    """

    def __init__(
        self,
        options: PeerOptions,
        place: tuple[str, str],
        trees: Trees,
        limits: Limits,
        world: tuple[Kube, Clock, Disk],
    ) -> None:
        node_name, namespace = place
        kube, self._clock, disk = world
        self._where = f"{options.host}:{options.port}"
        self._directory = Directory(kube, self._clock, node_name, namespace)
        self._peers = Peers(options, limits, self._clock, disk)
        account = f"system:serviceaccount:{namespace}:{options.service_account}"
        gate = TokenGate(kube, self._clock, account)
        self._server = PeerServer(
            (options.host, options.port),
            trees,
            Seats(self._clock, options.max_serving_streams),
            gate.admits if options.authentication == "token" else None,
        )

    def start(self) -> None:
        """Listen, and say it now if our own token is missing: an attempt may be days away.

        Raises:
            ConfigurationFault: the address is taken or not ours.
        """
        self._peers.credential()
        try:
            self._server.start()
        except OSError as error:
            raise ConfigurationFault(f"cannot listen on {self._where}: {error.strerror}") from error

    def stop(self) -> None:
        """Close the listener and every connection to others; safe twice."""
        self._server.stop()
        self._peers.close()

    def search(self, digest: str, cancellation: Cancellation) -> Search:
        """Return an attempt's search for sources of a digest."""
        return Search(self._directory, self._peers, self._clock, digest, cancellation)
