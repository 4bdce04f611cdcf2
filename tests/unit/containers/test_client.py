"""Requests to registries: credentials, refusals, broken connections and corrupt content."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import IO

import pytest

from containers.blob import BlobUnreadable
from containers.errors import SlipwayError
from containers.registry import credentials
from containers.registry.client import Repository
from containers.registry.credentials import Login
from containers.registry.transport import _RETRY
from tests.fakes.registry import MANIFEST, Registry, digest_of, skip_retry_waits
from tests.helpers.refusals import refusal_line

AS_IT_IS = _RETRY
"""How requests are made again, before :func:`skip_retry_waits` takes the waits out."""


def read(stream: IO[bytes]) -> bytes:
    return stream.read()


def unreadable(repository: Repository, digest: str) -> str:
    return refusal_line(repository.blob, digest, read)


def test_manifest_with_other_digest_is_refused(registry: Registry) -> None:
    digest = registry.manifest("a/b:1", MANIFEST, {"layers": []})
    for name in ("a/b:1", f"a/b@{digest}", f"a/b:other@{digest}"):
        manifest = Repository(f"{registry.address}/{name}").manifest()
        assert (manifest.digest, manifest.media_type, manifest.content) == (digest, MANIFEST, {"layers": []})
    registry.manifests[digest] = (MANIFEST, b"{}")
    for name in ("a/b:1", f"a/b@{digest}"):
        with pytest.raises(SlipwayError, match=f"the manifest is corrupt: its digest is .*, not {digest}$"):
            Repository(f"{registry.address}/{name}").manifest()
    other = registry.manifest("a/b:2", MANIFEST, {"layers": [1]})
    registry.swapped[digest] = other  # with a header that fits what is answered, not what was asked
    with pytest.raises(SlipwayError, match=f"the manifest is corrupt: its digest is {other}, not {digest}$"):
        Repository(f"{registry.address}/a/b@{digest}").manifest()


def test_blob_read_in_part_is_still_checked(registry: Registry) -> None:
    content = b"0123456789" * 300_000
    digest = registry.blob(content)
    repository = Repository(f"{registry.address}/a/b:1")
    assert repository.blob(digest, read) == content
    assert repository.blob(digest, lambda stream: stream.read(3)) == b"012"


def test_blob_with_other_digest_is_refused(registry: Registry) -> None:
    digest = digest_of(b"right")
    registry.blobs[digest] = b"wrong"
    error = unreadable(Repository(f"{registry.address}/a/b:1"), digest)
    assert error == (f"{registry.address}/a/b:1: a blob is corrupt: its digest is {digest_of(b'wrong')}, not {digest}")


def test_blob_corrupt_and_unreadable_is_reported_corrupt(registry: Registry) -> None:
    def senseless(_: IO[bytes]) -> None:
        raise BlobUnreadable("no sense")

    digest = registry.blob(b"right")
    with pytest.raises(SlipwayError, match=f"{digest}: no sense$"):
        Repository(f"{registry.address}/a/b:1").blob(digest, senseless)
    registry.blobs[digest] = b"wrong"
    with pytest.raises(SlipwayError, match="is corrupt"):
        Repository(f"{registry.address}/a/b:1").blob(digest, senseless)


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_blob_after_temporary_error_is_retried(registry: Registry, status: int) -> None:
    digest = registry.blob(b"content")
    registry.refusals = [status] * 3
    assert Repository(f"{registry.address}/a/b:1").blob(digest, read) == b"content"
    registry.refusals = [status] * 4
    assert unreadable(Repository(f"{registry.address}/a/b:1"), digest).endswith(f"({status})")


def test_retry_waits_grow(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr("containers.registry.transport._RETRY", AS_IT_IS)
    monkeypatch.setattr("urllib3.util.retry.time", SimpleNamespace(sleep=waits.append))  # no other thread's waits
    digest = registry.blob(b"content")
    registry.refusals = [503] * 3
    assert Repository(f"{registry.address}/a/b:1").blob(digest, read) == b"content"
    assert waits == sorted(waits)
    assert 1 <= sum(waits) <= 30


def test_blob_after_broken_connection_is_read_again(registry: Registry) -> None:
    digest = registry.blob(b"content that is long enough")
    registry.broken = 2
    assert Repository(f"{registry.address}/a/b:1").blob(digest, read) == b"content that is long enough"
    registry.broken = 3
    error = unreadable(Repository(f"{registry.address}/a/b:1"), digest)
    assert error.startswith(f"{registry.address}/a/b:1: {digest}: connection to {registry.address} broke: ")


def test_digest_of_silent_registry_is_one_line(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("containers.registry.transport._TIMEOUTS", (0.2, 0.2))
    registry.silent.set()
    try:
        with pytest.raises(
            SlipwayError, match=rf"^{registry.address}/a/b:1: request to {registry.address} failed: .*timed"
        ):
            Repository(f"{registry.address}/a/b:1").digest()
    finally:
        registry.silent.clear()
    assert len(registry.requests) == 4


def test_missing_image_does_not_exist_and_cannot_be_read(registry: Registry) -> None:
    digest = digest_of(b"deleted")
    repository = Repository(f"{registry.address}/a/b@{digest}")
    assert not repository.exists()
    with pytest.raises(
        SlipwayError, match=r"no such image, tag or digest in the registry; it may have been deleted \(404\)"
    ):
        repository.manifest()
    assert "may have been deleted (404)" in unreadable(repository, digest)


def test_of_machine_github_token_is_for_ghcr_only(monkeypatch: pytest.MonkeyPatch) -> None:
    skip_retry_waits(monkeypatch)
    monkeypatch.setenv("GITHUB_ACTOR", "me")
    assert credentials.of_machine("ghcr.io") is None
    monkeypatch.setenv("GITHUB_TOKEN", "s3cret")
    assert credentials.of_machine("ghcr.io") == Login("ghcr.io", "me", "s3cret")
    assert credentials.of_machine("r.example") is None


@pytest.mark.parametrize("token", ["t", None])
def test_login_is_sent_to_its_own_host_only(registry: Registry, token: str | None) -> None:
    registry.token, registry.login = token, ("me", "s3cret")
    digest = registry.blob(b"content")
    reference = f"{registry.address}/a/b:1"
    assert Repository(reference, Login(registry.address, "me", "s3cret")).blob(digest, read) == b"content"
    for login in (None, Login("elsewhere.example", "me", "s3cret"), Login(registry.address, "me", "other")):
        error = unreadable(Repository(reference, login), digest)
        assert error.endswith(
            f"the registry requires a login with pull access; run `docker login {registry.address}` (401)"
        )
        assert "s3cret" not in error
    assert "s3cret" not in repr(Login("h", "me", "s3cret"))


def test_blob_with_docker_login_is_read(registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    registry.token, registry.login = "t", ("me", "s3cret")
    auth = base64.b64encode(b"me:s3cret").decode()
    (tmp_path / "config.json").write_text(json.dumps({"auths": {registry.address: {"auth": auth}}}))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    assert Repository(f"{registry.address}/a/b:1").blob(registry.blob(b"content"), read) == b"content"


@pytest.mark.parametrize("reference", ["a b:1", "r.example/x", "r.example/X:1", "user:secret@r.example/x:1", ""])
def test_repository_of_invalid_reference_is_refused(reference: str) -> None:
    with pytest.raises(SlipwayError, match="expected an image reference with a tag or a digest"):
        Repository(reference)


def upload(registry: Registry) -> Callable[[], None]:
    """Return what pushes a blob that the registry lacks."""
    content = b"a layer"
    repository = Repository(f"{registry.address}/a/b:1")
    return lambda: repository.push_blob(digest_of(content), len(content), io.BytesIO(content))


def test_upload_that_the_registry_forgot_begins_anew(registry: Registry) -> None:
    """Behind one name there may be several registries that do not share what they have of an upload."""
    registry.uploads = [404]
    upload(registry)()
    assert [request.split()[0] for request in registry.requests] == ["HEAD", "POST", "PUT"] * 2
    assert b"a layer" in registry.blobs.values()


@pytest.mark.parametrize(
    ("status", "reason"),
    [(404, "the registry has no such repository, or has forgotten the upload"), (413, "takes no blob this large")],
)
def test_refused_upload_says_what_to_do(registry: Registry, status: int, reason: str) -> None:
    registry.uploads = [status] * 3
    error = refusal_line(upload(registry))
    assert reason in error
    assert error.endswith(f"({status})")


def test_registry_that_rewrites_manifests_is_refused(registry: Registry) -> None:
    """What is signed and pulled by its digest would not be there."""
    repository = Repository(f"{registry.address}/a/b:1")
    for registry.rewritten in ("", digest_of(b"{}")):  # one that states none has its word taken
        repository.put("1", b"{}", MANIFEST)
    registry.rewritten = digest_of(b"another manifest")
    error = refusal_line(repository.put, "1", b"{}", MANIFEST)
    assert f"was sent the manifest {digest_of(b'{}')} and keeps {registry.rewritten}" in error
