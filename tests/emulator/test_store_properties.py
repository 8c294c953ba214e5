"""What holds for any history of writes: pages are one moment, watches add up to the state."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.api import ADMIN, Api, Target
from emulator.contracts import ListOptions
from emulator.errors import ApiError
from tests.emulator.replay import SteppingClock

Json = dict[str, Any]
Step = tuple[str, str, str, str]  # what, namespace, name, label

NAMESPACES = ("default", "kube-public")
STEPS = st.lists(
    st.tuples(
        st.sampled_from(("write", "write", "delete")),
        st.sampled_from(NAMESPACES),
        st.sampled_from(("a", "a-b", "a.b", "b", "c")),
        st.sampled_from(("x", "y", "")),
    ),
    max_size=25,
)
SELECTORS = st.sampled_from(("", "app", "app=x", "app!=x", "app in (x,y)", "!app"))


@contextmanager
def maps() -> Iterator[tuple[Api, Target]]:
    """Run a bare server; give it and the collection of ConfigMaps."""
    api = Api(SteppingClock(), controllers=False)
    try:
        yield api, Target(api.resource("", "v1", "configmaps"))
    finally:
        api.close()


def act(api: Api, collection: Target, steps: list[Step]) -> None:
    """Do the steps; deleting what is not there is no step."""
    for what, namespace, name, label in steps:
        target = Target(collection.resource, namespace, name)
        if what == "write":
            _write(api, target, label)
        else:
            with contextlib.suppress(ApiError):
                api.delete(ADMIN, target)


def _write(api: Api, target: Target, label: str) -> None:
    metadata: Json = {"name": target.name, "labels": {"app": label} if label else {}}
    try:
        api.update(ADMIN, target, {"metadata": metadata})
    except ApiError:
        api.create(ADMIN, Target(target.resource, target.namespace), {"metadata": metadata})


def state(items: Any) -> dict[tuple[str, str], str]:
    """Return which objects there are, and at which versions."""
    metadata = (one["metadata"] for one in items)
    return {(one["namespace"], one["name"]): one["resourceVersion"] for one in metadata}


@given(before=STEPS, between=st.lists(STEPS, max_size=6), limit=st.integers(1, 3), chosen=SELECTORS)
@settings(max_examples=80, deadline=None)
def test_pages_show_one_moment(
    before: list[Step], between: list[list[Step]], limit: int, chosen: str
) -> None:
    """However much is written between two pages, all pages together are the list at its start."""
    with maps() as (api, collection):
        act(api, collection, before)
        whole = api.list(collection, ListOptions(label_selector=chosen))
        items: list[Json] = []
        token = ""
        waiting = iter(between)
        while True:
            page = api.list(
                collection, ListOptions(label_selector=chosen, limit=limit, continue_token=token)
            )
            assert len(page.items) <= limit
            assert page.resource_version == whole.resource_version
            items.extend(page.items)
            token = page.continue_token
            if not token:
                break
            act(api, collection, next(waiting, []))
        assert [one["metadata"]["uid"] for one in items] == [
            one["metadata"]["uid"] for one in whole.items
        ]
        assert state(items) == state(whole.items)


@given(before=STEPS, after=STEPS, chosen=SELECTORS, namespace=st.sampled_from(("", *NAMESPACES)))
@settings(max_examples=80, deadline=None)
def test_a_watch_adds_up_to_the_state(
    before: list[Step], after: list[Step], chosen: str, namespace: str
) -> None:
    """A list, and the events of a watch from its version, give what a list gives afterwards."""
    with maps() as (api, collection):
        act(api, collection, before)
        scope = Target(collection.resource, namespace)
        start = api.list(scope, ListOptions(label_selector=chosen))
        known = state(start.items)
        options = ListOptions(label_selector=chosen, resource_version=start.resource_version)
        watch = api.watch(scope, options)
        act(api, collection, after)
        late = api.watch(scope, options)
        for stream in (watch, late):
            stream.close()
        events = [(event.type, event.object) for event in watch]
        assert events == [(event.type, event.object) for event in late]
        for type_, object_ in events:
            (place, version) = next(iter(state([object_]).items()))
            assert (type_ == "ADDED") == (place not in known)
            known[place] = version
            if type_ == "DELETED":
                del known[place]
        assert known == state(api.list(scope, ListOptions(label_selector=chosen)).items)


@given(steps=STEPS, limit=st.integers(0, 4))
@settings(max_examples=40, deadline=None)
def test_keys_come_in_the_order_of_a_real_store(steps: list[Step], limit: int) -> None:
    """Objects are listed by namespace and name as one path, as etcd orders its keys."""
    with maps() as (api, collection):
        act(api, collection, steps)
        listed = api.list(collection, ListOptions(limit=limit)).items
        places = [f"{one['metadata']['namespace']}/{one['metadata']['name']}" for one in listed]
        assert places == sorted(places)
