"""Every flag of every command with everything that is wrong for it: one line, and nothing done.

`FLAGS` has a row for each flag; a flag without one fails, so that a new flag brings its row.
"""

from __future__ import annotations

import importlib
import shutil
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Final

import pytest
import yaml

from gpustack_delivery.__main__ import COMMANDS, main
from gpustack_delivery.node import command as node_command
from gpustack_delivery.node import registrar
from gpustack_delivery.terminal import Parser
from gpustack_delivery.worker import command as worker_command
from gpustack_delivery.worker import operator

HUGE: Final = "9" * 5000
ODD: Final = "\N{CJK UNIFIED IDEOGRAPH-6A21}\n\x1b[31m\N{RIGHT-TO-LEFT OVERRIDE}\udcff"
NUMBER: Final = ("", " ", "x", "-3", "1.5", "0x10", "1e3", "\N{ARABIC-INDIC DIGIT FIVE}", HUGE, ODD)
PORT: Final = (*NUMBER, "65536")
NAME: Final = ("", "Big", "a b", "a/b", "..", "a\nb", "x" * 300, ODD)
OPTIONAL_NAME: Final = NAME[1:]
ADDRESS: Final = ("", "x", "localhost:1", "256.0.0.1", "1.2.3.4:80", "x" * 300, ODD)
PATH: Final = ("", "relative", "./here", ODD)
CHOICE: Final = ("", "x", "INFO", HUGE, ODD)
KUBECONFIG: Final = ("{missing}", "{folder}", "{empty}", "{loop}", "/" + HUGE, ODD)
URL: Final = ("x", "ftp://h", "http://", "http://u:p@h", "http://h?q", "http://h:99999999", ODD)
PATTERN: Final = ("", "x" * 300, "a\nb", ODD)

FLAGS: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    "model-manager": {
        "--node-name": NAME,
        "--namespace": NAME,
        "--kubelet-dir": (*PATH, "/" + HUGE, "{missing}", "{file}", "{loop}"),
        "--cache-root": (*PATH, "/", "{file}", "{folder}", "{loop}", "/" + HUGE, "/proc/none"),
        "--csi-socket": (*PATH[1:], "{file}", "{folder}", "{tmp}/" + "x" * 200, "/proc/none/s"),
        "--host": (*ADDRESS, "192.0.2.1"),
        "--secure-port": PORT,
        "--kubeconfig": KUBECONFIG,
        "--direct-writes": (),
        "--log-level": CHOICE,
        "--peer-sync-port": PORT,
        "--peer-sync-auth": CHOICE,
        "--peer-sync-service-account": OPTIONAL_NAME,
        "--peer-sync-token-file": PATH,
        "--peer-sync-max-serving-streams": (*NUMBER, "0", "1025"),
        "--peer-sync-streams-per-source": (*NUMBER, "0", "65"),
    },
    "registrar": {
        "--csi-address": (*PATH, "{missing}", "{folder}", "{file}", "/" + "x" * 300),
        "--registration-path": PATH[1:],
        "--plugins-registry": (*PATH, "{file}/below", "/proc/none", "/" + "x" * 300),
    },
    "verify": {
        "--cache-root": ("", " ", "{missing}", "{file}", "{folder}", "{loop}", HUGE, ODD),
        "DIGEST": ("", "sha256:", "sha256:" + "A" * 64, "../x", HUGE, ODD, "sha256:" + "0" * 64),
    },
    "worker": {
        "--namespace": NAME,
        "--model-manager-service-account": NAME,
        "--kubeconfig": KUBECONFIG,
        "--host": ADDRESS,
        "--webhook-port": PORT,
        "--webhook-service": NAME,
        "--webhook-configuration": OPTIONAL_NAME,
        "--public-api-service": OPTIONAL_NAME,
        "--public-api-port": PORT,
        "--certificate-directory": ("{missing}", "{file}", "{folder}", "{loop}", HUGE, ODD),
        "--run-consumers": (),
        "--complete-volumes": (),
        "--token-file": ("", "{missing}", "{folder}", "{empty}", "{loop}", HUGE, ODD),
        "--lease-seconds": (*NUMBER, "4", "3601"),
        "--log-level": CHOICE,
    },
    "manifest": {
        "DIR | REPOSITORY[@REVISION]": (
            *("", " ", "{missing}", "{file}", "{empty-folder}", "{loop}", HUGE, ODD),
            *("a/b@", "a/b@x y", "a/b@" + "x" * 300, "a/b/c", "../x", f"a/b@{ODD}"),
        ),
        "--hub": CHOICE,
        "--endpoint": URL,
        "--ca-file": ("{missing}", "{folder}", "{loop}", "{empty}", HUGE, ODD),
        "--allow": PATTERN,
        "--ignore": PATTERN,
        "--lines": (),
    },
    "volume": {
        "ARTIFACT": NAME,
        "--namespace": NAME,
        "--name": NAME,
        "--kubeconfig": KUBECONFIG,
    },
    "demo": {
        "--model-dir": ("", " ", "{missing}", "{file}", "{empty-folder}", "{loop}", HUGE, ODD),
        "--json": (),
        "--stay": (),
    },
}
GOOD: Final[dict[str, tuple[str, ...]]] = {
    "model-manager": (
        *("--node-name", "n", "--kubelet-dir", "{tmp}/kubelet", "--cache-root", "{tmp}/cache"),
        *("--csi-socket", "{tmp}/s", "--host", "127.0.0.1", "--secure-port", "0"),
        *("--kubeconfig", "{tmp}/kubeconfig"),
    ),
    "registrar": ("--csi-address", "{tmp}/none", "--plugins-registry", "{tmp}/registry"),
    "verify": ("--cache-root", "{tmp}/laid-out"),
    "worker": (
        *("--namespace", "n", "--model-manager-service-account", "a", "--host", "127.0.0.1"),
        *("--kubeconfig", "{tmp}/kubeconfig"),
    ),
    "manifest": (),
    "volume": ("--kubeconfig", "{tmp}/kubeconfig"),
    "demo": (),
}
POSITIONAL: Final = {"manifest": "{tmp}/model", "volume": "artifact"}


def parser_of(command: str) -> Parser:
    """Return a command's parser with its flags."""
    parser = Parser(prog=command)
    importlib.import_module(COMMANDS[command][0]).add_arguments(parser)
    return parser


def flags_of(parser: Parser) -> Iterator[str]:
    """Yield the long name of each flag, and what a positional is called."""
    for action in parser._actions:
        if action.dest != "help":
            yield action.option_strings[-1] if action.option_strings else str(action.metavar)


ROWS: Final = [(command, flag) for command, rows in FLAGS.items() for flag in rows]


def test_every_flag_has_its_row() -> None:
    """The table and the parsers name the same flags."""
    assert {name: sorted(flags_of(parser_of(name))) for name in COMMANDS} == {
        name: sorted(rows) for name, rows in FLAGS.items()
    }


def accepted() -> None:
    """Stand for what a process waits for once its flags were taken: no row gets so far."""
    raise AssertionError("the value was accepted and the process serves")


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with one of each; no process begins to wait in it."""
    for name in ("kubelet", "folder", "empty-folder", "registry", "model"):
        (tmp_path / name).mkdir()
    (tmp_path / "folder" / "content").write_text("x")
    (tmp_path / "model" / "config.json").write_text("{}")
    (tmp_path / "file").write_bytes(b"\xff\xfe\x00binary")
    (tmp_path / "empty").write_text("")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "laid-out" / "published").mkdir(parents=True)
    (tmp_path / "laid-out" / "layout").write_text("gpustack-model-store v1\n")
    kubeconfig = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
    }
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(kubeconfig))
    monkeypatch.chdir(tmp_path / "folder")
    monkeypatch.setattr("logging.basicConfig", lambda **_: None)
    monkeypatch.setattr(registrar, "DRIVER_SECONDS", 0.1)
    monkeypatch.setattr(operator, "_START_ATTEMPTS", 0)
    for module in (node_command, worker_command):
        monkeypatch.setattr(module, "ending", lambda: nullcontext(accepted))
    return tmp_path


def filled(world: Path, text: str) -> str:
    """Return a value with the world's places in it."""
    for name in ("missing", "file", "folder", "empty-folder", "empty", "loop"):
        text = text.replace(f"{{{name}}}", str(world / name))
    return text.replace("{tmp}", str(world))


def arguments(world: Path, command: str, flag: str, value: str) -> list[str]:
    """Return a command line that is right but for one value."""
    given = [command, *(filled(world, word) for word in GOOD[command])]
    value = filled(world, value)
    if not flag.startswith("--"):
        return [*given, "--", value]
    given += [f"{flag}={value}"]
    if flag.startswith("--peer-sync-") and flag != "--peer-sync-port":
        given.append("--peer-sync-port=1")
        given += [] if flag.endswith("account") else ["--peer-sync-service-account=a"]
    if command in POSITIONAL:
        positional = "a/b" if flag in ("--endpoint", "--ca-file") else POSITIONAL[command]
        given.append(filled(world, positional))
    return given


def shown(value: str) -> str:
    """Return the beginning of a value as a complaint shows it."""
    return repr(value)[1:-1][:60]


def ends(given: list[str]) -> int:
    """Run a command; return its status, whichever way it ends."""
    try:
        return main(given)
    except SystemExit as end:
        return int(end.code or 0)


@pytest.mark.parametrize(("command", "flag"), ROWS, ids=[" ".join(row) for row in ROWS])
def test_a_wrong_value_is_one_line(
    world: Path, capsys: pytest.CaptureFixture[str], command: str, flag: str
) -> None:
    """The line names the command and the flag; the status is not 0 and the disk is untouched."""
    before = sorted(world.rglob("*"))
    for value in FLAGS[command][flag]:
        status = ends(arguments(world, command, flag, value))
        out, err = capsys.readouterr()
        assert status in (1, 2), value
        assert out == "", value
        line = err.removesuffix("\n")
        assert line.startswith(f"gpustack-delivery {command}: "), (value, err)
        assert flag in line or (value and shown(filled(world, value)) in line), (value, err)
        assert line.isprintable(), (value, err)
        assert len(line) < 1200, value
        assert "Traceback" not in err
        # A cache is laid out before the plugin listens, and an empty one is nothing half done.
        if flag != "--cache-root":
            shutil.rmtree(world / "cache", ignore_errors=True)
        assert sorted(world.rglob("*")) == before, value


@pytest.mark.parametrize(
    ("command", "flag"), [row for row in ROWS if not FLAGS[row[0]][row[1]]], ids=" ".join
)
def test_a_switch_takes_no_value(
    world: Path, capsys: pytest.CaptureFixture[str], command: str, flag: str
) -> None:
    """Which is said of the switch by its name."""
    assert ends(arguments(world, command, flag, "yes")) == 2
    assert flag in capsys.readouterr().err


@pytest.mark.parametrize("command", COMMANDS)
def test_a_flag_is_written_out(
    world: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    """A shortened flag is an unknown one: the next release may have two that begin like it."""
    flag = next(flag for flag in FLAGS[command] if flag.startswith("--"))
    given = arguments(world, command, flag[:-1], "x")
    assert ends(given) == 2
    assert f"{flag[:-1]}=x" in capsys.readouterr().err
