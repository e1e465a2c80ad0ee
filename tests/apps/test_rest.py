"""REST through Ryu's WSGI, with a stub in place of the fabric."""

import json
import warnings
from collections.abc import Iterator
from typing import Any

import eventlet.wsgi
import pytest
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families

from apps.rest import PIECE, Rest, _pieces
from controller.round import Rows
from controller.session import State
from pipelines.addresses import parse_ip
from pipelines.model import Change, Invalid, Kind, MacSource, Neighbor, Policy, Problem, Service, Settings, neighbor_key
from pipelines.tables import TABLES
from tests.apps.stub import StubFabric, as_desired, session_row

if not hasattr(eventlet.wsgi, "ALREADY_HANDLED"):
    eventlet.wsgi.ALREADY_HANDLED = ()  # as `apps.ryu_manager` does, without patching this process

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Ryu's WebOb imports cgi
    from ryu.app.wsgi import Request, WSGIApplication

    from apps.inspection import serve


class Client:
    def __init__(self, fabric: StubFabric | None) -> None:
        self.application = WSGIApplication()
        serve(self.application, Rest(lambda: fabric, lambda: lambda: None))

    def ask(self, path: str, method: str = "GET") -> Any:
        return Request.blank(path, method=method).get_response(self.application)

    def get(self, path: str, status: int = 200) -> Any:
        answer = self.ask(path)
        assert answer.status_int == status, answer.body
        assert answer.headers["Content-Type"] == "application/json"
        return json.loads(answer.body)


@pytest.fixture
def fabric() -> StubFabric:
    made = StubFabric()
    made.connect({1: ("n1", State.READY), 9: ("", State.UNCLAIMED)})
    return made


@pytest.fixture
def client(fabric: StubFabric) -> Client:
    return Client(fabric)


def test_the_index_lists_every_resource_and_each_answers(client: Client) -> None:
    rows = client.get("/")
    assert len(rows) == len(Rest(lambda: None, lambda: lambda: None).resources)
    for row in rows:
        if row["method"] == "GET" and "{" not in row["path"]:
            assert client.ask(row["path"]).status_int == 200, row["path"]


def test_nodes_services_and_switches_are_lists(client: Client) -> None:
    assert [row["name"] for row in client.get("/v1/nodes")] == ["n1", "n2", "n3"]
    assert "default/web" in [row["name"] for row in client.get("/v1/services")]
    assert [row["state"] for row in client.get("/v1/switches")] == ["READY", "UNCLAIMED"]


def test_a_node_shows_its_way_to_every_other(client: Client) -> None:
    answer = client.get("/v1/nodes/n1")
    assert answer["name"] == "n1"
    assert {(way["node"], way["family"]) for way in answer["ways"]} == {("n2", 4), ("n2", 6), ("n3", 4), ("n3", 6)}
    assert client.get("/v1/nodes/n9", 404)["error"] == "there is no Node n9"


def test_a_service_shows_what_clients_on_a_node_may_get(client: Client) -> None:
    assert "on_node" not in client.get("/v1/services/default/web")
    answer = client.get("/v1/services/default/web?node=n1")
    assert answer["name"] == "default/web"
    assert {row["choice"] for row in answer["on_node"]} == {"all"}
    assert len(answer["on_node"]) == len(answer["frontends"])


def test_a_service_that_is_not_there_or_cannot_be_used_says_why(client: Client, fabric: StubFabric) -> None:
    assert client.get("/v1/services/default/none", 404)["error"] == "there is no Service default/none"
    problem = Problem(Kind.SERVICE, "default/broken", "spec.clusterIPs[0]", "'10.96.0.777' is no address")
    fabric.compiler.run([Change(Kind.SERVICE, "default/broken", Invalid((problem,)))])
    assert "'10.96.0.777' is no address" in client.get("/v1/services/default/broken", 404)["error"]


def test_a_service_that_is_left_alone_says_why(client: Client, fabric: StubFabric) -> None:
    fabric.compiler.run([Change(Kind.SERVICE, "default/ext", Service("default", "ext", left_alone="ExternalName"))])
    one = client.get("/v1/services/default/ext")
    assert (one["state"], one["reason"], one["frontends"]) == ("left alone", "ExternalName", [])
    assert one in client.get("/v1/services")
    assert client.get("/v1/services/default/web")["reason"] is None


def test_health_checks_tell_the_status_on_every_node(client: Client, fabric: StubFabric) -> None:
    value = fabric.compiler.facts.peek(Kind.SERVICE)["default/web"]
    fabric.compiler.run(
        [Change(Kind.SERVICE, "default/web", replace(value, external_policy=Policy.LOCAL, health_check_port=31000))]
    )
    (row,) = [row for row in client.get("/v1/healthchecks") if row["service"] == "default/web"]
    assert row["port"] == 31000
    assert {one["node"]: one["status"] for one in row["nodes"]} == {"n1": 200, "n2": 200, "n3": 200}


def test_the_index_names_the_parts_of_a_path(client: Client) -> None:
    paths = [row["path"] for row in client.get("/")]
    assert "/v1/nodes/{name}" in paths
    assert "/v1/switches/{datapath_id}/diff" in paths


def test_pods_too_large_for_their_way_are_listed(client: Client, fabric: StubFabric) -> None:
    assert client.get("/v1/pods?mtu=wrong") == []
    value = fabric.compiler.facts.peek(Kind.POD)["default/a"]
    fabric.compiler.run([Change(Kind.POD, "default/a", replace(value, mtu=9000))])
    assert [row["name"] for row in client.get("/v1/pods?mtu=wrong")] == ["default/a"]
    assert [row["object"] for row in client.get("/v1/problems")] == ["default/a"]


def test_flows_can_be_asked_by_node_table_and_feature(client: Client) -> None:
    rows = client.get("/v1/flows?node=n1&table=endpoint_dnat&feature=services.endpoint")
    assert rows
    assert {row["table"] for row in rows} == {TABLES["endpoint_dnat"].id}
    assert {row["feature"] for row in rows} == {"services.endpoint"}
    assert client.get("/v1/flows?table=42&feature=services.endpoint") == rows
    assert {row["scope"] for row in client.get("/v1/flows?node=n3")} == {
        "fleet",
        "node n3",
        "segment 192.168.88.0/24",
        "segment fd00:88::/64",
    }


def test_all_flows_are_those_that_the_fleet_has(client: Client, fabric: StubFabric) -> None:
    flows = sum(len(unit.flows) for units in fabric.fleet.units.values() for unit in units.values())
    assert len(client.get("/v1/flows")) == flows > 300


def test_groups_tell_their_service_port(client: Client) -> None:
    assert "default/web http TCP 4" in [row["object"] for row in client.get("/v1/groups?node=n1")]


@pytest.mark.parametrize(
    ("path", "parameter", "said"),
    [
        ("/v1/flows?table=nowhere", "table", "no table nowhere; there are: classify"),
        ("/v1/flows?table=7", "table", "no table 7"),
        ("/v1/flows?node=n9", "node", "no Node n9"),
        ("/v1/flows?feature=magic", "feature", "no feature magic; there are: misses"),
        ("/v1/flows?tabel=route", "tabel", "unknown parameter tabel; known: node, table, feature"),
        ("/v1/flows?table=0&table=5", "table", "given twice"),
        ("/v1/pods?mtu=1500", "mtu", "mtu is wrong or right, not 1500"),
        ("/v1/pods?node=n9", "node", "no Node n9 is known"),
        ("/v1/services/default/web?node=n9", "node", "no Node n9 is known"),
        ("/v1/services?node=n1", "node", "unknown parameter node; it takes none"),
        ("/v1/nodes?x", "x", "unknown parameter x; it takes none"),
        ("/v1/switches/zz/diff", "datapath id", "'zz' is not a datapath id"),
    ],
)
def test_a_wrong_parameter_is_named(client: Client, path: str, parameter: str, said: str) -> None:
    answer = client.get(path, 400)
    assert answer["parameter"] == parameter
    assert said in answer["error"]


@pytest.mark.parametrize("path", ["/v2/nodes", "/v1/nodes/n1/x", "/v1", "/favicon.ico"])
def test_an_unknown_path_is_a_json_404(client: Client, path: str) -> None:
    assert path in client.get(path, 404)["error"]


def test_a_wrong_method_is_refused(client: Client, fabric: StubFabric) -> None:
    assert client.ask("/v1/nodes", "POST").status_int == 405
    assert client.ask("/v1/confirm").status_int == 405
    assert fabric.confirmed == 0


def test_claim_says_which_switches_it_takes_back(client: Client, fabric: StubFabric) -> None:
    assert json.loads(client.ask("/v1/claim", "POST").body) == {"claimed": ["n2"]}
    assert client.ask("/v1/claim").status_int == 405
    assert fabric.switches.lost == []


def test_an_audit_says_which_switches_it_looks_at(client: Client, fabric: StubFabric) -> None:
    fabric.switches.rows.append(session_row(2, "n2", State.SLAVE))
    assert json.loads(client.ask("/v1/audit", "POST").body) == [
        {"node": "n1", "state": "READY", "audited": True},
        {"node": "n2", "state": "SLAVE", "audited": False},
    ]
    assert [row["audits"] for row in client.get("/v1/switches")] == [1, 0, 0]
    assert len(json.loads(client.ask("/v1/audit?node=n2", "POST").body)) == 1
    assert client.ask("/v1/audit?node=n9", "POST").status_int == 409
    assert client.ask("/v1/audit").status_int == 405


@pytest.mark.parametrize(
    ("dpid", "status", "said"), [("7", 404, "connected"), ("1", 409, "Node n1 names it"), ("zz", 400, "datapath id")]
)
def test_a_switch_that_cannot_be_released_says_why(
    client: Client, fabric: StubFabric, dpid: str, status: int, said: str
) -> None:
    answer = client.ask(f"/v1/switches/{dpid}/release", "POST")
    assert answer.status_int == status
    assert said in json.loads(answer.body)["error"]
    assert fabric.switches.released == []


def test_an_unclaimed_switch_is_released(client: Client, fabric: StubFabric) -> None:
    answer = client.ask("/v1/switches/9/release", "POST")
    assert json.loads(answer.body) == {"dpid": "0000000000000009", "flows": 300, "groups": 7}
    assert fabric.switches.released == [9]


def test_confirm_releases_and_says_what(client: Client, fabric: StubFabric) -> None:
    fabric.switches.rows = [session_row(1, "n1", State.READY, held_removals=31)]
    fabric.source.now = type(fabric.source.now)("x", held=((Kind.SERVICE, "default/web"),))
    answer = client.ask("/v1/confirm", "POST")
    assert json.loads(answer.body) == {"released_removals": 31, "released_objects": ["Service default/web"]}
    assert fabric.confirmed == 1


def test_readyz_gives_reasons(client: Client, fabric: StubFabric) -> None:
    assert client.get("/readyz") == {"ready": True, "reasons": []}
    fabric.reasons = ["the cluster source is not in sync yet"]
    assert client.get("/readyz", 503)["reasons"] == ["the cluster source is not in sync yet"]


def test_readyz_of_switches_waits_for_the_known_ones(client: Client, fabric: StubFabric) -> None:
    assert client.get("/readyz?switches")["ready"]
    fabric.connect({1: ("n1", State.READING)})
    assert client.get("/readyz", 200)["ready"]
    assert client.get("/readyz?switches", 503)["reasons"] == ["the switch of n1 is READING"]


def test_healthz_needs_no_fabric_and_the_rest_says_that_it_is_missing() -> None:
    client = Client(None)
    assert client.get("/healthz") == {"healthy": True}
    assert client.get("/readyz", 503) == {"error": "apps.fabric is not loaded"}


def test_problems_are_listed(client: Client, fabric: StubFabric) -> None:
    assert client.get("/v1/problems") == []
    fabric.source.now = type(fabric.source.now)("x", problems=(Problem("File", "a.yaml:3", "content", "broken"),))
    assert client.get("/v1/problems") == [
        {"kind": "File", "object": "a.yaml:3", "field": "content", "reason": "broken"}
    ]


# --- a switch against what it should hold ---------------------------------------------------------------------------


def test_a_switch_as_it_should_be_has_no_difference(client: Client, fabric: StubFabric) -> None:
    fabric.switches.held[1] = as_desired(fabric, 1)
    answer = client.get("/v1/switches/0000000000000001/diff")
    assert answer["equal"]
    assert answer["lines"] == []
    assert answer["node"] == "n1"


def test_a_flow_that_is_missing_is_shown_as_text(client: Client, fabric: StubFabric) -> None:
    rows = as_desired(fabric, 1)
    flows = dict(rows.flows)
    del flows[next(iter(flows))]
    fabric.switches.held[1] = Rows(flows, rows.groups)
    answer = client.get("/v1/switches/1/diff")
    assert answer["counts"] == {"flows missing": 1}
    assert answer["lines"][0].startswith("+ ")
    assert "table=" in answer["lines"][0]


@pytest.mark.parametrize(
    ("dpid", "status", "said"), [(7, 404, "connected"), (9, 409, "no Node names"), (1, 502, "went away")]
)
def test_a_switch_that_cannot_be_compared_says_why(client: Client, dpid: int, status: int, said: str) -> None:
    assert said in client.get(f"/v1/switches/{dpid}/diff", status)["error"]


# --- metrics, long lists and faults ---------------------------------------------------------------------------------


def test_metrics_are_prometheus_text_with_what_matters(client: Client, fabric: StubFabric) -> None:
    answer = client.ask("/metrics")
    assert answer.headers["Content-Type"].startswith("text/plain")
    found = {family.name: family for family in text_string_to_metric_families(answer.text)}
    assert found["signalbox_hub_longest_stall_seconds"].samples[0].value == fabric.stall
    assert found["signalbox_units"].samples[0].value == len(fabric.compiler.units)
    assert {sample.labels["state"] for sample in found["signalbox_switches"].samples} == {"READY", "UNCLAIMED"}
    sent = {sample.labels["datapath"]: sample.value for sample in found["signalbox_switch_flow_mods_sent"].samples}
    assert sent["0000000000000001"] == 300
    assert found["signalbox_switch_flow_mods_sent"].type == "counter"
    assert found["signalbox_refusals"].samples[0].value == 4
    assert found["signalbox_refusals_not_answered"].samples[0].value == 3


def test_metrics_count_what_is_known_of_neighbours(client: Client, fabric: StubFabric) -> None:
    routers = {ip: neighbor_key("n1", parse_ip(ip)) for ip in ("192.168.77.1", "fd00:77::1")}
    fabric.compiler.run(
        [
            Change(Kind.NEIGHBOR, routers["192.168.77.1"], Neighbor(0xFE0000007701)),
            Change(Kind.NEIGHBOR, routers["fd00:77::1"], Neighbor(0xFE0000007701, reachable=False)),
        ]
    )
    found = {family.name: family for family in text_string_to_metric_families(client.ask("/metrics").text)}
    states = {(one.labels["kind"], one.labels["state"]): one.value for one in found["signalbox_neighbors"].samples}
    assert states == {("router", "known"): 1, ("router", "unreachable"): 1, ("router", "unknown"): 4}
    sources = {one.labels["source"]: one.value for one in found["signalbox_peer_macs"].samples}
    assert sources == {"switch": 1, "annotation": 2}
    assert found["signalbox_neighbor_questions"].samples[0].value == 20
    assert found["signalbox_neighbor_answers"].samples[0].value == 18


def test_metrics_count_peers_that_have_to_be_asked() -> None:
    fabric = StubFabric(
        Change(Kind.NEIGHBOR, "n2", Neighbor(0xAA0000000002)), settings=Settings(mac_sources=(MacSource.NEIGHBOR,))
    )
    found = {family.name: family for family in text_string_to_metric_families(Client(fabric).ask("/metrics").text)}
    states = {(one.labels["kind"], one.labels["state"]): one.value for one in found["signalbox_neighbors"].samples}
    assert states == {("router", "unknown"): 6, ("peer", "known"): 1, ("peer", "unknown"): 2}


def test_a_long_list_leaves_in_pieces_and_pauses_between_rows() -> None:
    pauses = 0

    def pause() -> None:
        nonlocal pauses
        pauses += 1

    def rows() -> Iterator[dict[str, str]]:
        for number in range(1000):
            yield {"flow": f"{number:0200d}"}

    pieces = list(_pieces(rows(), pause))
    assert len(pieces) > 5
    assert max(map(len, pieces)) < 2 * PIECE
    assert pauses == 1000
    assert len(json.loads(b"".join(pieces))) == 1000


def test_an_empty_list_is_json() -> None:
    assert json.loads(b"".join(_pieces([], lambda: None))) == []


def test_a_fault_is_a_json_500_and_the_next_request_is_answered(
    client: Client, fabric: StubFabric, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fabric.source, "status", lambda: 1 / 0)
    assert "fault" in client.get("/v1/status", 500)["error"]
    assert client.get("/v1/nodes")
