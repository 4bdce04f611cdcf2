"""What tests of a shell say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from containers.starting.shell.script_state import Shell, State
from containers.starting.shell.word_values import NUMBER, ONE_WORD, QUOTED, Values

_NUMBERS: Final = {
    "-eq": int.__eq__, "-ne": int.__ne__, "-lt": int.__lt__, "-le": int.__le__, "-gt": int.__gt__, "-ge": int.__ge__,
}  # fmt: skip


class Conditions:
    """What `[` and `[[` say of a script's words."""

    def __init__(self, shell: Shell, values: Values) -> None:
        self._shell, self._values = shell, values

    def status(self, words: Sequence[str], state: State) -> bool | None:
        """Return what a test says; None if that is not known."""
        if words[0] == "[[":
            return self._double_test(list(words[1:-1]), state)
        inner = list(words[1:-1] if words[0] == "[" else words[1:])
        if "(" in inner or ")" in inner or ("!" in inner and {"-a", "-o"} & {*inner}):  # `!` may turn the whole
            return None
        return _either(
            [_all([self._plain_test(part, state) for part in _parts(each, "-a")]) for each in _parts(inner, "-o")]
        )

    def _double_test(self, words: list[str], state: State) -> bool | None:
        if "(" in words:
            return None
        return _either(
            [
                _all([self._plain_test(part, state, double=True) for part in _parts(each, "&&")])
                for each in _parts(words, "||")
            ]
        )

    def _plain_test(self, words: Sequence[str], state: State, *, double: bool = False) -> bool | None:
        if words[:1] == ["!"]:
            status = self._plain_test(words[1:], state, double=double)
            return None if status is None else not status
        kept = list(words) if double else self._kept(words, state)
        values = [self._values.value(word, state) for word in kept or ()]
        if kept is None or None in values[:1]:
            return None
        if len(kept) == 1:
            return bool(values[0])
        if len(kept) == 2 and kept[0] in {"-n", "-z"}:
            return None if values[1] is None else bool(values[1]) == (kept[0] == "-n")
        return self._comparison(kept, values, state, double=double) if len(kept) == 3 else None

    def _kept(self, words: Sequence[str], state: State) -> list[str] | None:
        """Return the words of `[` that are there: a value without quotes may be none, or several, which gives None."""
        kept = []
        for word in words:
            value = None if QUOTED.fullmatch(word) else self._values.value(word, state)
            if value == "" and '"' not in word:
                continue
            if not QUOTED.fullmatch(word) and not ONE_WORD.fullmatch(value or ""):
                return None
            kept.append(word)
        return kept

    def _comparison(
        self, words: Sequence[str], values: Sequence[str | None], state: State, *, double: bool
    ) -> bool | None:
        left, right, operator = values[0], values[2], words[1]
        if operator == "==" and not (double or self._shell.is_bash):
            return None  # which is an error to dash
        if operator in {"=", "==", "!="}:
            equal = self._values.matches(left, words[2], state) if double else _equal(left, right)
            return None if equal is None else equal == (operator != "!=")
        if operator in _NUMBERS and left and right and NUMBER.fullmatch(left) and NUMBER.fullmatch(right):
            return bool(_NUMBERS[operator](int(left), int(right)))
        return None


def _equal(left: str | None, right: str | None) -> bool | None:
    return None if left is None or right is None else left == right


def _all(values: Sequence[bool | None]) -> bool | None:
    return False if False in values else None if None in values else True


def _either(values: Sequence[bool | None]) -> bool | None:
    return True if True in values else None if None in values else False


def _parts(words: Sequence[str], operator: str) -> list[list[str]]:
    parts: list[list[str]] = [[]]
    for word in words:
        if word == operator:
            parts.append([])
        else:
            parts[-1].append(word)
    return parts
