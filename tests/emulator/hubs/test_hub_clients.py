"""The real `huggingface_hub` against the emulated hub: the same bytes, and its own exceptions."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import huggingface_hub
import pytest
from huggingface_hub import HfApi, errors
from huggingface_hub.hf_api import RepoFile, RepoFolder
from huggingface_hub.utils.tqdm import disable_progress_bars

from emulator.clock import ManualClock
from emulator.hubs import HuggingFaceHub, Options, Reset
from gpustack_delivery.httpd.certificates import Authority

FILES = {
    "config.json": b'{"model_type": "tiny"}\n',
    "empty.txt": b"",
    "empty.bin": b"",
    "model.safetensors": bytes(range(256)) * 8000,
    "nested/deeply/weights.bin": b"\x00\x01" * 70000,
    "a b#c%41+d&e=f@g.txt": b"reserved characters",
    "emoji-😀/grüße.json": b"{}",
    "combining-e\u0301.txt": b"decomposed",
    "combining-\u00e9.txt": b"composed",
    "x" * 200 + ".txt": b"long",
}


@pytest.fixture(autouse=True)
def quiet_client(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Keep the machine's proxies, progress bars and shared connections out of the way."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    disable_progress_bars()
    huggingface_hub.close_session()
    yield
    huggingface_hub.close_session()


def contents(folder: Path) -> dict[str, bytes]:
    """Return every file below a folder by its path."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def write(folder: Path, files: dict[str, bytes]) -> Path:
    """Write files below a folder and return it."""
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


@pytest.mark.parametrize("options", [Options(), Options(page_entries=3, relative_redirects=True)])
def test_snapshot_has_the_same_bytes(clock: ManualClock, tmp_path: Path, options: Options) -> None:
    """A folder served and downloaded again is the same, whatever the pages and redirects."""
    source = write(tmp_path / "source", FILES)
    with HuggingFaceHub(clock=clock, options=options) as hub:
        hub.add_repository("org/model", source)
        snapshot = huggingface_hub.snapshot_download(
            "org/model", endpoint=hub.url, cache_dir=tmp_path / "cache", token=False
        )
    assert contents(Path(snapshot)) == FILES


def test_snapshot_of_a_snapshot(hub: HuggingFaceHub, tmp_path: Path) -> None:
    """A downloaded snapshot, links and all, can be served as it lies."""
    hub.add_repository("org/first", FILES)
    first = huggingface_hub.snapshot_download(
        "org/first", endpoint=hub.url, cache_dir=tmp_path / "one", token=False
    )
    again = hub.add_repository("org/second", first)
    assert again.resolve("main").files.keys() == FILES.keys()  # type: ignore[union-attr] # exists
    second = huggingface_hub.snapshot_download(
        "org/second", endpoint=hub.url, local_dir=tmp_path / "two", token=False
    )
    assert contents(Path(second) / "nested") == contents(Path(first) / "nested")


def test_one_file_of_a_revision(hub: HuggingFaceHub, tmp_path: Path) -> None:
    """Branches, tags, pull requests and commits name what they named; a moved branch moves."""
    repository = hub.add_repository("org/model", {"config.json": b"one"})
    one = repository.resolve("main")
    assert one is not None
    repository.tag("v1", one.id)
    repository.commit({"config.json": b"pull"}, branch="proposal")
    proposal = repository.resolve("proposal")
    assert proposal is not None
    repository.point("refs/pr/1", proposal.id)
    repository.commit({"config.json": b"two"})

    def fetch(revision: str) -> bytes:
        path = huggingface_hub.hf_hub_download(
            "org/model",
            "config.json",
            revision=revision,
            endpoint=hub.url,
            cache_dir=tmp_path,
            token=False,
        )
        return Path(path).read_bytes()

    assert fetch("main") == b"two"
    assert fetch("v1") == fetch(one.id) == b"one"
    assert fetch("refs/pr/1") == fetch("proposal") == b"pull"


def test_names_without_an_owner(hub: HuggingFaceHub, tmp_path: Path) -> None:
    """A repository may have no owner."""
    hub.add_repository("gpt2", {"config.json": b"{}"})
    path = huggingface_hub.hf_hub_download(
        "gpt2", "config.json", endpoint=hub.url, cache_dir=tmp_path, token=False
    )
    assert Path(path).read_bytes() == b"{}"


def test_library_understands_the_listing(hub: HuggingFaceHub) -> None:
    """Sizes, ids and LFS facts arrive in the library's own records, also expanded."""
    repository = hub.add_repository("org/model", FILES)
    commit = repository.resolve("main")
    assert commit is not None
    api = HfApi(endpoint=hub.url, token=False)
    for expand in (False, True):
        listing = list(api.list_repo_tree("org/model", recursive=True, expand=expand))
        files = {entry.path: entry for entry in listing if isinstance(entry, RepoFile)}
        folders = {entry.path: entry for entry in listing if isinstance(entry, RepoFolder)}
        assert files.keys() == FILES.keys()
        weights = files["model.safetensors"]
        assert weights.lfs is not None
        assert weights.lfs.sha256 == commit.files["model.safetensors"].content.sha256
        assert weights.size == weights.lfs.size == len(FILES["model.safetensors"])
        assert files["config.json"].lfs is None
        assert folders["nested/deeply"].tree_id == commit.directories["nested/deeply"]
        assert (files["config.json"].last_commit is not None) == expand
    info = api.model_info("org/model")
    assert info.sha == commit.id
    assert {sibling.rfilename for sibling in info.siblings or ()} == FILES.keys()


def test_tokens_open_private_and_gated_repositories(hub: HuggingFaceHub, tmp_path: Path) -> None:
    """A reader's token downloads; the content host never sees it."""
    hub.add_token("hf_ann", "ann")
    hub.add_repository("org/private", FILES, private=True, readers=["ann"])
    hub.add_repository("org/gated", FILES, gated=True, readers=["ann"])
    for name in ("org/private", "org/gated"):
        snapshot = huggingface_hub.snapshot_download(
            name, endpoint=hub.url, cache_dir=tmp_path, token="hf_ann"
        )
        assert contents(Path(snapshot)) == FILES
    assert all(entry.carries("hf_ann") for entry in hub.requests.entries(host="hub"))
    assert hub.requests.entries(host="cdn")
    assert not any(entry.authorized for entry in hub.requests.entries(host="cdn"))
    assert HfApi(endpoint=hub.url).whoami("hf_ann")["name"] == "ann"


@pytest.mark.parametrize(
    ("file", "token", "error"),
    [
        ("org/public/main/none.json", False, errors.RemoteEntryNotFoundError),
        ("org/public/none/config.json", False, errors.RevisionNotFoundError),
        ("org/gated/main/config.json", False, errors.GatedRepoError),
        ("org/gated/main/config.json", "hf_bob", errors.GatedRepoError),
        ("org/none/main/config.json", "hf_bob", errors.RepositoryNotFoundError),
        ("org/private/main/config.json", "hf_bob", errors.RepositoryNotFoundError),
    ],
)
def test_refusals_become_the_library_s_exceptions(
    hub: HuggingFaceHub, tmp_path: Path, file: str, token: str, error: type[Exception]
) -> None:
    """What the hub refuses is understood as what it is."""
    hub.add_token("hf_bob", "bob")
    hub.add_repository("org/public", FILES)
    hub.add_repository("org/private", FILES, private=True)
    hub.add_repository("org/gated", FILES, gated=True)
    owner, name, revision, path = file.split("/")
    with pytest.raises(error):
        huggingface_hub.hf_hub_download(
            f"{owner}/{name}",
            path,
            revision=revision,
            endpoint=hub.url,
            cache_dir=tmp_path,
            token=token,
        )


def test_snapshot_over_tls(
    clock: ManualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both hosts serve HTTPS with certificates of one authority, and strangers look missing."""
    authority = Authority("hub-ca")
    ca = tmp_path / "ca.pem"
    ca.write_text(authority.certificate_pem)
    monkeypatch.setenv("SSL_CERT_FILE", os.fspath(ca))
    huggingface_hub.close_session()
    with HuggingFaceHub(clock=clock, authority=authority) as hub:
        assert hub.url.startswith("https://")
        assert hub.ca_pem == authority.certificate_pem
        hub.add_repository("org/model", FILES)
        snapshot = huggingface_hub.snapshot_download(
            "org/model", endpoint=hub.url, cache_dir=tmp_path / "cache", token=False
        )
        assert contents(Path(snapshot)) == FILES
        with pytest.raises(errors.RepositoryNotFoundError):
            huggingface_hub.hf_hub_download(
                "org/none", "config.json", endpoint=hub.url, cache_dir=tmp_path, token=False
            )


def test_library_meets_a_fault_once(hub: HuggingFaceHub, tmp_path: Path) -> None:
    """A fault strikes as often as it says: the library gives up once, then has its snapshot."""
    hub.add_repository("org/model", FILES)
    rule = hub.faults.add(Reset(offset=1_500_000), path="model.safetensors", times=1)

    def download() -> str:
        return huggingface_hub.snapshot_download(
            "org/model", endpoint=hub.url, cache_dir=tmp_path, token=False
        )

    with pytest.raises(Exception, match="reset by peer"):
        download()
    assert contents(Path(download())) == FILES
    assert rule.hits == 1
    first, *_ = hub.requests.entries("*model.safetensors", host="cdn")
    assert first.sent_bytes == 1_500_000
