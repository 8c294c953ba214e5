"""The chart renders alike by Helm's own engine and by ours, and grants no right too many."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

import jsonschema
import pytest
import yaml

from tests.house.charts import CHART, HELMS, RELEASE, VALUES, helms, ours


@pytest.mark.parametrize("major", HELMS)
@pytest.mark.parametrize("name", VALUES)
def test_both_engines_agree(name: str, major: str) -> None:
    """Helm and the emulator's renderer give the same objects for the same values."""
    expected, found = helms(major, VALUES[name]), ours(VALUES[name])
    assert found.keys() == expected.keys()
    for key in expected:
        assert found[key] == expected[key], key


@pytest.mark.parametrize("name", VALUES)
def test_values_fit_their_schema(name: str) -> None:
    """The defaults, and every variant tried here laid over them, satisfy values.schema.json."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    jsonschema.Draft7Validator.check_schema(schema)
    jsonschema.validate(_over(defaults, VALUES[name]), schema)


@pytest.mark.parametrize(
    "wrong",
    [
        {"modelManager": {"kubeletDir": "kubelet"}},
        {"modelManager": {"rootPath": "/var/../etc"}},
        {"modelManager": {"securePort": 0}},
        {"worker": {"replicas": 0}},
        {"worker": {"webhookPort": 443}},
        {"publicApi": {"port": 443}},
        {"volumeWebhook": {"namespaceSelector": {"labels": {}}}},
        {"modelManager": {"maxUnavailable": "many"}},
        {"modelManager": {"env": {"HTTP_PROXY": "http://proxy"}}},
        {"modelmanager": {}},
        {"publicApi": None},
        {"volumeWebhook": None},
    ],
)
def test_wrong_values_are_refused(wrong: Mapping[str, Any]) -> None:
    """Wrong paths, ports and types, misspelled keys and what is taken away fail the schema."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(_over(defaults, wrong), schema)


def test_every_value_is_used() -> None:
    """No default stands in values.yaml that no template reads."""
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    templates = "".join(path.read_text() for path in (CHART / "templates").iterdir())
    for path in _paths(defaults):
        root = ".".join(path[:2])
        assert f".Values.{root}" in templates, f"{root} is set in values.yaml and used nowhere"


def _over(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        below = merged.get(key)
        nested = isinstance(value, dict) and isinstance(below, dict)
        merged[key] = _over(below, value) if nested and below is not None else value
    return merged


def _paths(tree: Mapping[str, Any], before: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key, value in tree.items():
        if isinstance(value, dict) and len(before) < 1:
            yield from _paths(value, (*before, key))
        else:
            yield (*before, key)


def rules_of(account: str, values: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
    """Return every RBAC rule that reaches a ServiceAccount, with the namespace it holds in."""
    objects = ours(values or {})
    found = []
    for item in objects.values():
        subjects = item.get("subjects", [])
        if not any(subject["name"] == f"{RELEASE}-{account}" for subject in subjects):
            continue
        role = objects[f"{item['roleRef']['kind']} {item['roleRef']['name']}"]
        scope = item["metadata"].get("namespace", "")
        found += [{**rule, "namespace": scope} for rule in role["rules"]]
    return found


@pytest.mark.parametrize("account", ["worker", "model-manager"])
def test_no_right_is_a_wildcard(account: str) -> None:
    """No rule grants a group, a resource or a verb by a star, and none grants escalation."""
    rules = rules_of(account)
    assert rules
    for rule in rules:
        words = [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]
        assert not {"*", "escalate", "bind", "impersonate"}.intersection(words), rule


PEERS: Final = {"tokenreviews", "pods"}


@pytest.mark.parametrize(("port", "more"), [(0, set()), (32445, PEERS)], ids=["alone", "peers"])
def test_the_plugin_reads_no_secret_and_no_proxy(port: int, more: set[str]) -> None:
    """The plugin has no Secrets and no nodes/proxy; peers' Pods and tokens only with a port."""
    rules = rules_of("model-manager", {"modelManager": {"port": port}})
    resources = {resource for rule in rules for resource in rule["resources"]}
    own = {"modelartifacts", "nodemodelstores", "nodemodelstores/status", "configmaps"}
    assert resources == own | more
    writes = {
        (resource, verb)
        for rule in rules
        for resource in rule["resources"]
        for verb in set(rule["verbs"]) - {"get", "list", "watch"}
    }
    reviews = {("tokenreviews", "create")} if more else set()
    assert writes == {("nodemodelstores/status", "update")} | reviews
    cluster_wide = [rule for rule in rules if not rule["namespace"]]
    assert not [rule for rule in cluster_wide if "pods" in rule["resources"]]


def test_the_worker_writes_secrets_only_where_it_lives() -> None:
    """The worker reads Secrets anywhere and changes none beyond its own namespace."""
    for rule in rules_of("worker"):
        if "secrets" in rule["resources"] and not rule["namespace"]:
            assert set(rule["verbs"]) <= {"get", "list", "watch"}
