"""What a node names as its router stays the router's, whatever services and pods say."""

import pytest

from pipelines.addresses import parse_cidr
from pipelines.compiler import Compiler
from pipelines.derived import Derived
from pipelines.model import Change
from tests.pipelines.objects import compiled, ips, node, operator, pod, service, service_cidr

ROUTER = "192.168.77.1"


def n1(*gateways: str) -> Change:
    return node("n1", ("10.10.1.0/24",), ("192.168.77.101/24",), datapath_id=1, gateways=ips(*gateways))


def of_router(compiler: Compiler, kind: Derived) -> list[str]:
    return [key for key in compiler.facts.peek(kind) if ROUTER in key]


def said(compiler: Compiler) -> list[str]:
    return [str(problem) for problem in compiler.problems() if ROUTER in problem.reason]


@pytest.mark.parametrize("field", ["external_ips", "load_balancer_ips"])
def test_a_service_does_not_get_a_routers_address(field: str) -> None:
    """All traffic of the node with its router would be refused, and an announcement would answer in its place."""
    wanted = service("web", ("10.96.0.80",), ("http", "TCP", 80), **{field: ips(ROUTER)})
    announce = operator(announce=(parse_cidr("192.168.77.0/24"),))
    compiler = compiled(service_cidr("10.96.0.0/16"), announce, n1(ROUTER), wanted)
    assert of_router(compiler, Derived.FRONTEND) == of_router(compiler, Derived.ANNOUNCEABLE) == []
    assert len(said(compiler)) == 1
    assert said(compiler)[0].endswith(f"{ROUTER} is a router of Node n1; ignored here")
    compiler.run([n1()])
    assert len(of_router(compiler, Derived.FRONTEND)) == 1
    assert said(compiler) == []


def test_a_pod_does_not_get_a_routers_address() -> None:
    compiler = compiled(n1(ROUTER), pod("a", "n1", ROUTER))
    assert of_router(compiler, Derived.POD_ADDRESS) == []
    assert said(compiler)[0].endswith(f"{ROUTER} is a router of Node n1; ignored here")


@pytest.mark.parametrize("cidr", ["192.168.77.1/32", "192.168.77.0/30"])
def test_a_range_that_holds_a_router_is_no_service_range(cidr: str) -> None:
    """What is no service in a range is refused: the node could not even ask its router."""
    compiler = compiled(n1(ROUTER), service_cidr(cidr))
    assert compiler.facts.peek(Derived.SERVICE_RANGE) == {}
    reason = f"{cidr} holds {ROUTER}, a router of Node n1; it is not used as a service range"
    assert said(compiler) == [f"ServiceCIDR kubernetes: spec.cidrs: {reason}"]


@pytest.mark.parametrize("edge", ["192.168.77.0", "192.168.77.255"])
def test_a_service_does_not_get_an_address_that_stands_for_a_subnet(edge: str) -> None:
    wanted = service("web", ("10.96.0.80",), ("http", "TCP", 80), external_ips=ips(edge))
    compiler = compiled(n1(), wanted)
    assert f"{edge} TCP 80" not in compiler.facts.peek(Derived.FRONTEND)
    (problem,) = compiler.problems()
    assert problem.reason == f"{edge} is the first or last address of the nodes' subnet 192.168.77.0/24; ignored here"
