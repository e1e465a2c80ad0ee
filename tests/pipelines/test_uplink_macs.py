"""One MAC on one link is one station's, and each family has links of its own."""

import pytest

from pipelines.addresses import mac_text
from pipelines.compiler import Compiler
from pipelines.derived import Derived
from pipelines.model import Change, MacSource, TrafficMode
from pipelines.text import flow_text
from tests.pipelines.objects import compiled, flows_of, gone, node, node_ports, operator, small_cluster

MAC, OTHER = "aa:00:00:00:00:02", "aa:00:00:00:00:09"


def twin(number: int, mac: str = MAC, subnet: int = 77, **more: str) -> Change:
    addresses = [f"192.168.{subnet}.10{number}/24", f"fd00:{subnet}::10{number}/64"]
    return node(f"n{number}", [f"10.10.{number}.0/24"], addresses, mac, datapath_id=number, **more)


def known(compiler: Compiler) -> dict[str, str | None]:
    networks = compiler.facts.peek(Derived.NODE_NETWORK)
    return {name: mac_text(network.mac.mac) if network.mac else None for name, network in networks.items()}


def routes(compiler: Compiler, on: str, prefix: str) -> str:
    """The flows of table route for a prefix."""
    lines = (flow_text(flow) for flow in flows_of(compiler, on))
    return "\n".join(sorted(line for line in lines if "table=70," in line and f"_dst={prefix} " in line))


@pytest.mark.parametrize("order", [(4, 5), (5, 4)])
def test_of_two_nodes_with_one_mac_the_older_keeps_it_whatever_the_order(order: tuple[int, int]) -> None:
    """The other one is reached by gw0 and the host, and named."""
    nodes = {4: twin(4, created="2024-02-01"), 5: twin(5, created="2024-02-02")}
    compiler = compiled(*node_ports("n1", "aa:00:00:00:00:01", "0a:00:00:00:00:01"), twin(1, "aa:00:00:00:00:01"))
    for number in order:
        compiler.run([nodes[number]])
    assert known(compiler) == {"n1": "aa:00:00:00:00:01", "n4": MAC, "n5": None}
    assert MAC in routes(compiler, "n1", "10.10.4.0/24")
    assert "eth_dst" not in routes(compiler, "n1", "10.10.5.0/24").partition("ct_state")[0]
    assert [str(problem) for problem in compiler.problems() if "Node n5" in str(problem) and "n4" in str(problem)]


def test_a_mac_comes_free_with_its_node_or_when_that_has_another() -> None:
    old, young = twin(4, created="2024-02-01"), twin(5, created="2024-02-02")
    for change in (gone(old), twin(4, OTHER, created="2024-02-01")):
        compiler = compiled(old, young)
        assert known(compiler)["n5"] is None
        compiler.run([change])
        assert known(compiler)["n5"] == MAC
        assert compiler.problems() == []


def test_a_peer_that_is_said_to_have_the_mac_of_an_older_node_is_not_believed_by_that_node_either() -> None:
    compiler = compiled(*small_cluster(), twin(4, "aa:00:00:00:00:01", created="2030-01-01"))
    assert known(compiler)["n4"] is None
    assert "aa:00:00:00:00:01" not in routes(compiler, "n1", "10.10.4.0/24")


def test_a_live_switch_has_its_mac_though_an_older_node_is_said_to_have_it() -> None:
    """Such as the Node of the same machine before it was set up anew."""
    left_over, live = twin(4, created="2024-02-01"), twin(5, OTHER, created="2024-02-02")
    ports = node_ports("n5", MAC, "0a:00:00:00:00:05")
    for changes in ([left_over, live, *ports], [live, *ports, left_over]):
        compiler = Compiler()
        for change in changes:
            compiler.run([change])
        assert known(compiler) == {"n4": None, "n5": MAC}
        assert [str(problem) for problem in compiler.problems()] == [
            f"Node n4: uplink MAC: {MAC} is the MAC of Node n5 on {link}; "
            "others reach this Node by their hosts' routing until one has another MAC"
            for link in ("192.168.77.0/24", "fd00:77::/64")
        ]


def test_one_mac_may_be_on_two_links() -> None:
    compiler = compiled(twin(4), twin(5, subnet=88))
    assert known(compiler) == {"n4": MAC, "n5": MAC}
    assert compiler.problems() == []


@pytest.mark.parametrize("mode", TrafficMode)
def test_each_family_goes_by_the_link_that_it_shares_with_a_peer(mode: TrafficMode) -> None:
    """n4 is n1's neighbour in IPv6 alone."""
    addresses = ["192.168.99.104/24", "fd00:77::104/64"]
    far = node("n4", ["10.10.4.0/24", "fd00:10:4::/64"], addresses, OTHER, datapath_id=4, created="2030-01-01")
    sources = (MacSource.ANNOTATION,)
    compiler = compiled(*small_cluster(), far, operator(traffic_mode=mode, mac_sources=sources))
    four, six = routes(compiler, "n1", "10.10.4.0/24"), routes(compiler, "n1", "fd00:10:4::/64")
    assert OTHER not in four
    assert (OTHER in six) is (mode is not TrafficMode.ENCAP)
    assert ("tun_dst" in four) is (mode is not TrafficMode.NO_ENCAP)
    assert ("tun_dst" in six) is (mode is TrafficMode.ENCAP)
