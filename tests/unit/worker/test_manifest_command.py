"""`gpustack-delivery manifest`: what it prints, and its one clear line for everything else."""

from __future__ import annotations

import argparse
import hashlib
import socket
from collections.abc import Sequence
from pathlib import Path

import pytest

from gpustack_delivery.__main__ import main
from gpustack_delivery.httpd.certificates import Authority
from gpustack_delivery.redaction import Token
from gpustack_delivery.vocabulary.artifact import HubKind
from gpustack_delivery.vocabulary.manifest import Manifest
from gpustack_delivery.worker import manifest_command
from tests.unit.worker.fake_hub import FakeHub


def run(arguments: Sequence[str]) -> int:
    """Run the command through the program's own entry."""
    return main(["manifest", *arguments])


def test_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Digest, count and size, and with --lines the manifest before them."""
    (tmp_path / "config.json").write_bytes(b"{}")
    (tmp_path / "notes.md").write_bytes(b"# notes")
    assert run([str(tmp_path), "--ignore", "*.md", "--lines"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "gpustack-manifest v1"
    assert lines[1].endswith(" 2 config.json")
    assert lines[2].startswith("digest sha256:")
    assert lines[3:] == ["files  1", "bytes  2"]


def test_folder_from_model_scope(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """ModelScope knows every file by its SHA-256; what its client leaves beside them is no file."""
    (tmp_path / "config.json").write_bytes(b"{}")
    for name in (".msc", ".mdl", ".mv", "._____temp/part"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    assert run([str(tmp_path), "--hub", "modelscope", "--lines"]) == 0
    digest = hashlib.sha256(b"{}").hexdigest()
    assert capsys.readouterr().out.splitlines()[1:2] == [f"sha256:{digest} 2 config.json"]
    assert run([str(tmp_path), "--hub", "huggingface"]) == 0
    assert "files  5" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("make", "status", "said"),
    [
        (lambda folder: None, 2, "holds no file"),
        (lambda folder: (folder / "a\nb").write_bytes(b""), 1, "control character"),
        (lambda folder: (folder / "odd").symlink_to("nowhere"), 1, "cannot be read"),
        (lambda folder: folder.rmdir(), 2, "neither a folder that exists nor a repository"),
    ],
    ids=["empty", "hostile name", "unreadable", "missing"],
)
def test_bad_folders(
    make: object, status: int, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each is one line on standard error and a non-zero exit, and nothing else is printed."""
    folder = tmp_path / "model"
    folder.mkdir()
    make(folder)  # type: ignore[operator]
    assert run([str(folder)]) == status
    captured = capsys.readouterr()
    assert captured.out == ""
    assert said in captured.err
    assert captured.err.count("\n") == 1


def test_names_with_odd_characters(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What a path may hold, it may hold here too."""
    for name in ("a#b", "a%41b", "a b", "a\N{GRINNING FACE}b"):
        (tmp_path / name).write_bytes(b"")
    assert run([str(tmp_path)]) == 0
    assert "files  4" in capsys.readouterr().out


def test_repository(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A repository is resolved and listed once, with the token of the environment."""
    hub = FakeHub()
    monkeypatch.setattr(manifest_command, "open_hub", hub.open)
    monkeypatch.setenv("HF_TOKEN", "hf_secret\n")
    assert run(["org/model@v1", "--endpoint", "http://mirror", "--allow", "*.json"]) == 0
    assert hub.calls == ["resolve org/model@v1", "list org/model@cccc"]
    assert hub.tokens[0] == Token("hf_secret")
    assert hub.opened[0][1].hugging_face_endpoint == "http://mirror"
    out = capsys.readouterr().out
    assert Manifest.of(hub.entries[:1]).digest in out
    assert "hf_secret" not in out


@pytest.mark.parametrize("value", ["a\nb", "\N{SNOWMAN}", "a\x1b"])
def test_a_token_that_is_none(
    value: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The variable is named, and its value is not shown."""
    monkeypatch.setattr(manifest_command, "open_hub", FakeHub().open)
    monkeypatch.setenv("HF_TOKEN", value)
    assert run(["org/model"]) == 2
    said = "$HF_TOKEN holds what no token does: set it again, or unset it"
    assert capsys.readouterr().err == f"gpustack-delivery manifest: {said}\n"


def test_a_hub_that_does_not_answer(capsys: pytest.CaptureFixture[str]) -> None:
    """Its address and the system's reason are said."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{unused.getsockname()[1]}"
        assert run(["org/model", "--endpoint", endpoint]) == 1
    said = (
        f"{endpoint} org/model: a connection that was refused (ConnectionRefusedError ECONNREFUSED)"
    )
    assert capsys.readouterr().err == f"gpustack-delivery manifest: {said}\n"


def test_repository_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a revision the hub's default branch is meant, and without a token nobody is."""
    hub = FakeHub()
    monkeypatch.setattr(manifest_command, "open_hub", hub.open)
    monkeypatch.delenv("HF_TOKEN", raising=False)
    assert run(["org/model"]) == 0
    assert hub.calls[0] == "resolve org/model@main"
    assert hub.tokens == [None, None]
    assert hub.opened[0][1].hugging_face_endpoint == "https://huggingface.co"


def test_model_scope_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    """--hub picks the hub, and with it the endpoint, the default branch and whose token is used."""
    hub = FakeHub()
    monkeypatch.setattr(manifest_command, "open_hub", hub.open)
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.setenv("MODELSCOPE_API_TOKEN", "ms_secret")
    assert run(["org/model", "--hub", "modelscope", "--endpoint", "http://mirror"]) == 0
    kind, access, _ = hub.opened[0]
    assert (kind, access.model_scope_endpoint) == (HubKind.MODEL_SCOPE, "http://mirror")
    assert hub.calls[0] == "resolve org/model@master"
    assert hub.tokens == [Token("ms_secret")] * 2


def test_hub_flag_asks_the_hub_even_where_a_folder_has_the_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Whoever names a hub means its repository."""
    hub = FakeHub()
    monkeypatch.setattr(manifest_command, "open_hub", hub.open)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "org" / "model").mkdir(parents=True)
    assert run(["org/model", "--hub", "huggingface"]) == 0
    assert hub.opened[0][0] is HubKind.HUGGING_FACE


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["org/model", "--endpoint", "ftp://h"], 2, "--endpoint must be"),
        (["org/model", "--ca-file", "/missing.pem"], 2, "--ca-file"),
        (["../etc"], 2, "neither a folder"),
        (["a/b/c"], 2, "neither a folder"),
        (["org/model@"], 2, "names no revision after its @"),
        (["org/model@x y"], 2, "the revision of 'org/model@x y' must be a branch"),
        (["org/model", "--allow", ""], 2, "--allow must be 1 to 256 characters"),
        ([".", "--hub", "modelscope", "--endpoint", "http://mirror"], 2, "leave --endpoint away"),
        ([".", "--endpoint", "http://mirror"], 2, "leave --endpoint away to read the folder"),
        (["a b", "--hub", "modelscope"], 2, "'a b' is not a repository such as"),
    ],
)
def test_bad_repositories(
    arguments: list[str],
    status: int,
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A bad flag is named before anything is asked."""
    monkeypatch.setattr(manifest_command, "open_hub", FakeHub().open)
    assert run(arguments) == status
    assert said in capsys.readouterr().err


def test_hub_faults_are_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Which hub was asked for what, and its verdict's words."""
    hub = FakeHub()
    hub.down()
    monkeypatch.setattr(manifest_command, "open_hub", hub.open)
    assert run(["org/model"]) == 1
    said = "https://huggingface.co org/model: HTTP 503"
    assert capsys.readouterr().err == f"gpustack-delivery manifest: {said}\n"


@pytest.mark.parametrize(
    ("arguments", "added"),
    [
        (["gpt2"], "; 'gpt2' is no folder here, and so it was taken for a repository"),
        (["gpt2", "--hub", "huggingface"], ""),
    ],
)
def test_a_name_without_a_slash_may_be_a_mistyped_folder(
    arguments: list[str],
    added: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It is asked of the hub, and when that fails, it is said why; a flag shows what was meant."""
    hub = FakeHub()
    hub.down()
    monkeypatch.setattr(manifest_command, "open_hub", hub.open)
    assert run(arguments) == 1
    said = f"https://huggingface.co gpt2: HTTP 503{added}"
    assert capsys.readouterr().err == f"gpustack-delivery manifest: {said}\n"


def test_ca_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A CA file is handed to the hub's connection as it is."""
    hub = FakeHub()
    monkeypatch.setattr(manifest_command, "open_hub", hub.open)
    file = tmp_path / "ca.pem"
    pem = Authority("test").certificate_pem
    file.write_text(pem)
    assert run(["org/model", "--ca-file", str(file)]) == 0
    assert hub.opened[0][2] == pem


def test_help_names_every_flag() -> None:
    """The parser is complete: every documented flag is there."""
    parser = argparse.ArgumentParser()
    manifest_command.add_arguments(parser)
    text = parser.format_help()
    for flag in ("--hub", "--endpoint", "--ca-file", "--allow", "--ignore", "--lines"):
        assert flag in text
