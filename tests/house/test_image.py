"""The image is built from what was tried: its dependencies, its programs, its user."""

from __future__ import annotations

import re
import tomllib

import yaml

from tests.house.charts import CHART, ours
from tests.house.tree import ROOT

_PIN = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)", re.MULTILINE)
_NAME = re.compile(r"^[A-Za-z0-9._-]+")


def pins(lock: str) -> dict[str, str]:
    """Return the version of every package that a lock file holds."""
    return dict(_PIN.findall((ROOT / "requirements" / lock).read_text("utf-8")))


def project() -> dict[str, list[str]]:
    """Return pyproject.toml's project table."""
    found: dict[str, list[str]] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))[
        "project"
    ]
    return found


def test_image_holds_the_versions_that_are_tested() -> None:
    """The image's lock is a part of the developers', and has all that the programs ask for."""
    run, dev = pins("run.lock"), pins("dev.lock")
    assert run.items() <= dev.items(), "run `make lock`"
    asked = {_NAME.findall(one)[0].lower() for one in project()["dependencies"]}
    assert asked <= run.keys()
    assert not {"pytest", "mypy", "jsonschema"} & run.keys()


def test_image_is_built_from_what_is_here() -> None:
    """Every path that the Dockerfile copies exists and is let into the build."""
    lines = (ROOT / "Dockerfile").read_text("utf-8").splitlines()
    let_in = set((ROOT / ".dockerignore").read_text("utf-8").splitlines())
    copied = [
        path
        for line in lines
        if line.startswith("COPY ") and "--from" not in line
        for path in line.split()[1:-1]
    ]
    assert copied
    for path in copied:
        assert (ROOT / path).exists(), path
        assert f"!{path}" in let_in, path
    version = next(re.findall(r"python:3\.(\d+)-", line) for line in lines if "PYTHON=" in line)
    assert int(version[0]) >= int(str(project()["requires-python"]).rpartition(".")[2])


def test_chart_starts_what_the_image_holds() -> None:
    """The containers' first arguments are commands of the image's entry point."""
    entry = 'ENTRYPOINT ["gpustack-delivery"]'
    assert entry in (ROOT / "Dockerfile").read_text("utf-8")
    assert (
        "gpustack-delivery"
        in tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["scripts"]
    )
    repository = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))["image"]["repository"]
    version = project()["version"]
    commands = set()
    for item in ours({}).values():
        if item["kind"] in {"DaemonSet", "Deployment"}:
            main = item["spec"]["template"]["spec"]["containers"][0]
            assert main["image"] == f"{repository}:{version}"
            commands.add(main["args"][0])
    assert commands == {"model-manager", "worker"}
