"""Docker's credential helper of a checkout. It answers for our registry, and passes others on to the user's own.

The protocol is docker/docker-credential-helpers': a verb; a server, or JSON, on standard input; JSON or an error on
standard output. It runs for each pull and push, so it imports little.
"""

import base64
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from containers.child_environment import LOCAL_SECONDS, child_environment
from toolchain.checkout import STARTING, Checkout
from toolchain.registry_login import registry_account, registry_port

USERS: Final = ".slipway-user"
"""The link in our configuration's folder to the user's own."""
_UNKNOWN: Final = "credentials not found in native keychain"
"""The error by which clients know that there is no login."""
_TOKEN: Final = "<token>"  # noqa: S105 - the user name that means one
_OURS: Final = f"the registry of this checkout does not run at {{server}}: {STARTING} starts it"


class CredentialRefused(Exception):
    """There is no answer; the text is the reason."""


def main() -> None:
    """Run one verb: ``get``, ``store``, ``erase`` or ``list``."""
    root, folder, verb = sys.argv[1:4]
    try:
        print(answer(Checkout(Path(root)), Path(folder), verb, sys.stdin.read()))
    except CredentialRefused as refusal:
        print(refusal)
        sys.exit(1)


def answer(checkout: Checkout, folder: Path, verb: str, text: str) -> str:
    """Return what the helper prints. Raises CredentialRefused."""
    file = (folder / USERS).readlink() / "config.json"
    ours = {registry_port.address(port): port for port in registry_port.ports(checkout)}
    if verb == "list":
        here = [address for address, port in ours.items() if registry_port.is_ours(checkout, port)]
        return json.dumps({**_listed(file), **dict.fromkeys(here, registry_account.USER)})
    server = json.loads(text)["ServerURL"] if verb == "store" else text.strip()
    port = ours.get(_host(server))
    if port is None:
        return _of_user(file, verb, server, text)
    if verb != "get":
        return ""  # ours is neither changed nor forgotten
    # The port may be another user's while ours is down: they get no password, and no image.
    if not registry_port.is_ours(checkout, port):
        raise CredentialRefused(_OURS.format(server=server))
    return _login(server, registry_account.USER, registry_account.password(checkout))


def _login(server: str, user: str, secret: str) -> str:
    return json.dumps({"ServerURL": server, "Username": user, "Secret": secret})


def _host(server: str) -> str:
    return urlsplit(server if "://" in server else f"//{server}").netloc


def _read(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text())
    except FileNotFoundError:
        content = {}
    except (OSError, ValueError) as error:
        raise CredentialRefused(f"{file}: {error}") from None
    if not isinstance(content, dict):
        raise CredentialRefused(f"{file}: not a JSON object")
    return content


def _of_user(file: Path, verb: str, server: str, text: str) -> str:
    """Do what Docker's client does with the user's configuration."""
    content = _read(file)
    helper = content.get("credHelpers", {}).get(server) or content.get("credsStore")
    if helper:
        return _run(helper, verb, text)
    logins = content.setdefault("auths", {})
    if verb == "get":
        return _stored(server, logins)
    if verb == "store":
        given = json.loads(text)
        user, secret = given["Username"], given["Secret"]
        token = user == _TOKEN
        pair = base64.b64encode(f"{user}:{'' if token else secret}".encode()).decode()
        logins[server] = {"auth": pair, **({"identitytoken": secret} if token else {})}
    elif logins.pop(server, None) is None:
        return ""
    _write(file, content)
    return ""


def _run(helper: str, verb: str, text: str) -> str:
    try:
        done = subprocess.run(
            [f"docker-credential-{helper}", verb],
            input=text,
            stdout=subprocess.PIPE,
            text=True,
            env=child_environment("docker"),
            timeout=LOCAL_SECONDS,
            check=False,
        )
    except OSError as error:
        raise CredentialRefused(f"docker-credential-{helper}: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise CredentialRefused(f"docker-credential-{helper}: no answer within {LOCAL_SECONDS // 60} minutes") from None
    if done.returncode:
        raise CredentialRefused(done.stdout.strip())
    return done.stdout.strip()


def _stored(server: str, logins: dict[str, Any]) -> str:
    names = [server, *(name for name in logins if _host(name) == _host(server))]
    entry = next((logins[name] for name in names if logins.get(name)), None)
    if entry is None:
        raise CredentialRefused(_UNKNOWN)
    if entry.get("identitytoken"):
        return _login(server, _TOKEN, entry["identitytoken"])
    user, _, secret = base64.b64decode(entry.get("auth", "")).decode().partition(":")
    user, secret = user or entry.get("username", ""), secret.rstrip("\0") or entry.get("password", "")
    if not user:
        raise CredentialRefused(_UNKNOWN)
    return _login(server, user, secret)


def _listed(file: Path) -> dict[str, str]:
    """Return the user's registries. Clients ask for each login by its registry, so no user's name is needed."""
    content = _read(file)
    names = [*content.get("auths", {}), *content.get("credHelpers", {})]
    stored = json.loads(_run(content["credsStore"], "list", "unused")) if content.get("credsStore") else {}
    return {**dict.fromkeys(names, ""), **stored}


def _write(file: Path, content: dict[str, Any]) -> None:
    target = Path(os.path.realpath(file))  # which may be a link into a folder of settings
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
        json.dump(content, stream, indent="\t")
    temporary.replace(target)
