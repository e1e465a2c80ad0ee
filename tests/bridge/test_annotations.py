"""Annotations that were meant for Signalbox and are none of its own."""

import pytest

from pipelines.model import Kind, Node, Problem
from tests.bridge.translating import translated

SPECS = {
    Kind.NODE: {},
    Kind.POD: {},
    Kind.SERVICE: {"clusterIP": "10.96.0.1", "ports": [{"port": 80}]},
}


def problems(kind: Kind, **annotations: object) -> tuple[Problem, ...]:
    content = {"metadata": {"name": "a", "annotations": annotations}, "spec": SPECS[kind]}
    return translated(kind, content).problems


@pytest.mark.parametrize(
    ("kind", "name", "reason"),
    [
        (Kind.NODE, "signalbox.dev/uplnk", "is not known, so nobody reads it; the nearest"),
        (Kind.NODE, "signalbox.dev/Uplink", "the nearest that is known is signalbox.dev/uplink"),
        (Kind.NODE, "signalbox.dev/datapathid", "the nearest that is known is signalbox.dev/datapath-id"),
        (Kind.NODE, "signalbox.dev/node-address", "the nearest that is known is signalbox.dev/node-addresses"),
        (Kind.NODE, "signalbox.dev/gateway", "the nearest that is known is signalbox.dev/gateways"),
        (
            Kind.NODE,
            "signalbox.dev/mtu",
            "for a Pod, and this is a Node, so nobody reads it; the nearest that is known",
        ),
        (Kind.NODE, "signalbox.io/uplink", "nobody reads this; did you mean signalbox.dev/uplink?"),
        (Kind.NODE, "Signalbox.dev/gateways", "nobody reads this; did you mean signalbox.dev/gateways?"),
        (Kind.POD, "signalbox.dev/MTU", "the nearest that is known is signalbox.dev/mtu"),
        (Kind.POD, "signalbox.dev/uplink-mtu", "is for a Node, and this is a Pod"),
        (Kind.SERVICE, "signalbox.dev/announce", "is not known; Signalbox reads no annotation of a Service"),
    ],
)
def test_a_misspelt_annotation_is_told_with_the_nearest_that_is_known(kind: Kind, name: str, reason: str) -> None:
    (problem,) = problems(kind, **{name: "eth1"})
    assert (problem.kind, problem.field) == (kind, f"metadata.annotations[{name}]")
    assert reason in problem.reason


@pytest.mark.parametrize("kind", SPECS)
def test_annotations_of_others_are_nobodys_business(kind: Kind) -> None:
    others = {"node.antrea.io/mac-address": "aa:00:00:00:00:01", "example.com/uplink": "x", "uplink": "x", "a/mtu": "1"}
    assert problems(kind, **others) == ()


def test_a_slip_in_one_annotation_costs_no_other() -> None:
    notes = {"signalbox.dev/uplink": "eth1", "signalbox.dev/gatways": "192.168.77.1"}
    found = translated(Kind.NODE, {"metadata": {"name": "n1", "annotations": notes}})
    assert isinstance(found.value, Node)
    assert found.value.uplink == "eth1"
    assert found.value.problems == found.problems
    assert len(found.problems) == 1


def test_a_flood_of_long_names_is_cut() -> None:
    found = problems(Kind.POD, **{f"signalbox.dev/{number}{'x' * 100_000}": "" for number in range(100)})
    assert len(found) == 51
    assert max(len(problem.field) + len(problem.reason) for problem in found) < 700
