"""`python -m emulator`: a cluster and a hub on a terminal, and one line for what cannot be done."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from emulator.__main__ import main
from tests.emulator.http_client import HttpClient
from tests.emulator.webhook_rig import RecordedHook, recorded_hook

HOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
MAPS = "/api/v1/namespaces/default/configmaps"
RULE = {
    "apiGroups": [""],
    "apiVersions": ["v1"],
    "resources": ["configmaps"],
    "operations": ["CREATE"],
}


@contextmanager
def started(*arguments: str) -> Iterator[list[str]]:
    """Run a command until it stays; yield the lines it said, and end it by a signal."""
    command = [sys.executable, "-m", "emulator", *arguments]
    process = subprocess.Popen(  # noqa: S603 - our own program
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    with process:
        wanted = 2 + sum(argument == "--hub" for argument in arguments)
        try:
            yield [process.stdout.readline().strip() for _ in range(wanted)]
        finally:
            process.send_signal(signal.SIGTERM)
            _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (0, "")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Return a folder to serve."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}", "utf-8")
    return folder


def test_up_says_how_to_reach_it_and_goes_on_a_signal(model: Path) -> None:
    """The first line is a kubeconfig; the folder of the cluster is gone afterwards."""
    with started("up", "--nodes", "2", "--gpu-labels", "--hub", f"{model}=org/name") as lines:
        kubeconfig = Path(lines[0])
        content = json.loads(kubeconfig.read_text("utf-8"))
        server = content["clusters"][0]["cluster"]["server"]
        assert lines[1] == f"kubernetes v1.30 at {server}"
        url = f"{lines[2].split()[1]}/org/name/resolve/main/config.json"
        with urllib.request.urlopen(url, timeout=30) as answer:  # noqa: S310 - ours
            assert answer.read() == b"{}"
    assert not kubeconfig.parent.exists()


def test_a_second_signal_changes_nothing(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever presses Ctrl-C twice, or kills on top of it, sees no traceback."""
    here, numbers = threading.get_ident(), (signal.SIGINT, signal.SIGTERM)
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    held = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        for number in numbers:
            signal.pthread_kill(here, number)
        assert main(["hub", "serve", str(model)]) == 0
        assert not signal.sigpending()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, held)
        signal.signal(signal.SIGTERM, before)
    assert "serves" in capsys.readouterr().out


def test_a_chart_is_applied_with_values(tmp_path: Path) -> None:
    """`--set` reaches the chart's templates before anything is applied."""
    (tmp_path / "templates").mkdir()
    (tmp_path / "Chart.yaml").write_text("apiVersion: v2\nname: sample\nversion: 1.2.3\n", "utf-8")
    (tmp_path / "values.yaml").write_text("color: red\n", "utf-8")
    (tmp_path / "templates" / "map.yaml").write_text(
        "apiVersion: v1\nkind: ConfigMap\n"
        "metadata: {name: sample, namespace: {{ .Release.Namespace }}}\n"
        "data: {color: {{ .Values.color }}}\n",
        "utf-8",
    )
    arguments = ["--chart", str(tmp_path), "--set", "color=blue", "--namespace", "default"]
    with started("up", *arguments) as lines:
        status, answer = HttpClient(Path(lines[0])).send("GET", f"{MAPS}/sample")
    assert (status, answer["data"]) == (200, {"color": "blue"})


@pytest.fixture
def hook() -> Iterator[RecordedHook]:
    """Serve webhooks for Service hook."""
    with recorded_hook("hook.default.svc") as opened:
        yield opened


def test_a_program_elsewhere_is_reached_by_a_route(hook: RecordedHook) -> None:
    """A webhook whose Service has a route is called where the route leads."""
    service = {"namespace": "default", "name": "hook", "path": "/deny-plain"}
    webhook = {
        "name": "hook.example.io",
        "clientConfig": hook.config({"service": service}),
        "rules": [RULE],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    configuration = {"metadata": {"name": "hook"}, "webhooks": [webhook]}
    with started("up", "--route", f"default/hook={hook.address}") as lines:
        client = HttpClient(Path(lines[0]))
        assert client.send("POST", HOOKS, configuration)[0] == 201
        status, answer = client.send("POST", MAPS, {"metadata": {"name": "m"}})
    assert status == 400
    assert "denied the request: plain denial message" in answer["message"]


def test_hub_serve(model: Path) -> None:
    """A hub alone prints its endpoint first and serves the folder under a name of its own."""
    with started("hub", "serve", str(model)) as lines:
        assert lines[1] == f"serves {model} as local/model"
        url = f"{lines[0]}/local/model/resolve/main/config.json"
        with urllib.request.urlopen(url, timeout=30) as answer:  # noqa: S310 - ours
            assert answer.read() == b"{}"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["up", "--hub", "nowhere"], "write it as DIR=ORG/NAME"),
        (["up", "--hub", "dir=name"], "write it as DIR=ORG/NAME"),
        (["up", "--hub", "{tmp}/none=org/name"], "none"),
        (["up", "--chart", "{tmp}"], "has no Chart.yaml"),
        (["up", "--kubernetes", "one"], "choose one from 1.29 to 1.36"),
        (["up", "--route", "team-a/hook"], "write it as NS/SERVICE=HOST:PORT"),
        (["up", "--route", "hook=127.0.0.1:1"], "write it as NS/SERVICE=HOST:PORT"),
        (["hub", "serve", "{tmp}/none"], "none"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    tmp_path: Path, arguments: list[str], message: str
) -> None:
    """Wrong input ends with status 2 and one line, and nothing is left behind."""
    given = [argument.replace("{tmp}", str(tmp_path)) for argument in arguments]
    done = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-m", "emulator", *given],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={"TMPDIR": str(tmp_path), "PYTHONPATH": str(Path.cwd())},
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("emulator: ")
    assert message in done.stderr
    assert list(tmp_path.iterdir()) == []
