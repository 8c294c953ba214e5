"""What is wrong with a kubeconfig that could not be used: the file, the place in it, what to do.

The library that reads kubeconfigs lets its parsers' errors through, and its own texts may repeat a
whole user entry with its token. So nothing of its errors is shown: `kube` asks here instead, and
the files are read again with nothing else in mind.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from gpustack_delivery.decisions.addresses import endpoint_fault

_LISTS: Final = ("clusters", "contexts", "users")
_FILES: Final = ("certificate-authority", "client-certificate", "client-key", "tokenFile")
_DATA: Final = tuple(f"{name}-data" for name in _FILES[:3])


class _Wrong(Exception):
    """Something found; the text follows the words `the kubeconfig`."""


def kubeconfig_fault(named: str) -> str:
    """Say what keeps kubeconfig files from being used, in words that follow `the kubeconfig`.

    Args:
        named: one path, or several with colons between them, as in $KUBECONFIG.
    """
    try:
        files = [Path(path).expanduser() for path in named.split(os.pathsep) if path]
        present = [str(file) for file in files if os.path.lexists(file)]
        if not present:
            return f"{named} does not exist: name one that does"
        merged: dict[str, Any] = {}
        for file in present:
            _merge(merged, file, _read(file))
        _judge(present[-1], merged)
    except _Wrong as wrong:
        return str(wrong)
    return (
        f"{named} cannot be used: compare the user and the cluster of its current context with "
        "the documentation of kubeconfig files"
    )


def _read(file: str) -> Mapping[str, Any]:
    try:
        content = yaml.safe_load(Path(file).read_text(encoding="utf-8"))
    except IsADirectoryError:
        raise _Wrong(f"{file} is a folder: name the file in it") from None
    except OSError as error:
        raise _Wrong(f"{file} cannot be read: {error.strerror}") from None
    except yaml.MarkedYAMLError as error:
        line = f" (line {error.problem_mark.line + 1})" if error.problem_mark else ""
        raise _Wrong(f"{file} is not YAML{line}") from None
    except (yaml.YAMLError, RecursionError, ValueError):
        raise _Wrong(f"{file} is not YAML") from None
    if content is None:
        raise _Wrong(f"{file} is empty: write it again, or name another")
    if not isinstance(content, dict):
        raise _Wrong(f"{file} is no kubeconfig: it holds no `clusters`, `contexts` and `users`")
    return content


def _merge(merged: dict[str, Any], file: str, content: Mapping[str, Any]) -> None:
    """Add one file's entries by name; the first of a name counts, and the last current context."""
    for key in _LISTS:
        known = merged.setdefault(key, {})
        for name, entry in _entries(file, key, content.get(key) or []):
            known.setdefault(name, (file, entry))
    if "current-context" in content:
        merged["current-context"] = content["current-context"]


def _entries(file: str, key: str, listed: object) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if not isinstance(listed, list):
        raise _Wrong(f"{file} is wrong at `{key}`: it must be a list")
    for number, item in enumerate(listed):
        name = item.get("name") if isinstance(item, dict) else None
        if not isinstance(name, str):
            raise _Wrong(f"{file} is wrong at `{key}[{number}]`: it must have a name that is text")
        entry = item.get(key[:-1])
        if not isinstance(entry, dict):
            raise _Wrong(f"{file} is wrong at `{key}[{number}].{key[:-1]}`: it must be a mapping")
        yield name, entry


def _judge(file: str, merged: Mapping[str, Any]) -> None:
    current = merged.get("current-context")
    if not isinstance(current, str) or not current:
        raise _Wrong(f"{file} has no `current-context`: set one with kubectl config use-context")
    where, context = _find(file, merged, "contexts", current)
    for key in ("cluster", "user"):
        if not isinstance(context.get(key), str):
            raise _Wrong(f"{where} is wrong at the context {current!r}: it must name a {key}")
    where, cluster = _find(where, merged, "clusters", context["cluster"])
    server = cluster.get("server")
    fault = endpoint_fault(server) if isinstance(server, str) else "must be a URL"
    if fault:
        raise _Wrong(
            f"{where} is wrong at `server` of the cluster {context['cluster']!r}: it {fault}"
        )
    _judge_files(where, cluster)
    where, user = _find(where, merged, "users", context["user"])
    _judge_files(where, user)


def _find(
    file: str, merged: Mapping[str, Any], key: str, name: str
) -> tuple[str, Mapping[str, Any]]:
    found: tuple[str, Mapping[str, Any]] | None = merged[key].get(name)
    if found is None:
        raise _Wrong(f"{file} has no entry {name!r} among its `{key}`")
    return found


def _judge_files(file: str, entry: Mapping[str, Any]) -> None:
    """Judge the files that an entry names and the content it carries in their place."""
    for key in (*_FILES, *_DATA, "token"):
        if key in entry and not isinstance(entry[key], str):
            raise _Wrong(f"{file} is wrong at `{key}`: it must be text")
    for key in _FILES:
        if entry.get(key) and f"{key}-data" not in entry:
            path = Path(file).parent / entry[key]
            if not path.is_file():
                raise _Wrong(f"{file} names a `{key}` that is no file: {path}")
    for key in _DATA:
        try:
            base64.b64decode(entry.get(key, ""))
        except (binascii.Error, ValueError):
            raise _Wrong(f"{file} is wrong at `{key}`: it must be base64") from None
