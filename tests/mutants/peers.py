"""Broken node-to-node sync: each breaks one seam, in the way its name says."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from typing import Any

from gpustack_delivery.adapters.http import Http
from gpustack_delivery.decisions import admission
from gpustack_delivery.node import delivery
from gpustack_delivery.node.attempt import Attempt
from gpustack_delivery.node.peers import pulling, searching, serving, tokens
from gpustack_delivery.node.peers.serving import Seats
from gpustack_delivery.node.peers.tokens import TokenGate
from gpustack_delivery.vocabulary.manifest import Entry, Manifest
from gpustack_delivery.vocabulary.node_store import ByteSource
from gpustack_delivery.vocabulary.resources import TOKEN_REVIEWS
from gpustack_delivery.worker import webhooks
from tests.mutants.seams import Patch, breaks


@breaks("NS-DL-05")
def asks_the_hub_about_anchors(patch: Patch) -> None:
    """Let the hub deliver what no peer has, at the branch."""
    run = delivery._Delivery.run

    def branched(self: Any, changed: Any) -> None:
        resolved = self.grant.resolved
        if not resolved.revision:
            grant = replace(self.grant, resolved=replace(resolved, revision="main"))
            self = replace(self, grant=grant)
        run(self, changed)

    patch.setattr(delivery._Delivery, "run", branched)


@breaks("PS-SRV-01")
def serves_everybody_at_once(patch: Patch) -> None:
    """Have a seat for every file answer."""
    patch.setattr(Seats, "take", lambda _: True)


@breaks("PS-SRV-02")
def remembers_a_token_past_its_end(patch: Patch) -> None:
    """Remember a yes for its whole short lifetime."""
    patch.setattr(tokens, "_expiry", lambda _: float("inf"))


@breaks("PS-SRV-02")
def takes_a_token_for_another_purpose(patch: Patch) -> None:
    """Let a token count whose audience is the API server."""
    audiences = [tokens.AUDIENCE, "https://kubernetes.default.svc"]

    def reviewed(self: Any, text: str) -> bool:
        resource, spec = TOKEN_REVIEWS, {"token": text, "audiences": audiences}
        body = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {}}
        status = self._kube.create(resource, body | {"spec": spec}).get("status") or {}
        return bool((status.get("user") or {}).get("username") == self._username)

    patch.setattr(TokenGate, "_review", reviewed)


@breaks("PS-SRV-03")
def follows_links_out_of_a_tree(patch: Patch) -> None:
    """Open a listed file by its path."""
    patch.setattr(serving, "_open", lambda tree, path, _size: os.open(tree / path, os.O_RDONLY))


@breaks("PS-CLI-01")
def asks_the_hub_with_everybody(patch: Patch) -> None:
    """Wait for nobody else's copy."""
    patch.setattr(searching, "awaited", lambda *_, **__: "")


@breaks("PS-CLI-01")
def believes_any_listing(patch: Patch) -> None:
    """Take a peer's listing for the tree's, whatever digest it makes."""

    def listing(self: Any, peer: Any, digest: str) -> Manifest:
        url = pulling._tree_url(peer, digest)
        answer = self._http.call("GET", url, token=self.credential())
        entries = json.loads(answer.body)["entries"]
        return Manifest.of(Entry(e["path"], e["size"], e["digest"]) for e in entries)

    patch.setattr(pulling.Peers, "listing", listing)


@breaks("PS-CLI-02")
def starts_over_at_every_source(patch: Patch) -> None:
    """Throw away what a lost peer had brought."""
    fetch = delivery._Delivery._fetch_from_hub

    def fetched(self: Any, *given: Any) -> None:
        shutil.rmtree(self.workspace.state, ignore_errors=True)
        fetch(self, *given)

    patch.setattr(delivery._Delivery, "_fetch_from_hub", fetched)


@breaks("PS-CLI-03")
def says_peer_for_a_single_byte(patch: Patch) -> None:
    """Name the peers as the source as soon as they brought anything."""
    progress = Attempt.progress

    def told(self: Any) -> Any:
        found = progress(self)
        helped = self._received[ByteSource.PEER] > 0
        return replace(found, source=ByteSource.PEER) if helped else found

    patch.setattr(Attempt, "progress", told)


@breaks("PS-OFF-01")
def ignores_the_setting(patch: Patch) -> None:
    """Pull from peers as long as there is a port."""

    def searched(self: Any) -> Any:
        peers = self.around.peers
        return peers and peers.search(self.attempt.digest, self.attempt.cancellation)

    patch.setattr(delivery._Delivery, "_search", searched)


@breaks("NS-REQ-01")
def needs_the_name_of_the_node(patch: Patch) -> None:
    """Judge a plugin by an extra that Kubernetes 1.29 does not send."""
    judge = admission.judge_store_status

    def judged(requester: Any, store_name: str, plugin: str) -> Any:
        found = judge(requester, store_name, plugin)
        if isinstance(found, admission.BoundPod):
            return admission._deny_status(admission.OWN_NODE)
        return found

    patch.setattr(webhooks, "judge_store_status", judged)


@breaks("NS-REQ-05")
def fetches_files_past_the_proxy(patch: Patch) -> None:
    """Take the proxy for listings, and the straight way for content."""
    manager = Http._manager
    patch.setattr(Http, "_manager", lambda self, _proxy: manager(self, ""))
