"""What BuildKit refuses has no key. BuildKit's own verdict on each row was read with its `dockerfile2llb`, v0.26.3."""

from __future__ import annotations

from pathlib import Path

import pytest

from containers.dockerfile import instruction_values
from containers.dockerfile.build_key import build_key
from containers.dockerfile.instructions import DockerfileError
from tests.helpers.every import every

REFUSED = [
    ("FROM --platform=$NO scratch", "1: FROM: nothing: expected a platform such as linux/amd64"),
    ("FROM --platform=foo scratch", "1: FROM: foo: expected a platform such as linux/amd64"),
    ("FROM --platform=linux/ scratch", "1: FROM: linux/: expected a platform such as linux/amd64"),
    ("FROM --platform=a/b/c/d scratch", "1: FROM: a/b/c/d: expected a platform such as linux/amd64"),
    ("FROM --platform scratch", "1: FROM: --platform: expected --platform= and a value"),
    ("FROM busybox:", "1: FROM: busybox:: invalid reference format; expected such as debian:12"),
    (
        "FROM Busybox",
        "1: FROM: Busybox: invalid reference format: repository name must be lowercase; expected such as debian:12",
    ),
    ("FROM x@sha256:12", "1: FROM: x@sha256:12: invalid reference format; expected such as debian:12"),
    ("# check=foo|FROM x", "1: check=foo: expected skip=, experimental= or error=true"),
    ("# check=skip=all;error=x|FROM x", "1: check=skip=all;error=x: expected skip=, experimental= or error=true"),
    ('ARG A="b|FROM x', '1: ARG: "b: a quote is not closed'),
    ("ARG A=${B:?gone}|FROM x", "1: ARG: ${B:?gone}: B: gone"),
    ("FROM x|ARG A=${B", "2: ARG: ${B: ${B...} is a form that BuildKit does not have"),
    ("FROM x|ENV A='b", "2: ENV: 'b: a quote is not closed"),
    ('FROM x|ENV A b"c', '2: ENV: b"c: a quote is not closed'),
    ('FROM x|LABEL "a=b', '2: LABEL: "a: a quote is not closed'),
    ('FROM x|WORKDIR "a', '2: WORKDIR: "a: a quote is not closed'),
    ("FROM scratch|USER ${A:?none}", "2: USER: ${A:?none}: A: none"),
    ('FROM x|COPY a "b', '2: COPY: "b: a quote is not closed'),
    ("FROM x|COPY a <<E|b|E", "2: COPY: <<E: expected a path as the target"),
    ("FROM x|COPY http://a/b /c", "2: COPY: http://a/b: expected a path; ADD fetches addresses"),
    ("FROM x|COPY git@a.b:c.git /c", "2: COPY: git@a.b:c.git: expected a path; ADD fetches addresses"),
    (
        "FROM x|COPY --chmod=999 a b",
        "2: COPY: --chmod=999: expected octal digits of at most 7777, or a mode such as u+x",
    ),
    (
        "FROM x|COPY --chmod=u+y a b",
        "2: COPY: --chmod=u+y: expected octal digits of at most 7777, or a mode such as u+x",
    ),
    ("FROM x|COPY --link=1 a b", "2: COPY: --link=1: expected --link= and true or false"),
    ("FROM x|COPY --chown=1 --chown=2 a b", "2: COPY: --chown is given twice; keep one"),
    ("FROM x|COPY --chown a b", "2: COPY: --chown: expected --chown= and a value"),
    (
        "FROM x|COPY --from=A a b",
        "2: COPY: A: invalid reference format: repository name must be lowercase; expected such as debian:12",
    ),
    ("FROM x|ADD --checksum=sha256:0 a b", "2: ADD: --checksum: a: expected an address of http or git"),
    ("FROM x|ADD --checksum=a http://b http://c d", "2: ADD: --checksum: expected one source"),
    (
        "FROM $A AS a|FROM x",
        "1: FROM: $A is empty; declare it by ARG before the first FROM, with a value or a default",
    ),
    ("ARG V|FROM x:$V AS a|FROM x", "2: FROM: x:: invalid reference format; expected such as debian:12"),
    ("FROM --platform=foo x AS a|FROM x", "1: FROM: foo: expected a platform such as linux/amd64"),
    ("FROM x|RUN []", "2: RUN: []: expected a command"),
    ("FROM x|RUN --network=foo a", "2: RUN: --network=foo: expected --network= and default, none or host"),
    ("FROM x|RUN --security=foo a", "2: RUN: --security=foo: expected --security= and sandbox or insecure"),
    ("FROM x|RUN --mount= a", "2: RUN: --mount=: expected --mount= and options such as type=cache,target=/x"),
    ("FROM x|RUN --mount=type=foo a", "2: RUN: --mount: type=foo: expected bind, cache, tmpfs, secret or ssh"),
    (
        "FROM x|RUN --mount=typ=bind a",
        "2: RUN: --mount: typ: expected one of from, source, target, id, env, type, sharing, mode, uid, gid, size, readonly, readwrite, required",
    ),
    ("FROM x|RUN --mount=id,target=/a a", "2: RUN: --mount: id: expected id= and a value"),
    ("FROM x|RUN --mount=rw=,target=/a a", "2: RUN: --mount: readwrite=nothing: expected true or false"),
    ("FROM x|RUN --mount=target=/ a", "2: RUN: --mount: target=/: expected a folder below /"),
    ("FROM scratch|RUN --mount=target=. a", "2: RUN: --mount: target=.: expected a folder below /"),
    (
        "FROM x|RUN --mount=required,target=/a a",
        "2: RUN: --mount: required: expected type=secret or type=ssh before it",
    ),
    (
        "FROM x|RUN --mount=uid=1,target=/a a",
        "2: RUN: --mount: uid: expected type=secret or type=ssh or type=cache, not type=bind",
    ),
    ("FROM x|RUN --mount=sharing=locked,target=/a a", "2: RUN: --mount: sharing: expected type=cache, not type=bind"),
    ("FROM x|RUN --mount=type=cache,mode=9,target=/a a", "2: RUN: --mount: mode=9: expected octal digits"),
    ("FROM x|RUN --mount=type=tmpfs,size=x,target=/a a", "2: RUN: --mount: size=x: expected a size such as 512m"),
    ("FROM x|RUN --mount=type=secret a", "2: RUN: --mount: type=secret: expected id=, and no source="),
    ("FROM x|RUN --mount=type=secret,id=a,src=b a", "2: RUN: --mount: type=secret: expected id=, and no source="),
    (
        "FROM x|RUN --mount=type=secret,id=a,from=b a",
        "2: RUN: --mount: from: expected type=bind or type=cache or type=tmpfs or type=ssh, not type=secret",
    ),
    (
        "FROM x|RUN --mount=type=ssh,src=a a",
        "2: RUN: --mount: source: expected type=bind or type=cache or type=tmpfs or type=secret, not type=ssh",
    ),
    ("FROM x|EXPOSE 70000", "2: EXPOSE: 70000: expected a port of at most 65535, such as 80, 80/udp or 80-90"),
    (
        "FROM x|EXPOSE 9999999999",
        "2: EXPOSE: 9999999999: expected a port of at most 65535, such as 80, 80/udp or 80-90",
    ),
    ("FROM x|EXPOSE 90-80", "2: EXPOSE: 90-80: expected a port of at most 65535, such as 80, 80/udp or 80-90"),
    ("FROM x|EXPOSE 80/x", "2: EXPOSE: 80/x: expected a port of at most 65535, such as 80, 80/udp or 80-90"),
    ("FROM scratch|VOLUME $A", "2: VOLUME: $A: expected a path"),
    ("FROM x|STOPSIGNAL SIGX", "2: STOPSIGNAL: SIGX: expected a signal such as SIGTERM or 15"),
    ("FROM x|HEALTHCHECK", "2: HEALTHCHECK: nothing: expected NONE, or CMD and a command"),
    ("FROM x|HEALTHCHECK CMD []", "2: HEALTHCHECK: CMD []: expected NONE, or CMD and a command"),
    (
        "FROM x|HEALTHCHECK --interval=1 CMD a",
        "2: HEALTHCHECK: --interval=1: expected --interval= and a time of at least 1ms, such as 1m30s",
    ),
    (
        "FROM x|HEALTHCHECK --retries=-1 CMD a",
        "2: HEALTHCHECK: --retries=-1: expected --retries= and a number of at most 2147483647",
    ),
    (
        "FROM x|HEALTHCHECK --timeout=999us CMD a",
        "2: HEALTHCHECK: --timeout=999us: expected --timeout= and a time of at least 1ms, such as 1m30s",
    ),
    (
        "FROM x|HEALTHCHECK --interval=2562048h CMD a",
        "2: HEALTHCHECK: --interval=2562048h: expected --interval= and a time of at least 1ms, such as 1m30s",
    ),
    *(
        (
            f"FROM x|HEALTHCHECK --retries={number} CMD a",
            f"2: HEALTHCHECK: --retries={number}: expected --retries= and a number of at most 2147483647",
        )
        for number in ("3ns", "2147483648", "9" * 30)
    ),
    *(
        (
            f"FROM x|HEALTHCHECK --timeout={time} CMD a",
            f"2: HEALTHCHECK: --timeout={time}: expected --timeout= and a time of at least 1ms, such as 1m30s",
        )
        for time in ("+", "-1s", "9223372036854775808ns")
    ),
]
OF_PORTS = ("80-82:90-93", "8080:80-90", "a:80", "1.2.3:80:90", "99999:80", "-80", "80-", "80/tcp/udp")
OF_GIT = (
    ("?branch=main&tag=v1", "expected one value of ref"),
    ("?ref=main#dev", "expected one value of ref"),
    ("?tag=v1#refs/heads/v1", "expected one value of ref"),
    ("?subdir=/d#main:e", "expected one value of subdir"),
    ("?ref=a&ref=a", "expected one value of each query"),
    ("?ref=", "?ref=: expected a value"),
    ("?keep-git-dir=maybe", "?keep-git-dir=maybe: expected true or false"),
    ("?submodules=no", "?submodules=no: expected true or false"),
)
REFUSED += [
    (f"FROM x|EXPOSE {port}", f"2: EXPOSE: {port}: expected a port of at most 65535, such as 80, 80/udp or 80-90")
    for port in OF_PORTS
]
REFUSED += [
    (f"FROM x|ADD https://h/a.git{query} /c", f"2: ADD: https://h/a.git{query}: {flaw}") for query, flaw in OF_GIT
]
REFUSED += [
    (f"FROM x|STOPSIGNAL {signal}", f"2: STOPSIGNAL: {signal}: expected a signal such as SIGTERM or 15")
    for signal in ("SIGRTMIN+16", "RTMAX-15", "RTMIN-1", "SIGRTMAX+1", "9999999999999999999")
]
REFUSED += [
    (
        f"FROM x|ADD --checksum={checksum} https://h/a c",
        f"2: ADD: https://h/a: {checksum}: expected --checksum=sha256: and 64 digits",
    )
    for checksum in ("sha256:abc", "sha512:" + "0" * 64, "md5:abc", "0" * 64, "SHA256:" + "0" * 64)
]
REFUSED += [
    (
        "FROM x|ADD git@h:a.git?nope=v1 /c",
        "2: ADD: git@h:a.git?nope=v1: ?nope=v1: expected one of ref, tag, branch, subdir, checksum, commit, keep-git-dir, submodules, fetch-by-commit, mtime",
    ),
    (
        "FROM x|ADD git@h:a.git?nope= /c",
        "2: ADD: git@h:a.git?nope=: ?nope=: expected one of ref, tag, branch, subdir, checksum, commit, keep-git-dir, submodules, fetch-by-commit, mtime",
    ),
    (
        "FROM x|ADD --checksum=a git://h/a?commit=b /c",
        "2: ADD: git://h/a?commit=b: expected one value of checksum",
    ),
    (
        "FROM x|ADD --keep-git-dir=false https://h/a.git?keep-git-dir /c",
        "2: ADD: https://h/a.git?keep-git-dir: expected one value of keep-git-dir",
    ),
    ("FROM x|RUN --device=x, a", "2: RUN: --device=x,: expected --device= and a name"),
    (
        "FROM x|ADD https://h/a.git?a%3Bb=c /c",
        "2: ADD: https://h/a.git?a%3Bb=c: ?a;b=c: expected one of ref, tag, branch, subdir, checksum, commit, keep-git-dir, submodules, fetch-by-commit, mtime",
    ),
    ("FROM ${x:?no} AS y|FROM x", "1: FROM: ${x:?no}: x: no"),
    ("FROM ${x AS y|FROM x", "1: FROM: ${x: ${x...} is a form that BuildKit does not have"),
    ('FROM x|COPY <<E /|${a"b}|E', r"2: COPY: ${a.b}\nE\n: ${a....} is a form that BuildKit does not have"),
    ("# escape=`|FROM x|COPY <<E /|`${B|E", r"3: COPY: `${B\nE\n: ${B\n...} is a form that BuildKit does not have"),
    ("FROM scratch|RUN --mount=type=cache a", "2: RUN: --mount: target=: expected a folder below /"),
    ("FROM x|RUN --device=a/b=c,bogus=1 a", "2: RUN: --device=a/b=c,bogus=1: expected --device= and a name"),
    ("FROM x|COPY <<E /a|${B|E", r"2: COPY: ${B\nE\n: ${B\n...} is a form that BuildKit does not have"),
]
TAKEN = [
    "FROM --platform=linux x",
    "FROM --platform=windows(10.0.17763)/amd64 x",
    "FROM --platform=windows(10.0+win32k)/amd64 x",
    "FROM --platform=$TARGETPLATFORM x",
    "FROM x.y:5/a/b:c@sha256:" + "0" * 64,
    "# check=skip=all;error=True|FROM x",
    "FROM x|ENV A=${B:?gone} C=\"d 'e\" F=g\\'",
    "FROM x|COPY --chmod=u+x,g=rX,o-w --chown= --link=TRUE a b",
    "FROM x|COPY --chmod=$A --from=y a b",
    "FROM x|ADD --checksum=sha256:" + "0" * 64 + " https://a/b c",
    "FROM x|RUN --mount=target=. --mount=type=cache,dst=/c,sharing=LOCKED,mode=0755,uid=1 --network=none a",
    "FROM x|RUN --mount=type=secret,target=/a --mount=type=ssh,required --mount=type=tmpfs,size=1.5GiB,dst=/b a",
    "FROM x|ARG A=cache|RUN --mount=type=$A,sharing=locked,target=$B a",
    "FROM x|EXPOSE 80/ 81/TCP 90-99 1.2.3.4:5:6 $A",
    "FROM x|VOLUME $A|STOPSIGNAL $B|STOPSIGNAL rtmin+3|STOPSIGNAL 15",
    "FROM x|HEALTHCHECK NONE",
    "FROM x|HEALTHCHECK --retries=x none",
    "# check= |FROM x",
    "FROM x|RUN --mount=type=cache,target=/c,uid=1000680000,gid=4294967295,mode=00000000755 a",
    "FROM x|RUN --mount=type=tmpfs,target=/c,size=1e9 a",
    "FROM x AS a|RUN []|FROM y",
    "FROM $BUILDOS AS a|FROM x",
    "FROM x|EXPOSE :80 1.2.3.4::90 [::1]:80:90 ::1:80:90 80-82:90 8080-8090:80 80-82:90-92 0-65535/udp",
    "FROM x|STOPSIGNAL SIGRTMIN+15|STOPSIGNAL RTMAX-14|STOPSIGNAL -1",
    "FROM x|HEALTHCHECK --interval=1ms --timeout=2562047h --start-period=1.s --start-interval=+.5m CMD a",
    "FROM x|RUN --device=required,a/b=c,required=true a",
    "FROM x|COPY <<E <<'F' /a/|\"'$B|E|${B|F",
    "FROM x|ADD https://h/a.git?tag=v1&subdir=d&submodules&keep-git-dir=1&commit=abc#refs/tags/v1:d /c",
    "FROM x|ADD --keep-git-dir https://h/a.git?mtime=commit&keep-git-dir=true /c",
    "FROM x|ADD https://h/a?foo=1&foo=2#bar /c",
    "FROM x|ADD --checksum=abc https://h/a.git /c",
    "FROM x|ADD --checksum=sha512:" + "0" * 128 + " https://h/a /c",
    "FROM x|HEALTHCHECK --interval=.5s --timeout=1h1.5m --retries=+3 --start-period=0 cmd a",
    "FROM x|HEALTHCHECK --interval=-0s --timeout=-0 --retries=2147483647 cmd a",
    "FROM x|RUN --device=,x a",
    "FROM x|EXPOSE 0000000080|STOPSIGNAL 9000000000000000000",
    "FROM x|ADD https://x/y.git?a;b=c&%zz=c /c",
    "# escape=`|FROM x|COPY <<E /|\\${B|E",
]


def key_of(folder: Path, text: str) -> str:
    (folder / "D").write_text(text.replace("|", "\n") + "\n")
    (folder / "a").touch()
    return build_key(folder / "D", folder, None, {}, "linux/amd64").key


@every("text, message", REFUSED)
def test_build_that_buildkit_refuses_has_no_key(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DockerfileError) as error:
        key_of(tmp_path, text)
    assert str(error.value) == f"{tmp_path}/D:{message}"


@pytest.mark.parametrize("text", TAKEN)
def test_build_that_buildkit_takes_has_a_key(tmp_path: Path, text: str) -> None:
    assert len(key_of(tmp_path, text)) == 64


def test_default_that_an_argument_replaces_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "D").write_text('ARG B\nARG I=${B:?gone}\nFROM $I\nARG V="x\n')
    given = {"I": "debian:12", "V": "1"}
    assert build_key(tmp_path / "D", tmp_path, None, given, "linux/amd64").key
    for name in given:
        left = {key: value for key, value in given.items() if key != name}
        with pytest.raises(DockerfileError):
            build_key(tmp_path / "D", tmp_path, None, left, "linux/amd64")


@every(
    "one, other",
    [
        ("FROM x|RUN --mount=type=cache,target=/c a", "FROM x|RUN --mount=type=cache,target=/c,from=scratch a"),
        ("FROM x|COPY a /${B}", "FROM x|COPY a /${B:-}"),
        ("FROM x|COPY a /$B", "FROM x|COPY a /${B-}"),
        ("FROM x|HEALTHCHECK --interval=90s CMD a", "FROM x|HEALTHCHECK --interval=1.5m CMD a"),
        ("FROM x|EXPOSE 80-81/tcp", "FROM x|EXPOSE 8080-8081:80-81"),
    ],
)
def test_forms_of_one_step_have_one_key(tmp_path: Path, one: str, other: str) -> None:
    assert key_of(tmp_path, one) == key_of(tmp_path, other)


def test_long_time_is_read_in_one_pass() -> None:
    assert instruction_values.nanoseconds("0" * 200_000) is None
    assert instruction_values.nanoseconds("0" * 200_000 + "1s") == 10**9
    assert instruction_values.nanoseconds("9" * 200_000 + "h") is None
