"""Manifests and annotations that are made to be expensive."""

import json
import resource
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from k8s_bridge.findings import LONGEST_REASON, MOST_PROBLEMS
from k8s_bridge.manifests import FileReading, parse, read
from k8s_bridge.node_facts import MOST_ENTRIES
from k8s_bridge.source import value_problems
from k8s_bridge.translate import from_json, identify
from pipelines.model import Invalid, Kind, Node

SECONDS = 5.0  # for what takes milliseconds when it is not multiplied
MEMORY = 4 << 30


@pytest.fixture(autouse=True)
def little_memory() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


def tenfold(name: str, first: str, of: str) -> str:
    """Twelve lines; each names the one before ten times. `of` holds a place for the ten names."""
    lines = [f"{name}0: &{name}0 {first}"]
    for number in range(1, 12):
        ten = ", ".join([f"*{name}{number - 1}"] * 10)
        lines.append(f"{name}{number}: &{name}{number} {of.replace('…', ten)}")
    return "\n".join(lines)


TEXTS = tenfold("a", "[x, x]", "[…]")
BOMBS = {
    "kind": f"{TEXTS}\napiVersion: v1\nkind: *a11\n",
    "annotation": (
        f"{TEXTS}\napiVersion: v1\nkind: Node\nmetadata: {{name: n, annotations: {{signalbox.dev/uplink: *a11}}}}\n"
    ),
    "list": tenfold("a", "{kind: Pod, apiVersion: v1}", "{kind: List, apiVersion: v1, items: […]}")
    + "\nkind: List\napiVersion: v1\nitems: [*a11]\n",
    "merge": tenfold("a", "{k: 1}", "{<<: […]}") + "\nkind: Node\napiVersion: v1\nmetadata: {<<: *a11, name: n}\n",
}


@pytest.mark.parametrize("place", BOMBS)
def test_aliases_that_multiply_without_end_break_their_file_at_once(place: str) -> None:
    began = time.monotonic()
    reading = parse("bomb.yaml", BOMBS[place].encode())
    assert time.monotonic() - began < SECONDS
    assert reading.broken
    (problem,) = reading.problems
    assert "aliases make more than" in problem.reason
    assert problem.key == "bomb.yaml:1"


def test_aliases_that_people_use_are_no_bomb() -> None:
    items = "\n".join(f"- {{apiVersion: v1, kind: Pod, metadata: {{name: p{i}, labels: *l}}}}" for i in range(500))
    reading = parse("many.yaml", f"labels: &l {{app: a}}\napiVersion: v1\nkind: List\nitems:\n{items}\n".encode())
    assert not reading.broken
    assert len(reading.found) == 500


@pytest.mark.parametrize("text", ["kind: &a [*a]\n", "&a {kind: *a}\n", "a: &a {b: [{c: *a}]}\n"])
def test_document_inside_of_itself_is_a_broken_file(text: str) -> None:
    reading = parse("round.yaml", text.encode())
    assert reading.broken
    assert "without end" in reading.problems[0].reason


@pytest.mark.parametrize("name", ["deep.yaml", "deep.json"])
def test_nesting_without_end_is_a_broken_file(name: str) -> None:
    assert parse(name, b"[" * 200_000).broken


def node(**annotations: str) -> Node:
    found = from_json(Kind.NODE, json.dumps({"metadata": {"name": "n", "annotations": annotations}}).encode())
    assert isinstance(found.value, Node)
    return found.value


def test_annotation_of_a_megabyte_costs_no_time_and_no_megabyte_of_log() -> None:
    began = time.monotonic()
    addresses = node(**{"signalbox.dev/node-addresses": ",".join(["10.0.0.1/24"] * 90_000)})
    nonsense = node(**{"signalbox.dev/gateways": ",".join(["x"] * 500_000)})
    uplink = node(**{"signalbox.dev/uplink": "e" * 1_000_000})
    assert time.monotonic() - began < 0.5
    assert len(addresses.addresses) == 1
    assert f"more than {MOST_ENTRIES} entries" in addresses.problems[0].reason
    for problems in (nonsense.problems, uplink.problems):
        assert 0 < len(problems) <= MOST_PROBLEMS + 1
        assert all(len(problem.reason) < LONGEST_REASON + 10 for problem in problems)


@pytest.mark.parametrize("wrong", ["1", "[]", "true", "0x" + "f" * 9000])
@pytest.mark.parametrize("where", ["externalIPs: …", "ports: …", "loadBalancerSourceRanges: …, type: LoadBalancer"])
def test_values_of_wrong_types_cost_little_however_many(where: str, wrong: str) -> None:
    """Each is refused by itself, and a handful is told."""
    text = f"apiVersion: v1\nkind: Service\nmetadata: {{name: a}}\nspec: {{clusterIP: 10.96.0.1, {where}}}\n"
    began = time.thread_time()
    reading = parse("a.yaml", text.replace("…", f"[{', '.join([wrong] * 2_000)}]").encode())
    assert time.thread_time() - began < SECONDS
    problems = value_problems(reading.found[0].value)
    assert 0 < len(problems) <= MOST_PROBLEMS + 1
    assert all(len(problem.reason) < LONGEST_REASON + 10 for problem in problems)


def test_object_of_a_wrong_type_that_is_nested_without_end_is_told_by_its_name() -> None:
    """What is passed over by the strict way is read by the lenient one."""
    deep = b'{"metadata": {"name": "a"}, "spec": [], "more": ' + b"[" * 900 + b"]" * 900 + b"}"
    found = from_json(Kind.SERVICE, deep)
    assert found.key == "default/a"
    assert isinstance(found.value, Invalid)
    deeper = b'{"metadata": {"name": "a"}, "spec": [], "more": ' + b"[" * 200_000 + b"]" * 200_000 + b"}"
    assert from_json(Kind.SERVICE, deeper).problems
    assert identify(Kind.SERVICE, deeper).problems, "nor may a deletion end the watch"


def words(reading: FileReading) -> str:
    return " ".join(str(problem) for problem in reading.problems)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("17", "metadata.name"),
        ('"a\\0b"', "metadata.name"),
        ('"a b"', "metadata.name"),
        ("ümlaut", "metadata.name"),
        (".nan", "metadata.name"),
        ("0x" + "f" * 9000, "metadata.name"),
        ("!!binary aGVsbG8=", "metadata.name"),
        ("x, name: y", "occurs twice"),
        ("!!python/object/apply:os.getcwd []", "constructor"),
        ("x, [a, b]: c", "unhashable"),
    ],
)
def test_names_that_are_no_names_are_told(value: str, said: str) -> None:
    reading = parse("names.yaml", f"apiVersion: v1\nkind: Node\nmetadata: {{name: {value}}}\n".encode())
    assert not reading.found
    assert said in words(reading)


@pytest.mark.parametrize("text", ["kind: …", "apiVersion: v1\nkind: …", "apiVersion: …\nkind: Node", "[…]", "…"])
def test_number_that_python_refuses_to_write_is_told_and_breaks_nothing(text: str) -> None:
    reading = parse("number.yaml", text.replace("…", "0x" + "f" * 9000).encode())
    assert reading.problems
    assert not reading.broken


def test_link_to_itself_hides_no_other_file(tmp_path: Path) -> None:
    (tmp_path / "loop.yaml").symlink_to("loop.yaml")
    (tmp_path / "folder").symlink_to("folder")
    (tmp_path / "good.yaml").write_text("{apiVersion: v1, kind: Node, metadata: {name: n}}")
    assert list(read(tmp_path).values) == [(Kind.NODE, "n")]
