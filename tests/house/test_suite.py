"""The suite's own machinery: citations, needs, verdicts, strictness, on a catalogue of four."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from spec_tests import plugin
from spec_tests.registry import CatalogueError, load
from spec_tests.report.writer import About

RULES = """
- {id: XX-ONE-01, doc: page#first, seen: [api], text: The first thing holds.}
- {id: XX-ONE-02, doc: page#first, seen: [csi], text: The second thing holds.}
- {id: XX-TWO-01, doc: page#second, seen: [hub], clock: true, text: The third thing holds.}
- {id: XX-TWO-02, doc: page#second, seen: [log], text: "<b>The fourth</b> thing holds."}
"""
ALL = 'import pytest\n@pytest.mark.rule("XX-ONE-01", "XX-ONE-02", "XX-TWO-01")\n'


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """Give a suite of its own, whose fourth rule is pending, to a run of pytest in this process."""
    (pytester.path / "rules").mkdir()
    (pytester.path / "rules" / "page.yaml").write_text(RULES)
    (pytester.path / "pending.txt").write_text("XX-TWO-02  # nobody wrote it\n")
    monkeypatch.setattr(plugin, "_SUITE", pytester.path)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    about = About("in-process", "someone", "1.2", ("clock",), "pytest <all>", 1_800_000_000.0)
    pytester.makeconftest(
        "from spec_tests.plugin import ABOUT\n"
        "from spec_tests.report.writer import About\n"
        f"def pytest_configure(config):\n    config.stash[ABOUT] = {about!r}\n"
    )
    return pytester


def run(suite: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    """Run the planted suite with the plugin."""
    return suite.runpytest_inprocess("-p", "spec_tests.plugin", "--strict-markers", *arguments)


def report(suite: pytest.Pytester) -> dict[str, str]:
    """Return the verdicts of the written report.json."""
    document = json.loads((suite.path / "build/spec-report/in-process/report.json").read_text())
    return {rule["id"]: rule["verdict"] for rule in document["rules"]}


def test_a_complete_run_leaves_its_report(suite: pytest.Pytester) -> None:
    """Three files state every rule's verdict, and what came from outside is escaped."""
    suite.makepyfile(ALL + "def test_all(): pass\n")
    assert run(suite).ret == pytest.ExitCode.OK
    folder = suite.path / "build/spec-report/in-process"
    document = json.loads((folder / "report.json").read_text())
    assert document["target"] == {
        "kind": "in-process",
        "name": "someone",
        "version": "1.2",
        "features": ["clock"],
    }
    assert document["summary"] == {
        "passed": 3,
        "failed": 0,
        "unsupported": 0,
        "expected-failure": 0,
        "untested": 1,
        "suite-error": 0,
    }
    assert document["rules"][0]["tests"][0].keys() == {"nodeid", "outcome", "seconds"}
    cases = ElementTree.parse(folder / "junit.xml").iter("testcase")  # noqa: S314 - our own file
    assert [case.get("name") for case in cases] == ["test_all"]
    page = (folder / "index.html").read_text()
    assert "&lt;b&gt;The fourth&lt;/b&gt;" in page
    assert "<script" not in page
    assert "src=" not in page


def test_a_red_test_prints_its_sentence(suite: pytest.Pytester) -> None:
    """A failing test shows the sentence it broke, and its rules are failed with the evidence."""
    suite.makepyfile(ALL + "def test_all(): assert 1 == 2\n")
    result = run(suite)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["*rule XX-TWO-01 (page#second)*", "The third thing holds."])
    assert report(suite)["XX-ONE-01"] == "failed"
    text = (suite.path / "build/spec-report/in-process/report.json").read_text()
    assert "assert 1 == 2" in text


def test_a_broken_suite_is_not_a_failed_rule(suite: pytest.Pytester) -> None:
    """An error that is no assertion is the suite's own, and still fails the run."""
    suite.makepyfile(ALL + "def test_all(): {}['missing']\n")
    assert run(suite).ret == pytest.ExitCode.TESTS_FAILED
    assert report(suite)["XX-ONE-01"] == "suite-error"


@pytest.mark.parametrize(
    ("message", "verdict"),
    [
        ('admission webhook "guard.example" denied the request: no', "failed"),
        ('Internal error occurred: failed calling webhook "guard.example": EOF', "failed"),
        ('pods "missing" not found', "suite-error"),
    ],
)
def test_a_write_that_a_webhook_stops_is_a_failed_rule(
    suite: pytest.Pytester, message: str, verdict: str
) -> None:
    """The implementation's own webhooks speak for it; other errors of the API are the suite's."""
    error = f"from emulator.errors import ApiError\nraise ApiError({{'message': {message!r}}})"
    suite.makepyfile(ALL + "def test_all():\n    " + error.replace("\n", "\n    "))
    assert run(suite).ret == pytest.ExitCode.TESTS_FAILED
    assert report(suite)["XX-ONE-01"] == verdict


def test_the_worst_test_decides(suite: pytest.Pytester) -> None:
    """A rule with a passing and a failing test is failed."""
    suite.makepyfile(
        ALL + "def test_all(): pass\n"
        '@pytest.mark.rule("XX-ONE-02")\ndef test_again(): assert False\n'
    )
    run(suite)
    assert report(suite) == {
        "XX-ONE-01": "passed",
        "XX-ONE-02": "failed",
        "XX-TWO-01": "passed",
        "XX-TWO-02": "untested",
    }


def test_a_pending_rule_that_passes_fails_the_run(suite: pytest.Pytester) -> None:
    """A pending rule with a passing test must leave the list first."""
    suite.makepyfile(
        ALL + 'def test_all(): pass\n@pytest.mark.rule("XX-TWO-02")\ndef test_new(): pass\n'
    )
    result = run(suite)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["BREACH XX-TWO-02 has a passing test*"])


def test_idle_rights_are_strict(suite: pytest.Pytester) -> None:
    """What is granted and never used needs a reason in the list; what has one must be idle."""
    suite.makepyfile(
        "from spec_tests.plugin import RIGHTS\n" + ALL + "def test_all(pytestconfig):\n"
        "    rights = pytestconfig.stash[RIGHTS]\n"
        '    rights.granted = {("a", "pods", verb) for verb in ("get", "list")}\n'
        '    rights.used = {("a", "pods", "list")}\n'
    )
    listed = suite.path / "idle.toml"
    run(suite).stdout.fnmatch_lines(["granted and never used: a: get pods"])
    listed.write_text('"a: get pods" = "a cluster of another kind asks for it"\n')
    assert run(suite, "--idle-rights", "idle.toml").ret == pytest.ExitCode.OK
    listed.write_text('"a: list pods" = "nothing lists"\n')
    result = run(suite, "--idle-rights", "idle.toml")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        ["BREACH a: get pods: granted and never used*", "BREACH a: list pods: *but used*"]
    )
    listed.write_text('"a: get pods" = ""\n')
    assert run(suite, "--idle-rights", "idle.toml").ret == pytest.ExitCode.USAGE_ERROR


def test_expected_failures_are_strict(suite: pytest.Pytester) -> None:
    """A listed rule that fails is expected; one that passes or does not exist fails the run."""
    suite.makepyfile(
        ALL + "def test_all(): pass\n"
        '@pytest.mark.rule("XX-ONE-02")\ndef test_again(): assert False\n'
    )
    (suite.path / "known.toml").write_text('XX-ONE-02 = "not built yet"\n')
    assert run(suite, "--expected-failures", "known.toml").ret == pytest.ExitCode.OK
    # test_all names the rule too and passes: the rule is expected-failure, the test unexpectedly
    # green.
    assert report(suite)["XX-ONE-02"] == "expected-failure"
    (suite.path / "known.toml").write_text('XX-TWO-01 = "old"\nXX-TEN-01 = "none"\n')
    result = run(suite, "--expected-failures", "known.toml")
    result.stdout.fnmatch_lines(
        ["BREACH XX-TEN-01 is expected to fail and is no rule", "BREACH XX-TWO-01*passes*"]
    )


@pytest.mark.parametrize("where", ["body", "fixture"])
def test_what_a_target_cannot_make_is_unsupported(suite: pytest.Pytester, where: str) -> None:
    """A condition that cannot be had leaves the rule unsupported, with the reason, and no red."""
    raising = "raise Unsupported('no such disk')\n"
    fixture = f"@pytest.fixture\ndef made(): {raising if where == 'fixture' else 'pass'}\n"
    body = f"def test_all(made): {raising if where == 'body' else 'pass'}\n"
    suite.makepyfile(
        "from spec_tests.targets import Unsupported\nimport pytest\n" + fixture + ALL + body
    )
    assert run(suite).ret == pytest.ExitCode.OK
    assert report(suite)["XX-ONE-01"] == "unsupported"
    text = (suite.path / "build/spec-report/in-process/report.json").read_text()
    assert '"reason": "no such disk"' in text


def test_a_target_needs_its_manifest(suite: pytest.Pytester) -> None:
    """Without a manifest there is nothing that the processes target could start."""
    suite.makepyfile(ALL + "def test_all(): pass\n")
    result = run(suite, "--target", "processes")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*needs --manifest FILE*"])


def test_a_missing_need_is_named(suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """A test whose need is missing is not run, says so by name, and leaves its rules untested."""
    monkeypatch.setattr(plugin, "missing", lambda names: names)
    suite.makepyfile(ALL + '@pytest.mark.needs("kubectl")\ndef test_all(): pass\n')
    result = run(suite)
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["NOT RUN *test_all: needs kubectl"])
    assert report(suite)["XX-ONE-01"] == "untested"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("def test_all(): pass\n", "names no rule"),
        ('@pytest.mark.rule("XX-ONE-99")\ndef test_all(): pass\n', "is no rule"),
        ('@pytest.mark.needs("luck")\ndef test_all(): pass\n', "no probe for"),
    ],
)
def test_a_wrong_marker_stops_the_run(suite: pytest.Pytester, text: str, complaint: str) -> None:
    """A test without a rule, with an unknown rule or with an unknown need is an error of usage."""
    suite.makepyfile("import pytest\n" + text)
    result = run(suite)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*{complaint}*"])


def test_a_part_of_the_suite_writes_no_report(suite: pytest.Pytester) -> None:
    """A run that leaves rules out does not overwrite the verdicts of a complete one."""
    suite.makepyfile('import pytest\n@pytest.mark.rule("XX-ONE-01")\ndef test_one(): pass\n')
    run(suite).stdout.fnmatch_lines(["report: not written*"])
    assert not (suite.path / "build").exists()
    run(suite, "--spec-report", "here")
    assert (suite.path / "here/index.html").exists()


@pytest.mark.parametrize(
    "item",
    [
        "{id: XX-ONE-01, doc: page#a, seen: [api]}",
        "{id: one, doc: page#a, seen: [api], text: x}",
        "{id: XX-ONE-01, doc: page, seen: [api], text: x}",
        "{id: XX-ONE-01, doc: page#a, seen: [moon], text: x}",
        "{id: XX-ONE-01, doc: page#a, seen: [api], text: x, owner: me}",
    ],
)
def test_a_malformed_rule_is_refused(tmp_path: Path, item: str) -> None:
    """A rule without a text, an identifier, a section or a known boundary stops the catalogue."""
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "page.yaml").write_text(f"- {item}\n")
    (tmp_path / "pending.txt").write_text("")
    with pytest.raises(CatalogueError, match=r"page\.yaml"):
        load(tmp_path)
