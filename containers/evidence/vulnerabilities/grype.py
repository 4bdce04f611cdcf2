"""The known vulnerabilities of an image, by the program Grype.

Grype matches the image's packages against a database: its own, or the one that the stack names. The database is kept in
the checkout. Grype's own configuration files do not count: they could hide vulnerabilities.
"""

from __future__ import annotations

import fcntl
import json
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import yaml

from containers.errors import MALFORMED, SlipwayError, one_line
from containers.evidence import programs
from containers.evidence.vulnerabilities.scan_policy import ScanPolicy
from containers.registry.credentials import Login

KEY: Final = "slipway:vulnerabilities"
_CACHE: Final = Path(".slipway", "cache", "grype")
"""The folder of the databases, below the checkout."""
_PROGRAM: Final = "grype"
_MARK: Final = re.compile(r"\[\d+\]\s+ERROR\s+")
"""What Grype's log has before an error."""


@dataclass(frozen=True)
class Vulnerability:
    """One vulnerability of one package: its identifier, those of other databases, and the versions that mend it.

    ``severity`` is Grype's word in lower case; ``unknown`` where no database has one.
    """

    id: str
    aliases: tuple[str, ...]
    severity: str
    package: str
    version: str
    fixed_in: tuple[str, ...]

    def __str__(self) -> str:
        """Name the vulnerability, its severity and package, and what mends it."""
        mended = f"fixed in {', '.join(self.fixed_in)}" if self.fixed_in else "not fixed yet"
        return one_line(f"{self.id} ({self.severity}): {self.package} {self.version}, {mended}", 300)


@dataclass(frozen=True)
class Scan:
    """The vulnerabilities of an image, the gravest first as Grype orders them, and when the database was built.

    ``matches`` are Grype's own, reduced. ``version`` is Grype's, and ``source`` where it had the database from.
    """

    vulnerabilities: tuple[Vulnerability, ...]
    database: datetime
    matches: tuple[Mapping[str, Any], ...]
    version: str
    source: str
    started: datetime
    finished: datetime


def check() -> None:
    """Check that Grype is there. Raises SlipwayError: it is not."""
    if not shutil.which(_PROGRAM):
        raise SlipwayError(f"{KEY}: {programs.missing(_PROGRAM)}")


def scan(ref: str, policy: ScanPolicy, login: Login | None, root: Path) -> Scan:
    """Return the vulnerabilities of a pushed image, read from the registry; ``root`` is the checkout.

    Raises SlipwayError: Grype fails, or its database cannot be had or is older than the stack allows.
    """
    return _scan(f"registry:{ref}", ref, ref, policy, login, root)


def scan_archive(name: str, archive: Path, policy: ScanPolicy, root: Path) -> Scan:
    """Return the vulnerabilities of the image in an archive of `docker save`; ``name`` begins errors.

    Grype reads no archive as it streams: it opens the file for each layer, and unpacks the layers below TMPDIR
    (anchore/stereoscope 4d73b65, pkg/image/docker/tarball_provider.go, pkg/image/layer.go:104 `uncompressedCache`).

    Raises SlipwayError: as for a pushed image.
    """
    # The archive is gone when somebody reads the error.
    return _scan(
        f"docker-archive:{archive}", name, "", policy, None, root, f"{_PROGRAM} on the image that the engine saved"
    )


def _scan(
    source: str, subject: str, ref: str, policy: ScanPolicy, login: Login | None, root: Path, called: str = ""
) -> Scan:
    with tempfile.TemporaryDirectory(prefix="slipway-") as name:
        folder = Path(name)
        database = _database(policy, folder, root)
        words = [_PROGRAM, source, "--output", "json", "--config", str(database)]
        started = datetime.now(UTC)
        return _parse(_run(words, subject, ref, login, folder, called), subject, started)


def _parse(text: str, ref: str, started: datetime) -> Scan:
    try:
        document = json.loads(text)
        matches, descriptor = document["matches"], document["descriptor"]
        status = descriptor["db"]["status"]
        built = datetime.fromisoformat(status["built"])
        if built.tzinfo is None:
            raise ValueError("the time of its database has no zone")
        return Scan(
            vulnerabilities=tuple(map(_vulnerability, matches)),
            database=built,
            matches=tuple(map(_reduced, matches)),
            version=str(descriptor.get("version", "")),
            source=str(status.get("from", "")),
            started=started,
            finished=datetime.now(UTC),
        )
    except MALFORMED as error:
        raise SlipwayError(f"{ref}: {_PROGRAM}: its report cannot be read: {one_line(str(error))}") from None


def _vulnerability(match: Mapping[str, Any]) -> Vulnerability:
    vulnerability, package = match["vulnerability"], match["artifact"]
    fix = vulnerability["fix"]
    versions = _texts(fix["versions"]) if fix["state"] == "fixed" else ()
    return Vulnerability(
        id=_text(vulnerability["id"]),
        aliases=tuple(_text(related["id"]) for related in match.get("relatedVulnerabilities") or ()),
        severity=_text(vulnerability["severity"]).lower(),
        package=_text(package["name"]),
        version=_text(package["version"]),
        fixed_in=versions,
    )


def _texts(values: object) -> tuple[str, ...]:
    """Return a list of texts. Raises TypeError for anything else."""
    if not isinstance(values, list):
        raise TypeError(f"{type(values).__name__} in place of a list")
    return tuple(map(_text, values))


def _text(value: object) -> str:
    """Return a text. Raises TypeError for anything else: this text decides which exception counts."""
    if not isinstance(value, str):
        raise TypeError(f"{type(value).__name__} in place of a text")
    return value


def _reduced(match: Mapping[str, Any]) -> dict[str, Any]:
    """Return what identifies a match, in Grype's own form (anchore/grype v0.119.0, grype/presenter/models)."""
    vulnerability, package = match["vulnerability"], match["artifact"]
    return {
        "vulnerability": {key: vulnerability[key] for key in ("id", "severity", "fix")},
        "relatedVulnerabilities": [{"id": related["id"]} for related in match.get("relatedVulnerabilities") or ()],
        "artifact": {key: package[key] for key in ("name", "version", "type", "purl") if key in package},
    }


def _database(policy: ScanPolicy, folder: Path, root: Path) -> Path:
    """Fetch the database that the stack names, and return a configuration with it."""
    archive = root / policy.database if policy.database and "://" not in policy.database else None
    home = root / _CACHE / (_identity(archive) if archive else "fetched")
    settings: dict[str, Any] = {
        "cache-dir": str(home),
        "auto-update": False,
        "validate-age": True,
        "max-allowed-built-age": f"{policy.max_age * 24}h",
    }
    if policy.database and archive is None:
        settings["update-url"] = policy.database
    config = folder / "grype.yaml"
    config.write_text(yaml.safe_dump({"check-for-app-update": False, "db": settings}), encoding="utf-8")
    with _locked(home):
        present = any(home.glob("*/import.json"))
        if archive is None:
            try:
                _run([_PROGRAM, "db", "update", "--config", str(config)], f"{KEY}.database", "", None, folder)
            except SlipwayError:
                if not present:  # else the scan refuses it if it is too old
                    raise
        elif not present:
            _run([_PROGRAM, "db", "import", str(archive), "--config", str(config)], f"{KEY}.database", "", None, folder)
    return config


def _identity(archive: Path) -> str:
    """Return a name for the content of an archive, without reading it. Raises SlipwayError: there is no such file."""
    try:
        status = archive.stat()
    except OSError:
        raise SlipwayError(
            f"{KEY}.database: '{one_line(str(archive))}': no such file; give an archive that `grype db list` names"
        ) from None
    return sha256(f"{archive.resolve()} {status.st_size} {status.st_mtime_ns}".encode()).hexdigest()[:16]


@contextmanager
def _locked(home: Path) -> Iterator[None]:
    """Let one process at a time write a database."""
    home.mkdir(parents=True, exist_ok=True)
    with (home / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _run(words: list[str], subject: str, ref: str, login: Login | None, folder: Path, called: str = "") -> str:
    try:
        # What Grype unpacks of an image goes with the folder, whatever ends Grype.
        variables = {"TMPDIR": str(folder), "NO_COLOR": "1"}  # by TERM it colours what no terminal shows
        return programs.run(words, subject, ref, login, variables, folder, called)
    except programs.ProgramFailed as error:
        message = _MARK.sub("", str(error))
        if "max allowed age" in message:
            message += f"; give {KEY}.database a newer one, or raise {KEY}.maxAge"
        raise SlipwayError(message) from None
