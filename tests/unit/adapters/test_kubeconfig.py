"""Every kubeconfig that cannot be used: the file, what is wrong in it, and never its token."""

from __future__ import annotations

import base64
import copy
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpustack_delivery.adapters.kube import KubeClient, connect
from gpustack_delivery.errors import ConfigurationFault, Unreachable
from gpustack_delivery.httpd.certificates import Authority
from gpustack_delivery.vocabulary.resources import CONFIG_MAPS

TOKEN = "canary-4711"
WRONG: tuple[object, ...] = (None, 5, "", "no such \N{SNOWMAN}\n", [], [5], {}, {"name": 5}, True)


@pytest.fixture(scope="module")
def good() -> dict[str, Any]:
    """Return a kubeconfig with every kind of entry that is read."""
    pem = base64.b64encode(Authority("test").certificate_pem.encode()).decode()
    cluster = {
        "server": "https://127.0.0.1:1",
        "certificate-authority-data": pem,
        "tls-server-name": "api",
        "proxy-url": "http://127.0.0.1:2",
    }
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": {"token": TOKEN}}],
    }


def refusal(path: str) -> str:
    """Return the one line that refuses a kubeconfig."""
    with pytest.raises(ConfigurationFault) as caught:
        connect(path)
    said = str(caught.value)
    assert said.startswith("the kubeconfig ")
    assert TOKEN not in said + caught.value.detail
    return said


def _no_context(path: Path) -> None:
    path.write_text("clusters: []\n")


def _locked(path: Path) -> None:
    path.write_bytes(b"")
    path.unlink()
    path.symlink_to(path)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda path: None, "does not exist"),
        (lambda path: path.mkdir(), "is a folder"),
        (lambda path: path.write_text(""), "is empty"),
        (lambda path: path.write_text("a: [\n"), "is not YAML (line 2)"),
        (lambda path: path.write_text("[" * 500 + "]" * 500), "is not YAML"),
        (lambda path: path.write_bytes(b"\xff\xfe\x00"), "is not YAML"),
        (lambda path: path.write_text("just words"), "is no kubeconfig"),
        (_no_context, "has no `current-context`"),
        (_locked, "cannot be read: Too many levels"),
    ],
)
def test_a_file_that_is_none(make: Callable[[Path], object], said: str, tmp_path: Path) -> None:
    """The line names the file and what it is instead."""
    path = tmp_path / "\N{GREEK SMALL LETTER KAPPA}ube config"
    make(path)
    found = refusal(str(path))
    assert str(path) in found
    assert said in found


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"current-context": "other"}, "no entry 'other' among its `contexts`"),
        ({"clusters": []}, "no entry 'c' among its `clusters`"),
        ({"contexts": 5}, "at `contexts`: it must be a list"),
        ({"contexts": [{}]}, "at `contexts[0]`: it must have a name"),
        ({"clusters": [{"name": "c", "cluster": {}}]}, "`server` of the cluster 'c'"),
        ({"clusters": [{"name": "c", "cluster": {"server": "host"}}]}, "an absolute http or https"),
        (
            {"users": [{"name": "u", "user": {"client-key-data": "abc", "token": TOKEN}}]},
            "`client-key-data`: it must be base64",
        ),
        (
            {"users": [{"name": "u", "user": {"client-certificate": "gone.crt"}}]},
            "names a `client-certificate` that is no file",
        ),
    ],
)
def test_a_wrong_entry_is_named(
    changes: dict[str, object], said: str, good: dict[str, Any], tmp_path: Path
) -> None:
    """With its place in the file."""
    path = tmp_path / "config"
    path.write_text(yaml.safe_dump(good | changes))
    assert said in refusal(str(path))


def places(value: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield the place of every value in a document."""
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else ()
    for key, inner in (*items, *(enumerate(value) if isinstance(value, list) else ())):
        yield from places(inner, (*path, key))


def test_any_wrong_value_anywhere_is_used_or_refused(good: dict[str, Any], tmp_path: Path) -> None:
    """No value at any place leads to another error than the one line, and none shows the token."""
    path = tmp_path / "config"
    refused: list[tuple[object, ConfigurationFault]] = []
    for place in places(good):
        for wrong in WRONG:
            body = copy.deepcopy(good)
            *parents, last = place
            spot: Any = body
            for step in parents:
                spot = spot[step]
            spot[last] = wrong
            path.write_text(yaml.safe_dump(body))
            try:
                connect(str(path)).close()
            except ConfigurationFault as fault:
                refused.append((place, fault))
    assert len(refused) > 60
    for where, refusal_there in refused:
        assert str(path) in str(refusal_there), where
        assert TOKEN not in str(refusal_there) + refusal_there.detail, where


def test_several_files_are_one_kubeconfig(good: dict[str, Any], tmp_path: Path) -> None:
    """A fault names the file it stands in; one of several that is missing is none."""
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_text(yaml.safe_dump({"users": good["users"], "clusters": {}}))
    second.write_text(yaml.safe_dump({key: good[key] for key in good if key != "users"}))
    named = os.pathsep.join([str(tmp_path / "none"), str(first), str(second)])
    connect(named).close()
    first.write_text(yaml.safe_dump({"users": 5}))
    assert f"{first} is wrong at `users`" in refusal(named)


def test_who_does_not_answer_is_named(good: dict[str, Any], tmp_path: Path) -> None:
    """Host and port, and the system's own reason."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        cluster = {"server": f"https://{address}"}
        path = tmp_path / "config"
        path.write_text(yaml.safe_dump(good | {"clusters": [{"name": "c", "cluster": cluster}]}))
        kube: KubeClient = connect(str(path))
        with pytest.raises(Unreachable, match=f"at {address} does not answer: Connection refused"):
            kube.get(CONFIG_MAPS, "a", "ns")
        kube.close()
