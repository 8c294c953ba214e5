"""Breaking a cluster by hand: commands as text, the endpoint, and the command line."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from emulator import Cluster
from emulator.clock import ManualClock
from emulator.clock_service import RemoteClock
from emulator.control import CommandError, Endpoint, run, usage
from tests.emulator.http_client import HttpClient
from tests.emulator.test_command import started

MAPS = "/api/v1/namespaces/default/configmaps"
FILE = {"model.bin": bytes(1000)}


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Return a cluster with a node and a hub, on a clock that stands still."""
    with Cluster(clock=ManualClock()) as opened:
        opened.add_node("node-a")
        opened.add_hub().add_repository("org/name", FILE)
        yield opened


def test_api_commands_break_requests(cluster: Cluster) -> None:
    """A rule from text strikes as one from Python; clear takes it away."""
    client = HttpClient(cluster.kubeconfig())
    assert run(cluster, "api.refuse code=429 retry-after=3 verb=list times=1").startswith("done")
    assert client.send("GET", MAPS)[0] == 429
    assert client.send("GET", MAPS)[0] == 200
    run(cluster, "api.conflict verb=write")
    run(cluster, "api.hangup done=yes name='x y'")
    assert [type(rule.effect).__name__ for rule in cluster.faults.rules()] == [
        "Refuse",
        "Conflict",
        "Hangup",
    ]
    assert cluster.faults.rules()[2].name == "x y"
    run(cluster, "clear")
    assert cluster.faults.rules() == []


def test_server_and_token_commands(cluster: Cluster) -> None:
    """The API server goes and comes; a kubeconfig's token expires and is renewed."""
    file = cluster.kubeconfig()
    client = HttpClient(file)
    run(cluster, "api.stop")
    with pytest.raises(OSError, match="refused"):
        client.send("GET", MAPS)
    run(cluster, "api.start")
    run(cluster, f"token.expire kubeconfig={file}")
    assert client.send("GET", MAPS)[0] == 401
    run(cluster, f"token.rotate kubeconfig={file}")
    assert client.send("GET", MAPS)[0] == 200


def test_hub_commands(cluster: Cluster) -> None:
    """Each fault of a hub can be asked for, with place, path and count."""
    (hub,) = cluster.hubs
    run(cluster, "hub.status code=503 retry-after=5 path=*.bin times=1")
    with pytest.raises(urllib.error.HTTPError, match="503") as failed:
        _download(hub.url)
    assert failed.value.headers["Retry-After"] == "5"
    failed.value.close()
    run(cluster, "hub.flip offset=7 mask=1")
    assert _download(hub.url) == bytes(7) + b"\1" + bytes(992)
    run(cluster, "hub.stop")
    with pytest.raises(urllib.error.URLError, match="refused"):
        _download(hub.url)
    run(cluster, "hub.start")
    run(cluster, "clear")
    assert _download(hub.url) == FILE["model.bin"]


def _download(hub: str) -> bytes:
    url = f"{hub}/org/name/resolve/main/model.bin"
    with urllib.request.urlopen(url, timeout=30) as answer:  # noqa: S310 - ours
        content: bytes = answer.read()
        return content


def test_relay_commands(cluster: Cluster) -> None:
    """A link to any program is opened, cut in a transfer, and mended."""
    (hub,) = cluster.hubs
    target = hub.url.removeprefix("http://")
    address = run(cluster, f"relay.open name=peer target={target}").rpartition(": ")[2]
    assert _download(f"http://{address}") == FILE["model.bin"]
    run(cluster, "relay.cut name=peer after_bytes=500")
    with pytest.raises((http.client.HTTPException, OSError)):
        _download(f"http://{address}")
    run(cluster, "relay.mend name=peer")
    assert _download(f"http://{address}") == FILE["model.bin"]
    with pytest.raises(CommandError, match="there is no relay 'other'; there are peer"):
        run(cluster, "relay.hold name=other")


def test_node_and_clock_commands(cluster: Cluster) -> None:
    """A node's kubelet ends and its disk fills; the clock moves on command."""
    (node,) = cluster.nodes
    run(cluster, "node.fill-disk node=node-a percent=90")
    usage_now = node.disk.usage(node.cache_root)
    assert usage_now.used_bytes > usage_now.total_bytes * 0.89
    run(cluster, "node.stop-kubelet node=node-a")
    run(cluster, "clock.advance seconds=60")
    assert cluster.clock.monotonic() == 60.0
    conditions = cluster.client.get("v1", "Node", "node-a")["status"]["conditions"]
    assert {one["status"] for one in conditions if one["type"] == "Ready"} == {"Unknown"}
    run(cluster, "node.start-kubelet node=node-a")
    run(cluster, "node.remove node=node-a")
    assert cluster.client.list("v1", "Node") == []


WALK = """
api.refuse code=503 reason=ServiceUnavailable message='not now' retry_after=1 verb=write times=1
api.conflict verb=update resource=leases user=system:node:* skip=1
api.delay seconds=2 namespace=default name=x
api.hangup done=yes verb=create
api.gone verb=watch
api.silence resource=pods
api.drop-watches resource=pods reset=true
api.silence-watches
api.forget-history
api.restart
api.stop
api.start
token.expire kubeconfig={kubeconfig}
token.rotate kubeconfig={kubeconfig}
service.route namespace=default name=hook target=127.0.0.1:1
service.cut namespace=default name=hook
service.mend namespace=default name=hook
node.add name=node-b
node.stop-kubelet node=node-b
node.start-kubelet node=node-b
node.restart-kubelet node=node-b
node.flicker node=node-b
node.deadline node=node-b method=NodePublishVolume seconds=1 times=2
node.fill-disk node=node-b percent=50
node.fail-disk node=node-b operation=sync_file error=EIO times=1
node.fail-mount node=node-b error=EIO
node.remove node=node-b
hub.status code=429 retry_after='Wed, 21 Oct 2015 07:28:00 GMT' at=tree path=*.bin times=1 skip=1
hub.html at=info
hub.redirect location=/elsewhere status=307
hub.delay seconds=3
hub.ignore-range path=*.bin
hub.wrong-range start_by=1
hub.resize by=-1
hub.gzip
hub.unmeasured
hub.next-link url=/next at=tree
hub.flip offset=7 mask=1
hub.reset offset=10
hub.close offset=10
hub.stall offset=10 seconds=1
hub.overrun
hub.broken-chunks offset=10
hub.hangup
hub.expired-url at=cdn
hub.masked-digests at=tree
hub.stop-content
hub.start-content
hub.stop
hub.start
relay.open name=peer target=127.0.0.1:1
relay.hold name=peer
relay.cut name=peer after_bytes=10
relay.mend name=peer
clock.advance seconds=1
show
release
clear
"""


def test_every_command_can_be_given(cluster: Cluster) -> None:
    """Each fault there is has a name and parameters that it takes; clear takes them all away."""
    file = cluster.kubeconfig()
    lines = WALK.replace("{kubeconfig}", str(file)).split("\n")[1:-1]
    known = {line.split()[0].rstrip(":") for line in usage()}
    assert known == {line.split()[0] for line in lines}
    for line in lines:
        assert run(cluster, line).startswith(f"done: {line}"), line
    assert _download(cluster.hubs[0].url) == FILE["model.bin"]
    assert HttpClient(file).send("GET", MAPS)[0] == 200


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "an empty command"),
        ("api.explode", "there is no command 'api.explode'"),
        ("api.refuse 503", "write parameters as key=value"),
        ("api.refuse code=many", "api.refuse code=many: it takes a whole number"),
        ("api.delay seconds=soon", "it takes a number of seconds or percent"),
        ("api.hangup done=maybe", "it takes true or false"),
        ("api.refuse offset=1", "has no parameter 'offset'; it takes code, reason"),
        ("hub.status at=tree", "hub.status needs code="),
        ("node.flicker node=b", "there is no node 'b'; there are node-a"),
        ("node.fail-mount node=node-a error=EWHAT", "'EWHAT' is no error name"),
        ("node.fail-disk node=node-a operation=read error=EIO", "cannot fail 'read'"),
        ("service.cut namespace=a name=b", "no route stands for service b in a"),
        ("service.mend namespace=a name=b", "service b in a is not cut"),
        ("service.route namespace=a name=b target=here", "here: write it as host:port"),
        ("api.refuse message='open", "No closing quotation"),
    ],
)
def test_what_cannot_be_done_says_what_can(cluster: Cluster, text: str, message: str) -> None:
    """A wrong command changes nothing and names what is wrong with it."""
    with pytest.raises(CommandError) as refused:
        run(cluster, text)
    assert message in str(refused.value)
    assert cluster.faults.rules() == []


def _ask(url: str, token: str, body: bytes | None = None) -> tuple[int, str]:
    request = urllib.request.Request(url, body, {"Authorization": f"Bearer {token}"})  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 - ours
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_the_endpoint_wants_its_token(cluster: Cluster) -> None:
    """Without the token nothing happens; with it, commands are done line by line."""
    endpoint = Endpoint(cluster).start()
    try:
        command = b"api.refuse code=500 times=2"
        assert _ask(f"{endpoint.url}/do", "wrong", command)[0] == 401
        assert cluster.faults.rules() == []
        status, text = _ask(f"{endpoint.url}/do", endpoint.token, command + b"\nnothing\nclear")
        assert status == 400
        assert text.startswith("done: api.refuse code=500 times=2\nthere is no command")
        (rule,) = json.loads(_ask(f"{endpoint.url}/faults", endpoint.token)[1])
        assert (rule["fault"], rule["times"], rule["hits"]) == ("Refuse", 2, 0)
        assert _ask(f"{endpoint.url}/", endpoint.token)[1] == "\n".join(usage()) + "\n"
        assert _ask(f"{endpoint.url}/elsewhere", endpoint.token)[0] == 404
    finally:
        endpoint.stop()


def _fault(*arguments: str) -> tuple[int, str, str]:
    done = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-m", "emulator", "fault", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return done.returncode, done.stdout, done.stderr


def test_the_command_line_breaks_a_cluster(tmp_path: Path) -> None:
    """`up --fault` breaks from the start, `fault` later on; both refuse nonsense in one line."""
    with started("up", "--fault", "api.refuse code=503 verb=list resource=nodes") as lines:
        kubeconfig = Path(lines[0])
        client = HttpClient(kubeconfig)
        assert client.send("GET", "/api/v1/nodes")[0] == 503
        control = kubeconfig.with_name("control")
        assert control.stat().st_mode & 0o777 == 0o600
        assert _fault(str(control), "clear") == (0, "done: clear\n", "")
        assert client.send("GET", "/api/v1/nodes")[0] == 200
        assert "api.restart: Stop and start" in _fault(str(control))[1]
        code, _, error = _fault(str(control), "nonsense")
        assert (code, error.count("\n")) == (2, 1)
    other = tmp_path / "other"
    other.write_text("{}", "utf-8")
    assert _fault(str(other), "clear")[2] == (
        f"emulator: {other} is not the control file of a cluster\n"
    )


def test_the_clock_of_a_cluster_is_moved_from_outside(tmp_path: Path) -> None:
    """`up --clock` lets time stand still; whoever reaches the socket, or the endpoint, moves it."""
    socket = tmp_path / "clock"
    with started("up", "--clock", str(socket)) as lines:
        kubeconfig = Path(lines[0])
        lease = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/node-1"
        client = HttpClient(kubeconfig)
        before = client.send("GET", lease)[1]["spec"]["renewTime"]
        remote = RemoteClock(socket)
        remote.advance(25)
        remote.close()
        after = client.send("GET", lease)[1]["spec"]["renewTime"]
        assert (before[14:19], after[14:19]) == ("00:00", "00:20")
        assert _fault(str(kubeconfig.with_name("control")), "clock.advance seconds=10")[0] == 0
        assert client.send("GET", lease)[1]["spec"]["renewTime"][14:19] == "00:30"
    assert not socket.exists()
