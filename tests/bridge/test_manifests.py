"""Files to objects: documents, lists, lines, kinds, duplicates, and what is broken."""

import json
import os

import pytest

from k8s_bridge import manifests
from k8s_bridge.documents import BrokenFile, documents
from pipelines.model import Kind, Node, Service

NODE = "apiVersion: v1\nkind: Node\nmetadata: {name: %s}\nspec: {podCIDRs: [%s]}\n"
SERVICE = "apiVersion: v1\nkind: Service\nmetadata: {name: %s}\nspec: {clusterIP: %s, ports: [{port: 80}]}\n"


def contents(text, name="x.yaml"):
    return [document.content for document in documents(name, text.encode())]


def messages(reading):
    return [str(problem) for problem in reading.problems]


# -- documents


def test_several_documents_know_their_lines_and_empty_ones_are_passed_over():
    text = "# a comment\n---\n---\na: 1\n---\n# nothing\n---\n\nb: 2\n...\n"
    assert list(documents("x.yaml", text.encode())) == [(4, {"a": 1}), (9, {"b": 2})]


def test_json_files_hold_one_or_several_objects():
    text = '{"a": 1}\n\n {"b": [2]}\n'
    assert list(documents("x.json", text.encode())) == [(1, {"a": 1}), (3, {"b": [2]})]
    assert contents("", "x.json") == []


def test_text_that_plain_yaml_would_turn_into_numbers_and_times_stays_text():
    """A MAC address of digits is a sexagesimal integer in YAML 1.1, and a time stamp an object."""
    assert contents("mac: 10:20:30:40:50:10\nat: 2026-01-01T00:00:00Z\non: 2026-01-01\nn: 1_000\n") == [
        {"mac": "10:20:30:40:50:10", "at": "2026-01-01T00:00:00Z", True: "2026-01-01", "n": "1_000"}
    ]


def test_numbers_and_truth_are_what_kubernetes_takes_them_for():
    assert contents("[0, 80, -1, 0x1f, 1.5, 1e3, .5, true, null, ~, '80', 192.168.77.1, 1.]") == [
        [0, 80, -1, 31, 1.5, 1000.0, 0.5, True, None, None, "80", "192.168.77.1", 1.0]
    ]


def test_merged_mappings_may_override_what_they_merge():
    chain = "a: &a {x: 1, y: 1}\nb: &b {<<: *a, y: 2}\nc: {<<: *b, x: 3}\nd: *b\n"
    inline = "e: &e {<<: {x: 1}, x: 2}\nf: {<<: *e}\n"
    first, second = contents(f"{chain}---\n{inline}")
    assert first == {"a": {"x": 1, "y": 1}, "b": {"x": 1, "y": 2}, "c": {"x": 3, "y": 2}, "d": {"x": 1, "y": 2}}
    assert second == {"e": {"x": 2}, "f": {"x": 2}}


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("x.yaml", b"a: 1\nb: [1, 2\nc: 3\n", 3),
        ("x.yaml", b"a: 1\n---\nb: 1\nb: 2\n", 4),
        ("x.yaml", b"a:\n\t- 1\n", 2),
        ("x.yaml", b"a: 1\nb: !!python/object/apply:os.system ['true']\n", 2),
        ("x.yaml", b"a: 1\nb: *nowhere\n", 2),
        ("x.yaml", b"a: 1\nb: \xff\n", 2),
        ("x.yaml", b"a: 1\nb: \x01\n", 2),
        ("x.json", b'{"a": 1}\n{"b": }\n', 2),
        ("x.json", b'{"a": \n', 1),
    ],
)
def test_a_broken_file_says_where(name, text, line):
    with pytest.raises(BrokenFile) as failure:
        list(documents(name, text))
    assert abs(failure.value.line - line) <= 1
    assert failure.value.line > 0
    assert failure.value.reason


def test_a_file_that_is_nested_without_end_is_broken_and_nothing_more():
    for name, text in (("x.yaml", b"[" * 5000), ("x.json", b"[" * 100_000)):
        with pytest.raises(BrokenFile):
            list(documents(name, text))


# -- objects


def test_a_list_that_holds_itself_is_a_broken_file():
    reading = manifests.parse("x.yaml", b"&a\nkind: List\napiVersion: v1\nitems: [*a]\n")
    assert reading.broken
    assert "without end" in reading.problems[0].reason


def test_a_list_is_unrolled_and_a_typed_one_gives_its_items_their_kind(tmp_path):
    nodes = {
        "kind": "NodeList",
        "apiVersion": "v1",
        "items": [{"metadata": {"name": "n1"}}, {"metadata": {"name": "n2"}}],
    }
    mixed = {
        "kind": "List",
        "apiVersion": "v1",
        "items": [nodes | {"items": [{"metadata": {"name": "n3"}}]}, {"kind": "ConfigMap", "apiVersion": "v1"}],
    }
    (tmp_path / "nodes.json").write_text(json.dumps(nodes))
    (tmp_path / "mixed.json").write_text(json.dumps(mixed))
    (tmp_path / "none.yaml").write_text("apiVersion: v1\nkind: List\nitems: null\n")
    reading = manifests.read(tmp_path)
    assert set(reading.values) == {(Kind.NODE, name) for name in ("n1", "n2", "n3")}
    assert reading.problems == ()


@pytest.mark.parametrize(
    ("version", "kind"),
    [("v1", "ConfigMap"), ("v1", "Namespace"), ("apps/v1", "Deployment"), ("networking.k8s.io/v1", "NetworkPolicy"),
     ("rbac.authorization.k8s.io/v1", "ClusterRole"), ("v1", "Endpoints"), ("batch/v1", "Job")],
)  # fmt: skip
def test_kinds_that_do_not_concern_packets_are_passed_over(version, kind):
    reading = manifests.parse("x.yaml", f"apiVersion: {version}\nkind: {kind}\nmetadata: {{name: x}}\n".encode())
    assert reading == manifests.FileReading()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("apiVersion: v1\nkind: Servcie\nmetadata: {name: x}", "Servcie of apiVersion v1 is not a kind"),
        ("apiVersion: v1\nkind: EndpointSlice\nmetadata: {name: x}", "expected discovery.k8s.io/v1"),
        ("apiVersion: discovery.k8s.io/v1beta1\nkind: EndpointSlice", "expected discovery.k8s.io/v1"),
        ("apiVersion: serving.knative.dev/v1\nkind: Service\nmetadata: {name: x}", "expected v1"),
        ("kind: Service\nmetadata: {name: x}", "apiVersion: required"),
        ("apiVersion: v1\nmetadata: {name: x}", "kind: required"),
        ("apiVersion: v1\nkind: Service\nmetadata: {}", "metadata.name: required"),
        ("apiVersion: v1\nkind: Service", "metadata"),
        ("- apiVersion: v1", "expected a Kubernetes object"),
        ("just text", "expected a Kubernetes object"),
        ("apiVersion: v1\nkind: List\nitems: {}", "List"),
        ("apiVersion: v1\nkind: List\nitems: [1]", "expected a Kubernetes object, got the number 1"),
    ],
)
def test_what_is_no_known_object_is_reported_with_file_and_line(text, said):
    reading = manifests.parse("sub/x.yaml", b"# first line\n" + text.encode())
    assert reading.found == ()
    (problem,) = reading.problems
    assert (problem.kind, problem.key) == ("File", "sub/x.yaml:2")
    assert said in problem.reason


def test_the_directory_is_read_with_its_folders_but_without_hidden_names(tmp_path):
    """A mounted ConfigMap has its files behind hidden folders, and links to them: each counts once."""
    real = tmp_path / "..2026_01_01"
    real.mkdir()
    (real / "a.yaml").write_text(NODE % ("n1", "10.10.1.0/24"))
    (tmp_path / "..data").symlink_to(real.name)
    (tmp_path / "a.yaml").symlink_to("..data/a.yaml")
    (tmp_path / ".a.yaml.swp").write_text("{")
    (tmp_path / ".b.yaml").write_text("{")
    (tmp_path / "notes.txt").write_text("{")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "b.yml").write_text(NODE % ("n2", "10.10.2.0/24"))
    (tmp_path / "sub" / "loop").symlink_to(tmp_path)
    (tmp_path / "gone.yaml").symlink_to("nowhere")
    reading = manifests.read(tmp_path)
    assert reading.origins == {(Kind.NODE, "n1"): "a.yaml:1", (Kind.NODE, "n2"): "sub/b.yml:1"}
    assert messages(reading) == ["File gone.yaml: content: cannot be read: No such file or directory"]


def test_of_an_object_that_exists_twice_the_first_by_path_counts(tmp_path):
    (tmp_path / "b.yaml").write_text(SERVICE % ("web", "10.96.0.2"))
    (tmp_path / "a.yaml").write_text(SERVICE % ("web", "10.96.0.1") + "---\n" + SERVICE % ("web", "10.96.0.3"))
    reading = manifests.read(tmp_path)
    value = reading.values[Kind.SERVICE, "default/web"]
    assert isinstance(value, Service)
    assert str(value.cluster_ips[0]) == "10.96.0.1"
    assert messages(reading) == [
        "Service default/web: object: a.yaml:6 is ignored: already in a.yaml:1",
        "Service default/web: object: b.yaml:1 is ignored: already in a.yaml:1",
    ]


def test_a_service_that_is_not_for_us_still_hides_a_second_one(tmp_path):
    """Else an edit that makes the first one headless would bring up a stray copy."""
    (tmp_path / "a.yaml").write_text(SERVICE % ("web", "None"))
    (tmp_path / "b.yaml").write_text(SERVICE % ("web", "10.96.0.2"))
    reading = manifests.read(tmp_path)
    (value,) = reading.values.values()
    assert isinstance(value, Service)
    assert value.left_alone
    assert len(reading.problems) == 1


def test_a_broken_file_harms_no_other_and_gives_what_stands_before_the_fault(tmp_path):
    (tmp_path / "a.yaml").write_text(NODE % ("n1", "10.10.1.0/24") + "---\n" + NODE % ("n2", "x") + "  - [\n")
    (tmp_path / "b.yaml").write_text(NODE % ("n3", "10.10.3.0/24"))
    reading = manifests.read(tmp_path)
    assert set(reading.values) == {(Kind.NODE, "n1"), (Kind.NODE, "n3")}
    (problem,) = reading.problems
    assert problem.key.startswith("a.yaml:")


def test_problems_of_objects_are_among_those_of_the_reading(tmp_path):
    (tmp_path / "a.yaml").write_text(NODE % ("n1", "0.0.0.0/0"))
    (problem,) = manifests.read(tmp_path).problems
    assert (problem.kind, problem.key, problem.field) == ("Node", "n1", "spec.podCIDRs[0]")


def test_a_missing_or_empty_directory_is_a_problem_and_one_file_will_do(tmp_path):
    assert messages(manifests.read(tmp_path / "none")) == [
        f"File {tmp_path}/none: content: cannot be read: No such file or directory"
    ]
    assert "holds no manifest" in messages(manifests.read(tmp_path))[0]
    (tmp_path / "a.yaml").write_text(NODE % ("n1", "10.10.1.0/24"))
    assert set(manifests.read(tmp_path / "a.yaml").values) == {(Kind.NODE, "n1")}


def test_what_is_not_a_file_is_never_waited_for(tmp_path):
    """A named pipe with nobody behind it would block for ever."""
    (tmp_path / "a.yaml").mkdir()
    os.mkfifo(tmp_path / "b.yaml")
    reading = manifests.read(tmp_path)
    assert reading.values == {}
    assert messages(reading) == ["File b.yaml: content: is not a regular file"]


def test_quoted_and_unquoted_annotations_are_told_apart():
    text = (
        "apiVersion: v1\nkind: Node\nmetadata:\n  name: n1\n  creationTimestamp: null\n  annotations:\n"
        "    signalbox.dev/datapath-id: 0000000000000001\n    signalbox.dev/mac-address: 10:20:30:40:50:10\n"
    )
    (found,) = manifests.parse("x.yaml", text.encode()).found
    assert isinstance(found.value, Node)
    assert found.value.mac == 0x102030405010
    assert found.value.datapath_id is None
    assert "quotes" in found.value.problems[0].reason


@pytest.mark.parametrize("name", ["x.json", "x.yaml"])
def test_a_long_list_gives_way_at_every_item(name):
    """So that a large file never holds the hub."""
    items = [{"kind": "Node", "apiVersion": "v1", "metadata": {"name": f"n{number}"}} for number in range(200)]
    pauses: list[int] = []
    text = json.dumps({"kind": "List", "apiVersion": "v1", "items": items})
    reading = manifests.parse(name, text.encode(), lambda: pauses.append(1))
    assert len(reading.found) == 200
    assert len(pauses) >= 200
