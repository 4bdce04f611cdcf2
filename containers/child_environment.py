"""The environment of the programs that Slipway starts: the variables that each needs, and how long they may take.

The standard library alone is imported: the toolchain starts programs before any package is installed.
"""

from __future__ import annotations

import os
import re
from pathlib import PurePath
from typing import Final

_EVERY: Final = (
    r"PATH|HOME|USER|LOGNAME|SHELL|TERM|LANG|LANGUAGE|LC_\w+|TZ|TMPDIR|XDG_\w+|LD_LIBRARY_PATH"
    r"|SSL_CERT_(FILE|DIR)|(HTTPS?|FTP|NO|ALL)_PROXY|(https?|ftp|no|all)_proxy"
)
"""The variables that every program gets. A proxy's URL may have a password; who reaches no network does not use it."""

_CLOUDS: Final = r"(AWS|AZURE|AAD|GOOGLE|CLOUDSDK)_\w+"
"""The variables of cloud logins: of AWS's and Azure's SDKs, of kubelogin, and of Google's SDK and command."""
_REGISTRIES: Final = (
    rf"DOCKER_CONFIG|REGISTRY_AUTH_FILE|{_CLOUDS}|GNUPGHOME|PASSWORD_STORE_DIR|DBUS_SESSION_BUS_ADDRESS"
)
"""The variables of Docker's credential helpers (docker/docker-credential-helpers; the clouds' own)."""
_GITHUB: Final = r"G(H|ITHUB)_(ENTERPRISE_)?TOKEN|GH_\w+"
_SSH: Final = r"SSH_(AUTH_SOCK|AGENT_PID|ASKPASS\w*)|DISPLAY|KRB5CCNAME"
_GIT: Final = rf"GIT_\w+|{_SSH}"
_DOCKER: Final = rf"DOCKER_(?!REGISTRY_)\w+|BUILD(X|KIT)_\w+|{_REGISTRIES}|{_SSH}"
"""``DOCKER_REGISTRY_USER`` and ``DOCKER_REGISTRY_PASS`` are the docker provider's, not the client's."""
_APT: Final = r"APT_\w+|DEBIAN_\w+|DEBCONF_\w+"
_PYTHON: Final = r"PYTHON\w+"
_PIP: Final = rf"PIP_\w+|UV_\w+|NETRC|(REQUESTS|CURL)_CA_BUNDLE|{_PYTHON}"

_CERTIFICATES: Final = ("PIP_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE")
"""Variables of a file of root certificates, the first one first. Older pip reads no SSL_CERT_FILE, uv nothing else."""

PROGRAMS: Final = {
    "apt-get": _APT,
    "aws": r"AWS_\w+",
    # With a key in a KMS; and where Sigstore's services are. `evidence.cosign` adds keys, passwords and tokens.
    "cosign": rf"{_REGISTRIES}|(VAULT|TUF)_\w+|TRANSIT_SECRET_ENGINE_PATH|SIGSTORE_(?!ID_TOKEN)\w+",
    "docker": _DOCKER,
    "dockerd": r"MOBY_\w+",
    "gh": _GITHUB,
    # A line of a shell that asks `gh`, and `aws`, `az` or `gcloud`.
    "github init": rf"{_GITHUB}|{_CLOUDS}|REQUESTS_CA_BUNDLE",
    "git": _GIT,
    "go": rf"GO[A-Z0-9]+|CGO_\w+|NETRC|{_GIT}",
    "grype": _REGISTRIES,
    # `kubectl` runs the login plugin that a kubeconfig names.
    "kubectl": rf"KUBE\w+|{_CLOUDS}",
    "mmdebstrap": _APT,
    "pip": _PIP,
    # The command alone, such as `pulumi stack output`: it reads a state and runs no program of a stack.
    "pulumi": rf"PULUMI_\w+|{_CLOUDS}|ARM_\w+|VAULT_\w+",
    "python": _PYTHON,
    # Slipway's own process that reads an image: `containers.budget`.
    "reading": rf"{_DOCKER}|(REQUESTS|CURL)_CA_BUNDLE|{_PYTHON}",
    # A builder on EC2 is reached by a proxy command that logs in to AWS.
    "ssh": rf"{_SSH}|AWS_\w+",
    # What an older commit built with its own rows of tables.
    "stacks.rows": rf"SLIPWAY_(MIRRORS|REGISTRY)|{_GIT}|{_PYTHON}",
    "syft": _REGISTRIES,
    "toolchain.needs": rf"SLIPWAY_(BRANCH|MIRRORS|REGISTRY|REGISTRY_USERNAME)|{_PYTHON}",
    # A release that lists its images before it is pinned.
    "toolchain.release": rf"SLIPWAY_BRANCH|{_GIT}|{_PYTHON}",
    "uv": _PIP,
    # What the lock has follows from the stack alone, and from no index or option of the machine.
    "uv.lock": r"NETRC|PIP_CERT|(REQUESTS|CURL)_CA_BUNDLE",
}
"""By program: the names of the variables that it gets beside those of every program, as a regular expression.

A program without a row gets those of every program alone. Two are not in the table: ``pulumi up``, ``preview`` and
their like run the stack's program and its plugins, which read what the configuration names, so they get all but what
:data:`WITHHELD` names; and the linters, which no run of a stack starts.
"""

PASSWORD: Final = "COSIGN_PASSWORD"  # noqa: S105 - the variable's name
"""Environment variable with the password of a private key in a file or variable; may be empty."""

LOCAL_SECONDS: Final = 600
"""How long a program may take that uses this machine alone, such as git in a clone."""
NETWORK_SECONDS: Final = 7200
"""How long a program may take that waits for a network, such as pip with a wheel of gigabytes."""

WITHHELD: Final = "SLIPWAY_WITHHELD"
"""Environment variable with the path of a JSON file of variables: secrets that only programs which need them get."""


def child_environment(program: str | PurePath, **variables: str) -> dict[str, str]:
    """Return the environment of a program: of this process's variables those that it needs, and ``variables``.

    ``program`` is its name or path, or a row of :data:`PROGRAMS`. The further variables may be secrets.
    """
    row = PROGRAMS.get(PurePath(program).name)
    names = re.compile(f"{_EVERY}|{row}" if row else _EVERY)
    inherited = {name: value for name, value in os.environ.items() if names.fullmatch(name)}
    read = {"pip": "REQUESTS_CA_BUNDLE", "uv.lock": "SSL_CERT_FILE"}.get(str(program), "")
    if read and (file := next(filter(None, map(inherited.get, _CERTIFICATES)), None)):
        inherited[read] = file
    return {**inherited, **variables}
