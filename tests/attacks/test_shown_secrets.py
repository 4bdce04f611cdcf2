"""Lines of files are shown in previews, in logs that others read: a secret in them is not."""

from __future__ import annotations

import time

import pytest

from containers.secret_words import without_secrets
from stacks.differences import changed_lines

SECRET = "hunter2hunter2"
BASE64 = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"


@pytest.mark.parametrize(
    "line",
    [
        f"export HF_TOKEN={SECRET}",
        f'  "password": "{SECRET} and more",',
        f"password: '{SECRET}'",
        f'curl -H "Authorization: Bearer {SECRET}" https://a',
        f"curl https://u:{SECRET}@host/x",
        f"curl 'https://host/x?a=1&token={SECRET}&b=2'",
        f"curl 'https://host/x?X-Amz-Signature={SECRET}'",
        f"curl -u user:{SECRET} https://host",
        f"docker login --username me --password {SECRET}",
        f"huggingface-cli login --token {SECRET}",
        f"ENV API_KEY {SECRET}",
        f"ENV A=1 API_KEY={SECRET}",
        f"machine github.com login me password {SECRET}",
        f"dbpass={SECRET}",
        f"PGPASSWORD={SECRET} psql",
        f"MYSQL_PWD={SECRET} mysql",
        f"client_secret := {SECRET}",
        f"pwd={SECRET}",
        f"passphrase {SECRET}",
        f"sshpass -p {SECRET} ssh host",
        f"mysql --host h -p{SECRET}",
        f"curl -H 'X-Api-Key: {SECRET}'",
        f"curl -H 'Cookie: a=b; session={SECRET}'",
        f"AWS_SECRET_ACCESS_KEY = {BASE64}",
        f"aws configure set x {BASE64}",
        "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7",
        "git clone https://ghp_0123456789abcdef0123456789abcdef0123/x",
        "x = 'hf_abcdefghijklmnopqrst'",
    ],
)
def test_line_with_secret_has_stars_for_it(line: str) -> None:
    shown = without_secrets(line, 200)
    assert "***" in shown
    assert not any(part in shown for part in (SECRET, BASE64[:13], "MIIE", "0123456789abcdef", "abcdefghijkl"))


SPREAD = [
    "ENV HF_TOKEN=\\\n  {}\n",
    "ENV A=1 \\\n    HF_TOKEN=\\\n{}\n",
    "RUN tool --password \\\n  {}\n",
    "password: |\n  {}\n\n  more of {}\nuser: me\n",
    "passwords:\n  - {}\n  - {}\n",
    '{{"password":\n"{}"}}\n',
    "password = (\n    '{}'\n)\n",
    "export PASSWORD='a\n{}\n{}'\n",
    'password = """\n{}\n"""\n',
    "RUN " + "x " * 70 + 'PASSWORD="a && {} b"\n',
    "RUN " + "x " * 70 + 'PASSWORD="' + "a" * 600 + ' && {}"\n',
    "-----BEGIN RSA PRIVATE KEY-----\nMIIEvQ\n{}==\n-----END RSA PRIVATE KEY-----\n",
    "RUN cat > /root/.pgpass <<END\nhost:5432:db:me:{}\nEND\n",
    "COPY <<'END' /root/.netrc\nmachine a\n{}\nEND\n",
    "RUN cat > /run/token <<-END\n\t{}\n\tEND\n",
]
"""Texts whose secret is on another line than its name."""


@pytest.mark.parametrize("text", SPREAD)
def test_secret_on_another_line_than_its_name_is_hidden(text: str) -> None:
    before, after = (text.replace("{}", word).replace("{{", "{").replace("}}", "}") for word in ("other1", SECRET))
    for texts in (("FROM a\n", after + "FROM b\n"), (before, after), (after, before), ("FROM a\n" + after, "FROM a\n")):
        lines = changed_lines(*texts)
        assert lines
        assert SECRET not in "\n".join(lines)
    assert "+ FROM b" in changed_lines("FROM a\n", after + "FROM b\n")


@pytest.mark.parametrize("part", ["TOKEN", 'token="', "sshpass -", "-----BEGIN ", "mysql -p ", "PASS: |\n", "<<token "])
def test_texts_of_hostile_lines_are_compared_in_no_time(part: str) -> None:
    started = time.process_time()
    changed_lines(part * (200_000 // len(part)), "\n".join([(part * 500)[:500]] * 500))
    assert time.process_time() - started < 2


@pytest.mark.parametrize(
    "line",
    [
        "RUN --mount=type=secret,id=hf /x",
        "SHA=9c3dad78596592764205df28a6f2b7383d9f70d189b1384dd491c9c5aa86584f",
        "pip install --no-cache-dir torch==2.15.0+cu132",
        "ln -s /usr/lib/x86_64-linux-gnu/libcudart.so.13 /opt/Local1/lib/libX",
        "apt-get install -y --no-install-recommends openssh-server",
        "mkdir -p /opt/x && cd $PWD",
    ],
)
def test_line_without_secret_is_shown_whole(line: str) -> None:
    assert without_secrets(line, 200) == line


@pytest.mark.parametrize("part", ["a", "TOKEN", "token ", "a-", 'token="', "token=\\", "-u", "AUTH: "])
def test_long_line_takes_no_time(part: str) -> None:
    started = time.process_time()
    without_secrets(part * 100_000, 120)
    assert time.process_time() - started < 1
