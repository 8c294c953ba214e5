"""The API as a leader: reads always, writes only while leading.

A pass that began before the Lease was lost may end after it; without this its write would meet the
next leader's.

Rule: NS-OWN-04.
"""

from __future__ import annotations

from collections.abc import Callable

from gpustack_delivery.errors import Unreachable
from gpustack_delivery.ports import Kube, Page, Selection, Watch
from gpustack_delivery.vocabulary.resources import Json, Resource


class FencedKube:
    """A `ports.Kube` that refuses to write when `leading` says no."""

    def __init__(self, kube: Kube, leading: Callable[[], bool]) -> None:
        self._kube = kube
        self._leading = leading

    def within(self, seconds: float) -> FencedKube:
        """Return the same for somebody in a hurry."""
        return FencedKube(self._kube.within(seconds), self._leading)

    def get(self, resource: Resource, name: str, namespace: str = "") -> Json:
        """Return one object."""
        return self._kube.get(resource, name, namespace)

    def list_page(self, selection: Selection, continue_token: str = "") -> Page:
        """Return one page of a collection."""
        return self._kube.list_page(selection, continue_token)

    def watch(self, selection: Selection, resource_version: str) -> Watch:
        """Open a watch."""
        return self._kube.watch(selection, resource_version)

    def get_raw(self, path: str, *, timeout_seconds: float) -> bytes:
        """Return the body of a path."""
        return self._kube.get_raw(path, timeout_seconds=timeout_seconds)

    def create(self, resource: Resource, body: Json, namespace: str = "") -> Json:
        """Create an object."""
        return self._writer().create(resource, body, namespace)

    def update(self, resource: Resource, body: Json, *, subresource: str = "") -> Json:
        """Replace an object."""
        return self._writer().update(resource, body, subresource=subresource)

    def apply(
        self, resource: Resource, body: Json, *, field_manager: str, subresource: str = ""
    ) -> Json:
        """Apply a partial object."""
        return self._writer().apply(
            resource, body, field_manager=field_manager, subresource=subresource
        )

    def merge_patch(
        self,
        resource: Resource,
        name: str,
        patch: Json,
        namespace: str = "",
        *,
        subresource: str = "",
    ) -> Json:
        """Patch an object."""
        return self._writer().merge_patch(resource, name, patch, namespace, subresource=subresource)

    def delete(self, resource: Resource, name: str, namespace: str = "", *, uid: str = "") -> None:
        """Delete an object."""
        self._writer().delete(resource, name, namespace, uid=uid)

    def _writer(self) -> Kube:
        if not self._leading():
            raise Unreachable("this replica no longer leads; the next leader takes this up")
        return self._kube
