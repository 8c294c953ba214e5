"""The chart renderer: the declared subset of Helm's templates, and a clear no to the rest."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from emulator.chart import ChartError, given, render
from emulator.chart.evaluation import Renderer
from emulator.chart.syntax import parse


def text(source: str, **dot: Any) -> str:
    """Return what a single template prints with these values as its dot."""
    nodes, defines = parse("templates/t.yaml", source)
    return Renderer(defines).render("templates/t.yaml", nodes, dot)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("a {{ .name }} b", "a x b"),
        ("a {{- .name -}} b", "axb"),
        ('a\n  {{- /* it\'s "gone" */}}\nb', "a\nb"),
        ("{{ .missing }}", ""),
        ("{{ .map.inner }} {{ .map.none }}", "1 "),
        ("{{ $x := .name }}{{ $x }}{{ $x = 2 }}{{ $x }}", "x2"),
        ('{{ .missing | default "d" | quote }}', '"d"'),
        ("{{ .no | default true }} {{ .zero | default 7 }}", "true 7"),
        ('{{ printf "%s-%d-%v-%q-100%%" .name 3 true "q" }}', 'x-3-true-"q"-100%'),
        ("{{ if .no }}a{{ else if eq .name `x` }}b{{ else }}c{{ end }}", "b"),
        ("{{ if and .name (not .no) }}yes{{ end }}{{ if or .no .zero }}no{{ end }}", "yes"),
        ("{{ if .no }}a{{ else if .zero }}b{{ else }}c{{ end }}", "c"),
        ("{{ with .map }}{{ .inner }}{{ $.name }}{{ else }}none{{ end }}", "1x"),
        ("{{ with .missing }}a{{ else }}none{{ end }}", "none"),
        ("{{ with $m := .map }}{{ $m.inner }}{{ end }}", "1"),
        ("{{ range .items }}[{{ . }}]{{ end }}", "[a][b]"),
        ("{{ range $i, $v := .items }}{{ $i }}={{ $v }};{{ end }}", "0=a;1=b;"),
        ("{{ range $k, $v := .map }}{{ $k }}={{ $v }};{{ end }}", "inner=1;other=2;"),
        ("{{ range .missing }}x{{ else }}empty{{ end }}", "empty"),
        ("{{ $x := 1 }}{{ range .items }}{{ $x = . }}{{ end }}{{ $x }}", "b"),
        ("{{ toYaml .map | nindent 2 }}", "\n  inner: 1\n  other: 2"),
        ('{{ define "n" }}<{{ .inner }}>{{ end }}{{ include "n" .map | upper }}', "<1>"),
        ('{{ define "n" }}<{{ . }}>{{ end }}{{ template "n" .name }}', "<x>"),
        ('{{ (dict "a" (list 1 2)).a }}', "[1 2]"),
        ('{{ ne "a" "b" }} {{ eq 1 2 1 }} {{ lt 1 2 }}', "true true true"),
        ('{{ trunc 3 "abcdef" | trimSuffix "c" }}', "ab"),
        ('{{ ternary "a" "b" .no }} {{ coalesce .missing .name }} {{ empty .zero }}', "b x true"),
        (
            '{{ join "," .items }} {{ len .items }} {{ index .items 1 }} {{ has "a" .items }}',
            "a,b 2 b true",
        ),
        (
            '{{ hasKey .map "inner" }} {{ get .map "inner" }} {{ keys .map }}',
            "true 1 [inner other]",
        ),
        ('{{ regexMatch "^x$" .name }} {{ regexMatch "^y" .name }}', "true false"),
        ('{{ "a" | b64enc }} {{ squote "x" }} {{ replace "a" "b" "aa" }}', "YQ== 'x' bb"),
        ("{{ add 1 2 3 }} {{ sub 3 1 }} {{ mul 2 3 }} {{ int 7.0 }}", "6 2 6 7"),
        ('{{ toJson .map }} {{ kindIs "map" .map }}', '{"inner":1,"other":2} true'),
        ('{{ merge (dict "a" 1) .map | toJson }}', '{"a":1,"inner":1,"other":2}'),
    ],
)
def test_what_a_template_prints(source: str, expected: str) -> None:
    """Each construct of the subset prints what Helm prints."""
    dot = {
        "name": "x",
        "no": False,
        "zero": 0,
        "map": {"inner": 1, "other": 2},
        "items": ["a", "b"],
    }
    assert text(source, **dot) == expected


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            "a\n{{ lookup `v1` `Pod` `` `` }}",
            "templates/t.yaml:2: function 'lookup' is not supported",
        ),
        ("{{ block `a` . }}{{ end }}", "{{ block }} is not supported"),
        ("{{ range .items }}{{ break }}{{ end }}", "{{ break }} is not supported"),
        ("{{ if .name }}", "a block is not closed"),
        ("{{ end }}", "{{ end }} closes nothing"),
        ("{{ else }}", "stands outside a block"),
        ("{{ }}", "an action is empty"),
        ("{{ .name", "is not closed"),
        ("{{ (.name }}", "a parenthesis is not closed"),
        ("{{ .name | }}", "a value or a function is missing"),
        ("{{ .name ? }}", "cannot read '?'"),
        ("{{ $y }}", "$y is not declared"),
        ("{{ $y = 1 }}", "$y is not declared"),
        ("{{ .missing.field }}", ".missing is nothing and has no field 'field'"),
        ("{{ .name.field }}", ".name is a str and has no field 'field'"),
        ("{{ .name 1 }}", ".name takes no arguments"),
        ("{{ 1 2 }}", "only a function takes arguments"),
        ("{{ include `none` . }}", "no template is defined as 'none'"),
        ("{{ define `a` }}{{ include `a` . }}{{ end }}{{ include `a` . }}", "without end"),
        ("{{ required `set it` .missing }}", "templates/t.yaml:1: set it"),
        ("{{ fail `no` }}", "templates/t.yaml:1: no"),
        ("{{ printf `%x` 1 }}", "only %s, %v, %d, %q and %% are supported"),
        ("{{ printf `%s` }}", "more verbs than values"),
        ("{{ printf `a` 1 }}", "more values than verbs"),
        ("{{ range .name }}{{ end }}", "range takes a list or a map"),
        ("{{ dict `a` }}", "in pairs"),
        ("{{ upper 1 }}", "templates/t.yaml:1: "),
    ],
)
def test_what_is_refused(source: str, message: str) -> None:
    """Whatever is outside the subset, or wrong, is one sentence with its template and line."""
    with pytest.raises(ChartError) as caught:
        text(source, name="x", items=["a"])
    assert message in str(caught.value)
    assert str(caught.value).startswith("templates/")


@pytest.fixture
def chart(tmp_path: Path) -> Path:
    """Return a small chart with CRDs, a partial, values and a file of its own."""
    files = {
        "Chart.yaml": "apiVersion: v2\nname: sample\nversion: 1.2.3\nappVersion: 4.5.6\n",
        "values.yaml": "image: {tag: one, pull: Always}\nextra: {a: 1}\nlabels: {}\n",
        "crds/b.yaml": "apiVersion: v1\nkind: CustomResourceDefinition\nmetadata: {name: b}\n",
        "notes.txt": "from a file",
        "templates/NOTES.txt": "{{ nonsense }}",
        "templates/_helpers.tpl": dedent("""\
            {{- define "sample.labels" -}}
            app: {{ .Chart.Name }}-{{ .Chart.AppVersion }}
            release: {{ .Release.Name }}
            {{- end }}
            """),
        "templates/a.yaml": dedent("""\
            apiVersion: v1
            kind: Pod
            metadata:
              name: {{ .Release.Name }}
              namespace: {{ .Release.Namespace }}
              labels:
                {{- include "sample.labels" . | nindent 4 }}
            spec:
              {{- with .Values.image }}
              image: {{ printf "x:%s" .tag | quote }}
              pull: {{ .pull }}
              {{- end }}
            ---
            {{- if .Values.extra }}
            apiVersion: v1
            kind: ConfigMap
            metadata: {name: cm}
            data:
              text: {{ .Files.Get "notes.txt" | quote }}
              gone: {{ .Files.Get "../secret" | quote }}
              version: {{ .Capabilities.KubeVersion.Version }}
            {{- end }}
            """),
    }
    for name, content in files.items():
        path = tmp_path / "chart" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, "utf-8")
    (tmp_path / "secret").write_text("outside", "utf-8")
    return tmp_path / "chart"


def test_a_chart_becomes_objects(chart: Path) -> None:
    """CRDs come first, then the templates' objects in install order, with the given values."""
    objects = render(
        chart, release="r", namespace="ns", values={"image": {"tag": "two"}}, kubernetes="1.29"
    )
    assert [obj["kind"] for obj in objects] == ["CustomResourceDefinition", "ConfigMap", "Pod"]
    assert objects[1]["data"] == {"text": "from a file", "gone": "", "version": "v1.29"}
    assert objects[2]["metadata"]["labels"] == {"app": "sample-4.5.6", "release": "r"}
    assert objects[2]["spec"] == {"image": "x:two", "pull": "Always"}


def test_a_null_value_takes_a_key_away(chart: Path) -> None:
    """None in the values removes what the chart has, as in Helm."""
    objects = render(chart, release="r", namespace="ns", values={"extra": None})
    assert [obj["kind"] for obj in objects] == ["CustomResourceDefinition", "Pod"]


def test_values_are_held_against_the_charts_schema(chart: Path) -> None:
    """A value that the chart's schema refuses is named by its path, as Helm does."""
    schema = {"properties": {"image": {"properties": {"pull": {"enum": ["Always", "Never"]}}}}}
    (chart / "values.schema.json").write_text(json.dumps(schema), "utf-8")
    render(chart, release="r", namespace="ns", values={"image": {"pull": "Never"}})
    with pytest.raises(ChartError, match=r"^image\.pull does not fit values\.schema\.json: 'Now'"):
        render(chart, release="r", namespace="ns", values={"image": {"pull": "Now"}})


def test_values_come_from_files_and_settings(tmp_path: Path) -> None:
    """A later file is laid over an earlier one, settings over both; their values are YAML."""
    one, two = tmp_path / "one.yaml", tmp_path / "two.yaml"
    one.write_text("a: {b: 1, c: 2}\nd: x\n", "utf-8")
    two.write_text("a: {b: 3}\n", "utf-8")
    values = given([one, two], ["a.c=[4, five]", "e.f.g=true", "h=", "d=null"])
    assert values == {"a": {"b": 3, "c": [4, "five"]}, "e": {"f": {"g": True}}, "h": ""}


@pytest.mark.parametrize(
    ("path", "content", "message"),
    [
        ("templates/x.yaml", "a: [", "templates/x.yaml is not YAML after rendering"),
        ("templates/x.yaml", "a: b", "apiVersion or kind is missing"),
        ("charts/sub/Chart.yaml", "", "has sub-charts"),
        ("values.yaml", "- a", "values.yaml must hold a map"),
        ("values.yaml", "a: [", "values.yaml cannot be read"),
        (
            "templates/x.yaml",
            "apiVersion: v1\nkind: Job\n"
            "metadata: {name: j, annotations: {helm.sh/hook: pre-install}}",
            "Job j is a hook",
        ),
    ],
)
def test_a_chart_that_cannot_be_rendered(
    chart: Path, path: str, content: str, message: str
) -> None:
    """What a chart holds beyond the subset, or holds wrongly, is named."""
    (chart / path).parent.mkdir(parents=True, exist_ok=True)
    (chart / path).write_text(content, "utf-8")
    with pytest.raises(ChartError, match=message):
        render(chart, release="r", namespace="ns")


def test_a_folder_without_a_chart_is_refused(tmp_path: Path) -> None:
    """A folder that holds no chart is named."""
    with pytest.raises(ChartError, match=r"has no Chart\.yaml"):
        render(tmp_path, release="r", namespace="ns")
