"""One object by both ways into the model, which have to agree."""

import json
from typing import Any

from k8s_bridge import translate
from pipelines.model import Kind


def translated(kind: Kind, content: Any) -> translate.Translated:
    """By both ways into the same value: JSON as from the API, Python values as out of YAML."""
    by_json = translate.from_json(kind, json.dumps(content).encode())
    by_object = translate.from_object(kind, content)
    assert by_json == by_object
    return by_json


def fields(value: Any) -> list[str]:
    """Where its problems are."""
    return [problem.field for problem in value.problems]


def value_of(kind: Kind, content: Any) -> Any:
    """As out of a manifest, for what JSON has no words for, or nobody tells of an API server."""
    return translate.from_object(kind, content, by_hand=True).value
