"""The base class of all configuration models, and types of values that several models have."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Annotated, Any, ClassVar, Self, TypeVar, get_args, get_origin

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    PrivateAttr,
    SecretStr,
    ValidationError,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic.config import JsonDict
from pydantic.fields import FieldInfo
from pydantic_core import InitErrorDetails

from containers.errors import one_line, suggest
from containers.registry import reference as references

Text = TypeVar("Text", str, SecretStr)


_NUMERIC = (int, float, int | None, float | None)
"""Annotations of fields that are one number."""


def number(value: object) -> object:
    """Refuse true and false in a list of numbers: pydantic takes them for 1 and 0."""
    if isinstance(value, bool):
        raise ValueError("expected a number")  # noqa: TRY004 - pydantic reports ValueError alone
    return value


class Model(BaseModel):
    """Base of the configuration models: frozen, camelCase keys, unknown keys refused with the nearest known one."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        coerce_numbers_to_str=True,
        allow_inf_nan=False,
        validate_default=True,
        defer_build=True,  # a command validates a few of the models, and each program of a run imports all
    )

    plain_key: ClassVar[str | None] = None
    """The key that a plain value sets; None if only a mapping is allowed."""

    elsewhere: ClassVar[Mapping[str, str]] = {}
    """Keys of another kind of the same thing, and what is given here instead."""

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, values: Any) -> Any:
        if cls.plain_key and values is not None and not isinstance(values, Mapping | Model):
            return {cls.plain_key: values}
        if isinstance(values, Mapping):
            known = {field.alias or name: field for name, field in cls.model_fields.items()}
            for key, value in values.items():
                if key in cls.elsewhere:
                    raise ValueError(f"unknown key '{key}': here it is {cls.elsewhere[key]}")
                if key not in known:
                    raise ValueError(
                        f"unknown key '{one_line(key)}'{suggest(key, known)}; the keys here are: {', '.join(known)}"
                    )
                if isinstance(value, bool) and known[key].annotation in _NUMERIC:  # pydantic takes true for 1
                    raise ValueError(f"{key}: expected a number, and not {as_yaml(value)}")
        return values


class SeveralSetsConfig(Model):
    """Base of runners of which there may be several ``sets``, a field of the subclass: each is runners of its own."""

    _set: str | None = PrivateAttr(None)

    _whole: ClassVar[frozenset[str]] = frozenset({"sets", "build", "validation"})
    """Fields that no set has, besides those that all share."""

    @cached_property
    def _validated_sets(self) -> tuple[Self, ...]:
        return tuple(map(self._of_set, self._sets))

    @property
    def all_sets(self) -> tuple[Self, ...]:
        """The runners by their sets: those of ``sets``, or these."""
        return self._validated_sets or (self,)

    @property
    def _sets(self) -> Mapping[str, Model]:
        sets: Mapping[str, Model] = getattr(self, "sets", {})
        return sets

    @property
    def is_one_of_several(self) -> bool:
        """Whether these are the runners of one of several sets, or of all of them."""
        return self._set is not None or bool(self._sets)

    def key(self, name: str) -> str:
        """Return a key of the runners, or of their set, below ``slipway:runners``."""
        return f"sets.{self._set}.{name}" if self._set else name

    def _check_sets(self) -> None:
        """Check each set as the runners that it is. Raises ValueError, with the place below ``slipway:runners``."""
        for name in self._sets:
            try:
                self._of_set(name)
            except ValidationError as error:
                for mistake in error.errors():
                    place = ".".join(map(str, ("sets", name, *mistake["loc"])))
                    raise ValueError(f"{place}: {mistake['msg'].removeprefix('Value error, ')}") from None
        for name, runners in self._sets.items():
            if others := sorted(self._sets.keys() & {label.lower() for label in getattr(runners, "labels", ())}):
                raise ValueError(
                    f"sets.{name}.labels: '{others[0]}' is the name of a set, by which jobs choose that one: give "
                    "another label, or leave it out"
                )

    def _of_set(self, name: str) -> Self:
        """Return a set as runners of their own, with what it leaves out as given beside the sets."""
        own = self._sets[name]
        shared = {key: getattr(self, key) for key in self.model_fields_set - self._whole}
        given = {key: getattr(own, key) for key in own.model_fields_set}
        values = {to_camel(key): value for key, value in {**shared, **self._beside_sets(), **given}.items()}
        runners = type(self).model_validate(values, context={"inherited": shared.keys() - given.keys(), "set": name})
        runners._set = name  # noqa: SLF001 - of the same class
        return runners

    def _beside_sets(self) -> Mapping[str, object]:
        """Return what each set is checked with, though it is of all of them."""
        return {}


def refuse_unread(model: Model, because: Mapping[str, Iterable[str]]) -> None:
    """Raise ValueError for a key that is given and has no effect; ``because`` maps each reason to names of fields."""
    for reason, names in because.items():
        for name in names:
            if name in model.model_fields_set:
                raise ValueError(f"{to_camel(name)} has no effect, because {reason}: leave it out")


def refuse(value: Any, mistakes: Iterable[ValueError]) -> None:
    """Raise all mistakes that a validator finds in a value, each as an error of its own; nothing without any."""
    details = [InitErrorDetails(type="value_error", input=value, ctx={"error": mistake}) for mistake in mistakes]
    if details:
        raise ValidationError.from_exception_data("", details)


def as_yaml(value: Any) -> Any:
    """Return the text that YAML has for true and false; another value as it is."""
    return str(value).lower() if isinstance(value, bool) else value


def _as_text(values: Any) -> Any:
    if not isinstance(values, Mapping):
        return values
    return {key: as_yaml(value) for key, value in values.items()}


Environment = Annotated[dict[str, str], BeforeValidator(_as_text, json_schema_input_type=dict[str, str | bool])]
"""Variables by name. Numbers, true and false become text."""


def _non_empty(value: Text) -> Text:
    if not (value.get_secret_value() if isinstance(value, SecretStr) else value).strip():
        raise ValueError("is empty: give a value, or leave it out")
    return value


def _one_line(value: str) -> str:
    if broken := next((each for each in value if not each.isprintable()), None):
        raise ValueError(f"expected text on one line, without {broken!a}")
    return value


Line = Annotated[str, AfterValidator(_one_line)]
"""Text on one line."""

NonEmpty = Annotated[Line, AfterValidator(_non_empty)]
"""Text on one line that is not empty."""

ENCRYPTED = "[secret]"
"""The placeholder for a value that Pulumi encrypted, where no Pulumi program reads it."""

Secret = Annotated[SecretStr, AfterValidator(_non_empty)]
"""A secret that is not empty. An unset variable would give an empty one."""


def matching(pattern: str | re.Pattern[str], expected: str) -> Callable[[str], str]:
    """Return a check that raises ValueError for text outside a pattern, naming the ``expected`` form."""

    def check(value: str) -> str:
        if not re.fullmatch(pattern, value):
            raise ValueError(f"expected {expected}")
        return value

    return check


def form(pattern: str | re.Pattern[str], expected: str) -> AfterValidator:
    """Return the validator of a text: the check of :func:`matching`."""
    return AfterValidator(matching(pattern, expected))


def explaining(expected: str) -> Callable[[str], str]:
    """Return a check of a reason that raises ValueError for an empty one, and puts it on one line, as it is printed."""

    def check(value: str) -> str:
        if not value.strip():
            raise ValueError(f"expected {expected}")
        return " ".join(value.split())

    return check


Sha256 = Annotated[str, form(r"[0-9a-f]{64}", "a SHA-256: 64 digits 0-9 a-f")]
"""The hash of a file."""

Host = Annotated[str, AfterValidator(references.check_host)]
"""``host[:port]`` of a registry."""
RepositoryPath = Annotated[str, AfterValidator(references.check_path)]
"""A repository without its registry's host."""
Repository = Annotated[str, AfterValidator(references.check_repository)]
"""A repository with its registry's host, without a tag."""
Reference = Annotated[str, AfterValidator(references.check_reference)]
"""An image with a tag or a digest."""


SENSITIVE: JsonDict = {"writeOnly": True}
"""Marks a key whose value is in no error: users paste a secret where its name is expected."""


def is_secret(field: FieldInfo) -> bool:
    """Return whether a key holds a secret itself."""
    return "SecretStr" in str(field.annotation)


def is_sensitive(field: FieldInfo) -> bool:
    """Return whether no error may show a key's value."""
    return is_secret(field) or field.json_schema_extra == SENSITIVE


def kinds(union: Any) -> tuple[str, ...]:
    """Return the values of ``kind`` of a discriminated union of models, in the union's order."""
    models = get_args(get_args(union)[0])
    return tuple(kind for model in models for kind in get_args(model.model_fields["kind"].annotation))


def models(annotation: Any) -> Iterator[type[Model]]:
    """Yield the models that a type is made of."""
    if isinstance(annotation, type) and issubclass(annotation, Model):
        yield annotation
    for part in get_args(annotation):
        yield from models(part)


ANY_NAME = "*"
"""Stands in a key for each name of a mapping, such as a host's in ``buildSecrets``."""


def keys(model: type[Model], prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Yield every key of a model and of those in it, as a stack's file writes them, with its field."""
    for name, field in model.model_fields.items():
        key = f"{prefix}{field.alias or name}"
        yield key, field
        by_name = get_origin(field.annotation) is dict
        for inner in models(field.annotation):
            yield from keys(inner, f"{key}.{ANY_NAME}." if by_name else f"{key}.")
