"""The private key of a GitHub App: its stored forms, and what it signs. Lambda's Python has no library."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

_PEM = re.compile(r"-----BEGIN ((?:RSA )?PRIVATE KEY)-----([A-Za-z0-9+/=\s]+)-----END \1-----")
_FIRST_LINE = re.compile(r"-----BEGIN [A-Z0-9 ]{1,40}-----")
_INTEGER, _SEQUENCE = 0x02, 0x30
_RSA = bytes.fromhex("06092a864886f70d010101")
"""The algorithm of a key in PKCS #8: rsaEncryption (RFC 8017, appendix C)."""


class Unreadable(ValueError):
    """A key in a form that is not known. The text has nothing of the key but its first line."""


def pem(key: str) -> str:
    r"""Return an App's key as GitHub gives it, with its line breaks.

    It may also be PKCS #8, have ``\n`` in place of line breaks or none at all, or be in base64 once more.

    Raises:
        Unreadable: it is something else, such as an encrypted key or one of ssh.
    """
    kind, content = _parts(key)
    _numbers(content)
    encoded = base64.b64encode(content).decode()
    lines = [encoded[start : start + 64] for start in range(0, len(encoded), 64)]
    return "\n".join([f"-----BEGIN {kind}-----", *lines, f"-----END {kind}-----", ""])


def jwt(claims: Mapping[str, Any], key: str) -> str:
    """Return the claims signed with an App's key, as of :func:`pem`: RS256 (RFC 7518, RFC 8017 8.2.1).

    A signature of this kind takes no random number; its padding is constant.
    """
    signed = f"{_part({'alg': 'RS256', 'typ': 'JWT'})}.{_part(claims)}"
    modulus, exponent = _numbers(_parts(key)[1])
    size = (modulus.bit_length() + 7) // 8
    digest = bytes.fromhex("3031300d060960864801650304020105000420") + hashlib.sha256(signed.encode()).digest()
    padded = b"\x00\x01" + b"\xff" * (size - len(digest) - 3) + b"\x00" + digest
    signature = pow(int.from_bytes(padded, "big"), exponent, modulus).to_bytes(size, "big")
    return f"{signed}.{_base64(signature)}"


def _part(value: Mapping[str, Any]) -> str:
    return _base64(json.dumps(value, separators=(",", ":")).encode())


def _base64(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def _parts(key: str) -> tuple[str, bytes]:
    """Return what a key says it is, and its content."""
    text = key.replace("\\r", "").replace("\\n", "\n").strip()
    if "-----" not in text:
        text = _decoded(text).decode("ascii", "replace").strip()
    match = _PEM.fullmatch(text)
    if match is None:
        first = _FIRST_LINE.match(text)
        what = f"it is one of {first[0]}" if first else "it is none in PEM"
        raise Unreadable(
            f"privateKey: {what}: expected the key that GitHub made, which starts with -----BEGIN RSA PRIVATE KEY-----"
            ", in PEM or in base64 of that"
        )
    return match[1], _decoded(match[2])


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):  # the latter for other characters than ASCII's
        return b""


def _numbers(content: bytes) -> tuple[int, int]:
    """Return modulus and private exponent of a key in PKCS #1 or PKCS #8 (RFC 8017 A.1.2, RFC 5208 5)."""
    try:
        return _read(content)
    except IndexError:
        raise Unreadable("privateKey: a part of the key is missing: expected all of it, as GitHub made it") from None


def _read(content: bytes) -> tuple[int, int]:
    _, start, _ = _element(content, 0)
    _, _, end = _element(content, start)  # version
    tag, start, after = _element(content, end)
    if tag == _SEQUENCE:  # the algorithm, and then the key of PKCS #1
        if not content[start:after].startswith(_RSA):
            raise Unreadable("privateKey: it is no RSA key, which GitHub makes for an App")
        _, start, after = _element(content, after)
        return _read(content[start:after])
    numbers = []
    for _ in range(3):
        tag, start, end = _element(content, end)
        if tag != _INTEGER or end > len(content):
            raise IndexError
        numbers.append(int.from_bytes(content[start:end], "big"))
    modulus, _, exponent = numbers
    if modulus.bit_length() < 1024:
        raise IndexError
    return modulus, exponent


def _element(data: bytes, at: int) -> tuple[int, int, int]:
    """Return the tag of the DER element at an offset, and the start and end of its content."""
    length, start = data[at + 1], at + 2
    if length & 0x80:
        count = length & 0x7F
        length, start = int.from_bytes(data[start : start + count], "big"), start + count
    return data[at], start, start + length
