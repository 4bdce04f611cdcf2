"""The key of a GitHub App, in the forms in which people keep it."""

from __future__ import annotations

import base64
import json
import time

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from components.runners.kubernetes.arc import credentials
from scaler.app_key import Unreadable, jwt, pem
from scaler.github import GitHub, Refused
from stacks.config.kubernetes import KubernetesRunnersConfig
from tests.helpers.every import every

KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
PKCS1 = KEY.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()).decode()
PKCS8 = KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
FORMS = {
    f"{name} {form}": text
    for name, key in (("PKCS1", PKCS1), ("PKCS8", PKCS8))
    for form, text in {
        "as it is": key,
        "base64": base64.b64encode(key.encode()).decode(),
        "base64 in lines": base64.encodebytes(key.encode()).decode(),
        "literal line breaks": key.replace("\n", "\\n"),
        "Windows": key.replace("\n", "\r\n"),
        "one line": key.replace("\n", " "),
        "no line break": key.replace("\n", ""),
        "indented": key.replace("\n", "\n  "),
    }.items()
}


@every("form", FORMS)
def test_key_in_any_form_signs_and_reaches_the_cluster(form: str) -> None:
    signed, _, signature = jwt({"iss": "1"}, FORMS[form]).rpartition(".")
    decoded = base64.urlsafe_b64decode(signature + "==")
    KEY.public_key().verify(decoded, signed.encode(), padding.PKCS1v15(), hashes.SHA256())
    app = {"id": "1", "installation": "2", "privateKey": FORMS[form]}
    github = {"url": "https://github.com/acme", "app": app}
    config = KubernetesRunnersConfig.model_validate({"kind": "kubernetes", "profile": "eks-p5", "github": github})
    written = credentials(config)["github_app_private_key"]
    read = load_pem_private_key(written.encode(), None)
    assert isinstance(read, rsa.RSAPrivateKey)
    assert read.private_numbers() == KEY.private_numbers()
    assert written == (PKCS1 if form.startswith("PKCS1") else PKCS8)


SSH = ed25519.Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
LOCKED = KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"hunter2"))
CURVE = ec.generate_private_key(ec.SECP256R1()).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


@every(
    "key, why",
    [
        (
            SSH.decode(),
            "privateKey: it is one of -----BEGIN OPENSSH PRIVATE KEY-----: expected the key that GitHub made",
        ),
        (LOCKED.decode(), "privateKey: it is one of -----BEGIN ENCRYPTED PRIVATE KEY-----"),
        (CURVE.decode(), "privateKey: it is no RSA key"),
        ("hunter2", "privateKey: it is none in PEM"),
        ("Schlüssel", "privateKey: it is none in PEM"),
        ("\n".join(PKCS1.splitlines()[:-1]), "privateKey: it is one of -----BEGIN RSA PRIVATE KEY-----"),
        ("\n".join([*PKCS1.splitlines()[:9], PKCS1.splitlines()[-1]]), "privateKey: a part of the key is missing"),
    ],
)
def test_key_that_is_none_is_said_without_it(key: str, why: str) -> None:
    with pytest.raises(Unreadable) as caught:
        pem(key)
    assert str(caught.value).startswith(why)
    assert not [line for line in key.split()[1:] if len(line) > 20 and line in str(caught.value)]
    login = {"app": "1", "installation": "2", "privateKey": key}
    with pytest.raises(Refused, match="the secret's privateKey: "):
        GitHub("https://api.example", "acme", lambda: login, time.time() + 60).redeliver()


def test_secret_without_a_part_says_which() -> None:
    api = GitHub("https://api.example", "acme", lambda: json.loads('{"app": 1, "installation": 2}'), time.time() + 60)
    with pytest.raises(Refused, match="^GitHub does not answer: the secret has no token, and of an App no privateKey"):
        api.redeliver()
