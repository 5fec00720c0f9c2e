"""The description of our own part of the HTTP API, and whether an answer is as it says."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

FILE: Final = Path(__file__).resolve().parents[2] / "docs/reference/qpid-http.openapi.yaml"
TYPES: Final[dict[str, Any]] = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
}


@cache
def description() -> dict[str, Any]:
    return yaml.safe_load(FILE.read_text("utf-8"))  # type: ignore[no-any-return]


def resolved(found: dict[str, Any]) -> dict[str, Any]:
    if "$ref" not in found:
        return found
    place: Any = description()
    for name in found["$ref"].removeprefix("#/").split("/"):
        place = place[name]
    return resolved(place)


def check_answer(path: str, method: str, status: int, body: Any) -> None:
    """AssertionError for an answer that is not as described."""
    responses = description()["paths"][path][method.lower()]["responses"]
    response = resolved(responses.get(str(status)) or responses["default"])
    check(body, response["content"]["application/json"]["schema"], f"{method} {path} {status}")


def check(value: Any, schema: dict[str, Any], place: str) -> None:
    schema = resolved(schema)
    if value is None:
        assert schema.get("nullable"), f"{place} is null"
        return
    if "oneOf" in schema:
        _check_one(value, schema["oneOf"], place)
        return
    kind = schema["type"]
    assert isinstance(value, TYPES[kind]) and isinstance(value, bool) == (kind == "boolean"), f"{place}: {value!r}"
    assert value in schema.get("enum", [value]), f"{place}: {value!r}, wanted one of {schema['enum']}"
    if kind == "array":
        for number, each in enumerate(value):
            check(each, schema["items"], f"{place}[{number}]")
    if kind == "object":
        _check_object(value, schema, place)


def _check_one(value: Any, schemas: list[dict[str, Any]], place: str) -> None:
    """As exactly one of them says."""
    errors = []
    for each in schemas:
        try:
            check(value, each, place)
        except AssertionError as error:
            errors.append(str(error))
    assert len(errors) == len(schemas) - 1, f"{place} is as {len(schemas) - len(errors)} of its kinds: {errors}"


def _check_object(value: dict[str, Any], schema: dict[str, Any], place: str) -> None:
    known = schema.get("properties", {})
    missing = set(schema.get("required", ())) - value.keys()
    assert not missing, f"{place}: {missing} are missing"
    if schema.get("additionalProperties") is False:
        assert value.keys() <= known.keys(), f"{place}: {value.keys() - known.keys()} are not described"
    for name in value.keys() & known.keys():
        check(value[name], known[name], f"{place}.{name}")
