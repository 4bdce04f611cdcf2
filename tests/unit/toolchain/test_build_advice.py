"""What a build's error says of its cause."""

from __future__ import annotations

from tests.helpers.every import every
from toolchain.provider import build


@every(
    "output, hosts",
    [
        ("fatal: unable to access 'https://git.test/a/b/': Could not resolve host: git.test\nno tag 'v1'", "git.test"),
        ("curl: (7) Failed to connect to a.test port 443 after 1 ms", "a.test"),
        ("W: Temporary failure resolving 'deb.test'\nE: Temporary failure resolving 'sec.test'", "deb.test, sec.test"),
        ("NameResolutionError(\"Failed to resolve 'index.test' ([Errno -2])\")", "index.test"),
    ],
)
def test_build_error_without_network_names_host(output: str, hosts: str) -> None:
    assert (
        build._advice(output)
        == f"\nThe build did not reach {hosts}: check the network, or name a mirror that it reaches."
    )


def test_build_error_of_an_engine_without_zstd_says_what_to_do() -> None:
    """The words of Docker 20.10.24 about a parent; those about an archive of the context are others."""
    layer = "failed to register layer: Error processing tar file(exit status 1): archive/tar: invalid tar header"
    assert "or publish the image with slipway:compression: {kind: gzip}" in build._advice(layer)
    assert build._advice("step 'ADD a.tar /' failed: archive/tar: invalid tar header") == ""


@every(
    "output",
    [
        "step 'RUN false' failed: exit code: 1",
        "failed to resolve source metadata for r.test/base:1: r.test/base:1: not found",
        "Failed to connect to bus: No such file or directory",
    ],
)
def test_build_error_of_other_kind_has_no_advice(output: str) -> None:
    assert build._advice(output) == ""


@every(
    "output",
    [
        "fatal: could not read Username for 'https://closed.test:8443': terminal prompts disabled",
        "fatal: Authentication failed for 'https://closed.test/a/b/'",
        "E: Failed to fetch https://closed.test/debian/dists/bookworm/InRelease  401  Unauthorized [IP: 10.0.0.1 443]",
        "curl: (22) The requested URL returned error: 401\nfetch-archive: cannot download https://closed.test/a.tar",
        "ERROR: HTTP error 403 while getting x\nERROR: 403 Client Error: Forbidden for url: https://closed.test/simple/",
        'username = ask_input(f"User for {netloc}: ")\nEOFError: EOF when reading a line',
    ],
)
def test_build_error_about_login_names_host_and_key(output: str) -> None:
    advice = build._advice(output, ["https://closed.test/simple"])
    assert advice.startswith("\nclosed.test asks for a login: give slipway:buildSecrets")
    assert "'slipway:buildSecrets[\"closed.test\"].password'" in advice


def test_build_error_with_full_disk_says_where() -> None:
    assert "where the Docker daemon keeps its data" in build._advice("write /x: No space left on device")


@every("answer", ["no such host", "server misbehaving", "read udp 10.0.0.9:4->10.0.0.1:53: i/o timeout"])
def test_old_engine_with_containerd_store_has_advice(answer: str) -> None:
    """The line is that of Docker 26.1.5; the end of it is what the machine's name server does (golang/go, net/net.go)."""
    error = (
        "step '[internal] load remote build context' failed: failed to read downloaded context: failed to load cache "
        'key: Get "http://build-context-k0yn9zy0vbvb5mjyn4ce3c4qd": dial tcp: lookup '
        f"build-context-k0yn9zy0vbvb5mjyn4ce3c4qd on 10.0.0.1:53: {answer}"
    )
    assert "before 27.5 takes no build context" in build._advice(error)
