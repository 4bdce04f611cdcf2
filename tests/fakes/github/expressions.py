"""GitHub's expressions, ``${{ ... }}``, as far as the workflows here use them; anything else is an error.

Source: GitHub's documentation, "Evaluate expressions in workflows and actions".
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

_TOKEN = re.compile(r"\s*(?:('(?:[^']|'')*')|([A-Za-z_][\w-]*)|(\d+)|(\|\||&&|==|!=|[!().,\[\]]))")
_LITERALS: Mapping[str, Any] = {"true": True, "false": False, "null": None}


def interpolate(text: str, contexts: Mapping[str, Any]) -> str:
    """Replace each expression in a text by its value's text."""
    return re.sub(r"\$\{\{(.*?)\}\}", lambda match: _text(evaluate(match[1], contexts)), text)


def value(raw: Any, contexts: Mapping[str, Any]) -> Any:
    """Return a value of a workflow: what its one expression gives, or its text with the expressions in it replaced."""
    if not isinstance(raw, str):
        return raw
    match = re.fullmatch(r"\$\{\{(.*)\}\}", raw.strip())
    return evaluate(match[1], contexts) if match and "${{" not in match[1] else interpolate(raw, contexts)


def evaluate(text: str, contexts: Mapping[str, Any]) -> Any:
    """Evaluate one expression."""
    tokens, at = [], 0
    while text[at:].strip():
        match = _TOKEN.match(text, at)
        assert match, f"not understood: {text[at:]}"
        tokens.append(match[0].strip())
        at = match.end()
    parser = _Parser(tokens, contexts)
    result = parser.either()
    assert not parser.tokens, f"not understood: {parser.tokens}"
    return result


def _text(raw: Any) -> str:
    return "" if raw is None else str(raw).lower() if isinstance(raw, bool) else str(raw)


class _Parser:
    def __init__(self, tokens: list[str], contexts: Mapping[str, Any]) -> None:
        self.tokens = tokens
        self._contexts = contexts

    def _next(self, *tokens: str) -> str | None:
        return self.tokens.pop(0) if self.tokens and (not tokens or self.tokens[0] in tokens) else None

    def either(self) -> Any:
        left = self._conjunction()
        while self._next("||"):
            right = self._conjunction()
            left = left or right
        return left

    def _conjunction(self) -> Any:
        left = self._equal()
        while self._next("&&"):
            right = self._equal()
            left = left and right
        return left

    def _equal(self) -> Any:
        left = self._unary()
        while operator := self._next("==", "!="):
            same = _text(left).lower() == _text(self._unary()).lower()
            left = same if operator == "==" else not same
        return left

    def _unary(self) -> Any:
        return not self._unary() if self._next("!") else self._access()

    def _access(self) -> Any:
        result = self._primary()
        while operator := self._next(".", "["):
            key: Any = self._next() if operator == "." else self.either()
            assert operator == "." or self._next("]")
            if isinstance(result, list):
                result = result[int(key)] if int(key) < len(result) else None
            else:
                result = (result or {}).get(key)
        return result

    def _primary(self) -> Any:
        token = self._next()
        assert token, "an expression that ends too early"
        if token == "(":
            result = self.either()
            assert self._next(")")
            return result
        if token.startswith("'"):
            return token[1:-1].replace("''", "'")
        if token.isdigit():
            return int(token)
        if self._next("("):
            arguments = [] if self._next(")") else [self.either()]
            while arguments and self._next(","):
                arguments.append(self.either())
            assert not arguments or self._next(")")
            return self._call(token, *arguments)
        return _LITERALS[token] if token in _LITERALS else self._contexts[token]

    def _call(self, name: str, *arguments: Any) -> Any:
        status = self._contexts.get("status", "success")
        match name:
            case "fromJSON":
                return json.loads(arguments[0])
            case "toJSON":
                return json.dumps(arguments[0], indent=2)
            case "contains" if isinstance(arguments[0], str):
                return _text(arguments[1]).lower() in arguments[0].lower()
            case "startsWith":
                return _text(arguments[0]).lower().startswith(_text(arguments[1]).lower())
            case "endsWith":
                return _text(arguments[0]).lower().endswith(_text(arguments[1]).lower())
            case "format":
                return _text(arguments[0]).format(*arguments[1:])
            case "always":
                return True
            case "cancelled":
                return status == "cancelled"
        raise AssertionError(f"no function {name}")
