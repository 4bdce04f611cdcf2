"""Requests to registries: credentials, refusals, broken connections and corrupt content."""

from __future__ import annotations

import base64
import io
import json
import time
from collections.abc import Callable
from email.utils import formatdate
from pathlib import Path
from typing import IO, Any

import pytest
import requests

from containers.blob import BlobUnreadable, parsed
from containers.errors import SlipwayError
from containers.registry import attempts, credentials
from containers.registry.client import Repository
from containers.registry.credentials import Login
from tests.fakes.registry import MANIFEST, Registry, digest_of, skip_retry_waits
from tests.helpers.every import every
from tests.helpers.refusals import refusal_line

AS_IT_IS = {"_WAITS": attempts._WAITS, "_LIMITED": attempts._LIMITED}
"""The waits, before :func:`skip_retry_waits` takes them out."""
BUSY = [429, 500, 502, 503, 504]


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


@pytest.mark.parametrize("status", BUSY)
def test_blob_after_temporary_error_is_retried(registry: Registry, status: int) -> None:
    digest = registry.blob(b"content")
    registry.refusals = [status] * 3
    assert Repository(f"{registry.address}/a/b:1").blob(digest, read) == b"content"
    registry.refusals = [status] * 4
    assert unreadable(Repository(f"{registry.address}/a/b:1"), digest).endswith(f"({status}), sent 4 times in 0 s")


class Clock:
    """A clock that a sleep moves; no other thread's."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> Clock:  # noqa: ARG001 - it takes the waits out
    value = Clock()
    for name, wait in AS_IT_IS.items():
        monkeypatch.setattr(attempts, name, wait)
    monkeypatch.setattr(attempts, "time", value)
    return value


CONTENT = b"a layer"


def start_upload(repository: Repository) -> None:
    repository.push_blob(digest_of(CONTENT), len(CONTENT), io.BytesIO(CONTENT))


REQUESTS: dict[str, Callable[[Repository], object]] = {
    "POST": start_upload,
    "PUT": lambda repository: repository.put("1", b"{}", MANIFEST),
    "HEAD": Repository.exists,
    "GET": Repository.manifest,
}


@pytest.mark.parametrize("method", REQUESTS)
@pytest.mark.parametrize("status", BUSY)
def test_each_request_waits_for_a_busy_registry(registry: Registry, clock: Clock, method: str, status: int) -> None:
    """Waits grow, and what was waited for is said once in the end, or with the refusal."""
    registry.manifest("a/b:1", MANIFEST, {"layers": []})
    said: list[str] = []
    repository = Repository(f"{registry.address}/a/b:1", progress=said.append)
    registry.answers[method] = [(status, {})] * 3
    REQUESTS[method](repository)
    waited = 15 if status == 429 else 3.5
    assert clock.now == waited
    (line,) = repository.waits
    assert line.startswith(f"{registry.address}: sent 4 times in {waited} s, after {status} ")
    assert said[-1].startswith(f"{registry.address} answers with {status} ")
    if method != "GET":
        registry.blobs.clear()
        registry.digests.clear()
    registry.answers[method] = [(status, {})] * 4
    assert refusal_line(REQUESTS[method], repository).endswith(f"({status}), sent 4 times in {waited} s")
    assert not registry.answers[method]


@pytest.mark.parametrize(
    ("header", "waited"),
    [
        ("7", 7.0),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0.5),
        ("0", 0.5),
        ("-1", 0.5),
        ("soon", 0.5),
        ("9" * 5000, 0.5),
        ("Fri, 31 Dec 99999999 23:59:59 GMT", 0.5),
    ],
    ids=range(7),
)
def test_busy_registry_is_given_the_time_it_asks_for(
    registry: Registry, clock: Clock, caplog: pytest.LogCaptureFixture, header: str, waited: float
) -> None:
    registry.answers["PUT"] = [(503, {"Retry-After": header})]
    REQUESTS["PUT"](Repository(f"{registry.address}/a/b:1"))
    assert clock.now == waited
    told = [f"{registry.address} answers with 503 Service Unavailable: waiting {waited:.0f} s"] if waited >= 5 else []
    assert caplog.messages == told


def test_busy_registry_may_name_a_date(registry: Registry, clock: Clock) -> None:
    registry.answers["POST"] = [(503, {"Retry-After": formatdate(time.time() + 40, usegmt=True)})]
    REQUESTS["POST"](Repository(f"{registry.address}/a/b:1"))
    assert 30 < clock.now <= 40


def test_registry_that_asks_for_hours_is_not_waited_for(registry: Registry, clock: Clock) -> None:
    registry.answers["HEAD"] = [(429, {"Retry-After": "7200"})]
    error = refusal_line(Repository(f"{registry.address}/a/b:1").exists)
    assert error.endswith("try again later (429), the registry asks for a wait of 7200 s")
    assert clock.now == 0


def test_wait_for_a_busy_registry_can_be_ended(registry: Registry, clock: Clock) -> None:
    def cancel(_: str) -> None:
        if clock.now > 1:
            raise SlipwayError("cancelled")

    registry.answers["PUT"] = [(429, {"Retry-After": "50"})]
    assert refusal_line(REQUESTS["PUT"], Repository(f"{registry.address}/a/b:1", progress=cancel)) == "cancelled"
    assert clock.now < 3


def test_tag_that_must_not_move_may_be_there_already(registry: Registry) -> None:
    """A proxy gave up while the registry took the manifest, which it then refuses to take again."""
    repository = Repository(f"{registry.address}/a/b:1")
    for there, refused in ((b"{}", False), (b"[]", True)):
        registry.digests["a/b:1"] = digest_of(there)
        registry.manifests[digest_of(there)] = (MANIFEST, there)
        registry.answers["PUT"] = [(504, {}), (400, {})]
        if refused:
            assert refusal_line(repository.put, "1", b"{}", MANIFEST).endswith("(400), sent 2 times in 0 s")
        else:
            repository.put("1", b"{}", MANIFEST)
    registry.answers = {"PUT": [(504, {}), (413, {})], "HEAD": [(500, {})] * 4}
    assert refusal_line(repository.put, "1", b"{}", MANIFEST).endswith("(413), sent 2 times in 0 s")


def test_busy_token_server_is_not_a_refused_login(registry: Registry) -> None:
    registry.token = "t"
    digest = registry.blob(b"content")
    repository = Repository(f"{registry.address}/a/b:1")
    registry.token_answers = [503] * 4
    assert unreadable(repository, digest).endswith("its token server answers 503 (sent 4 times in 0 s)")
    registry.token_answers = [429] * 3
    assert repository.blob(digest, read) == b"content"


def test_token_server_that_is_down_is_asked_four_times(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not four times by each of four requests to the registry, which answers all of them."""
    registry.token, sent = "t", list[str]()
    repository = Repository(f"{registry.address}/a/b:1")
    send = repository._transport._session.request

    def cut(method: str, url: str, **options: Any) -> Any:
        sent.append(url)
        if url.endswith("/token"):
            raise requests.ConnectionError("no route")
        return send(method, url, **options)

    monkeypatch.setattr(repository._transport._session, "request", cut)
    assert refusal_line(repository.exists).endswith("its token server does not answer: no route (sent 4 times in 0 s)")
    assert len(sent) == 5


@pytest.mark.parametrize(
    "ask",
    [
        Repository.exists,
        Repository.digest,
        Repository.visible_digest,
        Repository.manifest,
        Repository.tags,
        lambda repository: repository.blob_size(digest_of(CONTENT)),
        REQUESTS["PUT"],
        start_upload,
        lambda repository: repository.mount_blob(digest_of(CONTENT), "a/c"),
    ],
    ids=range(9),
)
def test_login_page_is_no_answer_of_a_registry(registry: Registry, ask: Callable[[Repository], object]) -> None:
    """Not even one as long as the blob: its digest is not asked for before an upload."""
    page = [(200, {"Content-Type": "text/html; charset=utf-8", "Content-Length": str(len(CONTENT))})]
    registry.answers = dict.fromkeys(REQUESTS, page * 9)
    line = refusal_line(ask, Repository(f"{registry.address}/a/b:1"))
    assert f"{registry.address} answers with a web page, as a login does" in line


def test_type_of_a_page_with_a_digest_is_an_answer(registry: Registry) -> None:
    """A registry may send any type. What states its digest, or is read and has it, is no login's page."""
    repository, digest = Repository(f"{registry.address}/a/b:1"), digest_of(b"<html> ")
    page = {"Content-Type": "text/html"}
    registry.answers["HEAD"] = [(200, page | {"Docker-Content-Digest": digest})] * 2
    assert (repository.exists(), repository.blob_size(digest)) == (True, 7)
    registry.answers["GET"] = [(200, page)] * 2
    assert repository.blob(digest, read) == b"<html> "
    assert "a blob is corrupt: " in unreadable(repository, digest_of(CONTENT))


def test_manifest_without_headers_is_asked_for_itself(registry: Registry) -> None:
    """A HEAD that states neither type nor digest is no word on what is there."""
    digest = registry.manifest("a/b:1", MANIFEST, {"layers": []})
    repository = Repository(f"{registry.address}/a/b:1")
    for ask, expected in ((repository.exists, True), (repository.digest, digest), (repository.visible_digest, digest)):
        registry.answers["HEAD"] = [(200, {})]
        assert ask() == expected
        registry.answers = {"HEAD": [(200, {})], "GET": [(200, {"Content-Type": "application/json"})]}
        assert "the manifest is not a JSON object" in refusal_line(ask)
    registry.manifests[digest] = ("application/json", b'{"error": "log in"}')
    registry.digests["a/b:1"] = digest_of(b'{"error": "log in"}')
    registry.manifests[digest_of(b'{"error": "log in"}')] = registry.manifests[digest]
    registry.answers["HEAD"] = [(200, {})]
    assert "sends no manifest, but 'application/json'" in refusal_line(repository.exists)


def test_size_of_another_blob_is_none(registry: Registry) -> None:
    registry.answers["HEAD"] = [(200, {"Docker-Content-Digest": digest_of(b"other")})]
    assert Repository(f"{registry.address}/a/b:1").blob_size(digest_of(CONTENT)) is None


def test_blob_after_broken_connection_is_read_again(registry: Registry) -> None:
    digest = registry.blob(b"content that is long enough")
    registry.broken = 3
    assert Repository(f"{registry.address}/a/b:1").blob(digest, read) == b"content that is long enough"
    registry.broken = 4
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


@every("reference", ["a b:1", "r.example/x", "r.example/X:1", "user:secret@r.example/x:1", ""])
def test_repository_of_invalid_reference_is_refused(reference: str) -> None:
    with pytest.raises(SlipwayError, match="expected an image reference with a tag or a digest"):
        Repository(reference)


def upload(registry: Registry) -> Callable[[], None]:
    """Return what pushes a blob that the registry lacks."""
    repository = Repository(f"{registry.address}/a/b:1")
    return lambda: start_upload(repository)


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
    registry.uploads = [status] * 4
    error = refusal_line(upload(registry))
    assert reason in error
    assert f"({status}" in error


def test_registry_that_rewrites_manifests_is_refused(registry: Registry) -> None:
    """What is signed and pulled by its digest would not be there."""
    repository = Repository(f"{registry.address}/a/b:1")
    for registry.rewritten in ("", digest_of(b"{}")):  # one that states none has its word taken
        repository.put("1", b"{}", MANIFEST)
    registry.rewritten = digest_of(b"another manifest")
    error = refusal_line(repository.put, "1", b"{}", MANIFEST)
    assert f"was sent the manifest {digest_of(b'{}')} and keeps {registry.rewritten}" in error


@every(
    "text, read",
    [
        (r"\ud800", "\ufffd"),
        (r"\uDFFFx\\ud800", "\ufffdx\\ud800"),
        (r"\ud83d\ude00\ud83d", "\U0001f600\ufffd"),
        (r"\ud800\ud83d\ude00", "\ufffd\U0001f600"),
        (r"\u0041\n", "A\n"),
    ],
)
def test_half_a_character_is_read_as_engines_do(text: str, read: str) -> None:
    """Python would keep it, and then fail to write it: into a squashfs, or to a terminal."""
    assert parsed(f'["{text}"]'.encode()) == [read]
