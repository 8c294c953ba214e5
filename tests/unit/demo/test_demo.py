"""The demo as its users start it: the whole story once, and every folder that cannot be served."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import numpy as np
import pytest
from safetensors.numpy import save_file

from gpustack_delivery.__main__ import main
from gpustack_delivery.adapters.kube import connect
from gpustack_delivery.demo.model import read_tensors
from gpustack_delivery.vocabulary.resources import PODS

COMMAND: Final = (sys.executable, "-W", "error", "-m", "gpustack_delivery", "demo")


def demo(*arguments: str, environment: dict[str, str] | None = None) -> tuple[int, str, str]:
    """Run the command in a process of its own; return its status, output and complaints."""
    done = subprocess.run(  # noqa: S603 - the project's own command
        [*COMMAND, *arguments],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
        env={**os.environ, **(environment or {})},
    )
    return done.returncode, done.stdout, done.stderr


def test_odd_names_are_delivered_like_any_other(tmp_path: Path) -> None:
    """Names that URLs must escape are delivered; the last line tells the outcome."""
    for name in ("we ird#1.txt", "100%.txt", "sub dir/😀+é?.bin", "model.safetensors"):
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        if name.endswith(".safetensors"):
            save_file({"weights": np.arange(1000, dtype=np.float32)}, file)
        else:
            file.write_bytes(name.encode())
    status, output, complaints = demo("--model-dir", str(tmp_path), "--json")
    assert complaints == ""
    outcome = json.loads(output.splitlines()[-1])
    size = sum(file.stat().st_size for file in tmp_path.rglob("*") if file.is_file())
    assert status == 0
    assert outcome["ok"] is True
    assert outcome["nodes"] == 2
    assert outcome["mounts"] == {"materialized": 2, "hit": 1, "denied": 1}
    assert outcome["modelBytes"] == size
    assert outcome["hubBytes"] == 2 * size
    lines = [line.split() for line in output.splitlines()]
    stores = lines.index(["$", "kubectl", "get", "nms"]) + 1
    assert lines[stores] == ["NAME", "READY", "USED", "MODELS", "DOWNLOADING"]
    assert [(row[0], row[3]) for row in lines[stores + 1 : stores + 3]] == [
        ("node-a", "1"),
        ("node-b", "1"),
    ]
    artifacts = lines.index(["$", "kubectl", "get", "mart", "-n", "team-a"]) + 1
    assert lines[artifacts][:4] == ["NAME", "SOURCE", "REVISION", "SIZE"]
    assert lines[artifacts + 1][:2] == ["minilm", "huggingFace:demo/model"]
    assert lines[artifacts + 1][-1] == "True"
    (progress,) = (line for line in output.splitlines() if '"ModelArtifactProgress"' in line)
    assert json.loads(progress)["ready"] == 2
    assert json.loads(progress)["downloading"] == 0


def test_sigterm_leaves_nothing_behind() -> None:
    """Told to stop while the worker and the plugins run, the demo takes its folders away."""
    with (
        TemporaryDirectory(prefix="demo-") as temporary,  # a socket's path must stay short
        subprocess.Popen(  # noqa: S603 - the project's own command
            COMMAND,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "TMPDIR": temporary},
        ) as process,
    ):
        assert process.stdout is not None
        assert any(line.startswith("2. ") for line in process.stdout)
        assert list(Path(temporary).iterdir())
        process.terminate()
        _, complaints = process.communicate(timeout=60)
        assert process.returncode == 130, complaints
        assert not list(Path(temporary).iterdir())


def test_a_demo_that_stays_can_be_used(tmp_path: Path) -> None:
    """After the story the cluster answers whoever has its kubeconfig; a signal ends it well."""
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    with subprocess.Popen(  # noqa: S603 - the project's own command
        [*COMMAND, "--model-dir", str(model), "--json", "--stay"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:  # the outcome is the last line, and the pipe stays open
            lines.append(line)
            if line.startswith("{"):
                break
        assert json.loads(lines[-1])["ok"] is True
        (export,) = (line.strip() for line in lines if "export KUBECONFIG=" in line)
        kubeconfig = Path(export.removeprefix("export KUBECONFIG="))
        pod = connect(str(kubeconfig)).get(PODS, "first", "team-a")
        assert pod["status"]["phase"] == "Running"
        process.terminate()
        _, complaints = process.communicate(timeout=60)
        assert (process.returncode, complaints) == (0, "")
        assert not kubeconfig.exists()


def _missing(folder: Path) -> Path:
    return folder / "nowhere"


def _file(folder: Path) -> Path:
    (folder / "model").write_bytes(b"x")
    return folder / "model"


def _newline(folder: Path) -> Path:
    (folder / "two\nlines").write_bytes(b"x")
    return folder


def _undecodable(folder: Path) -> Path:
    Path(os.fsdecode(os.fsencode(folder) + b"/\xff")).write_bytes(b"x")
    return folder


def _pipe(folder: Path) -> Path:
    os.mkfifo(folder / "pipe")
    return folder


def _socket(folder: Path) -> Path:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "s"))
    return folder


def _dangling(folder: Path) -> Path:
    (folder / "link").symlink_to("nowhere")
    return folder


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (_missing, "is not there"),
        (_file, "is a file, not a folder"),
        (lambda folder: folder, "holds no file"),
        (_newline, "control character"),
        (_undecodable, "not valid UTF-8"),
        (_pipe, "neither a file nor a folder"),
        (_socket, "neither a file nor a folder"),
        (_dangling, "cannot be read"),
    ],
)
def test_folders_that_cannot_be_served_are_refused_first(
    make: Callable[[Path], Path],
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A folder that no repository can hold gets one line and a non-zero status at once."""
    status = main(["demo", "--model-dir", str(make(tmp_path))])
    captured = capsys.readouterr()
    assert status in {1, 2}
    assert captured.out == ""
    assert captured.err.startswith("gpustack-delivery demo: ")
    assert captured.err.count("\n") == 1
    assert said in captured.err


def test_socket_paths_that_are_too_long_are_refused(tmp_path: Path) -> None:
    """A temporary folder deeper than a socket's path may be gets one line, and nothing is left."""
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    deep = tmp_path / ("d" * 60) / ("e" * 60)
    deep.mkdir(parents=True)
    status, _, complaints = demo("--model-dir", str(model), environment={"TMPDIR": str(deep)})
    assert status == 2
    assert complaints.count("\n") == 1
    assert "107" in complaints
    assert list(deep.iterdir()) == []


def test_tensors_without_a_numpy_type_are_counted(tmp_path: Path) -> None:
    """A file of bfloat16 tensors is described without a mean."""
    header = json.dumps({"w": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]}}).encode()
    file = tmp_path / "model.safetensors"
    file.write_bytes(len(header).to_bytes(8, "little") + header + bytes(12))
    found = read_tensors(file)
    assert found is not None
    assert (found.count, found.parameters, found.mean) == (1, 6, None)


def test_weights_that_are_none_are_compared_as_bytes(tmp_path: Path) -> None:
    """A pointer in place of weights is delivered all the same, on an ASCII terminal too."""
    (tmp_path / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\n")
    ascii_only = {"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    status, output, complaints = demo("--model-dir", str(tmp_path), environment=ascii_only)
    assert (status, complaints) == (0, "")
    assert "every byte read through the mount" in output


def test_an_empty_name_is_no_folder(capsys: pytest.CaptureFixture[str]) -> None:
    """An unset variable in a script does not serve the current folder."""
    with pytest.raises(SystemExit) as end:
        main(["demo", "--model-dir", ""])
    assert end.value.code == 2
    assert "empty" in capsys.readouterr().err
