"""Streams of packets in a lab: that each goes the way it is measured for, and that a peer is beside it."""

import subprocess
import sys
from pathlib import Path

import pytest

from bench import clients, paths, service_lab, services
from bench.cluster import Cluster, changes
from bench.kinds import AFFINITY_SECONDS, Kinds, ServiceKind
from bench.layouts import Layout
from bench.ovn import balancer
from bench.paths import Way
from bench.service_lab import write_manifests
from k8s_bridge import manifests
from lab.netns import LabError
from pipelines.model import Kind, Policy, Service
from tests.bench.test_bench import report_of, temporary

__all__ = ["temporary"]
SHORT = ("--repetitions=1", "--seconds=0.2")


@pytest.mark.ovs
def test_every_way_is_measured_beside_another(temporary: Path) -> None:
    rows = report_of("paths", temporary, *SHORT).comparisons
    beside = {(one.ours.what, one.peer.what) for one in rows if one.peer is not None}
    for pair in paths.PAIRS:
        assert (f"TCP: {pair.ours}", pair.peer) in beside
    assert all(one.ours.median > 0 for one in rows if one.ours.what.startswith("TCP: "))
    flows = {one.ours.what: one for one in rows}["flows and groups of a switch: direct"]
    assert flows.peer is not None
    assert flows.ours.median > 100 > flows.peer.median


@pytest.mark.ovs
def test_services_are_asked_from_inside_and_outside_and_by_both_reply_paths(temporary: Path) -> None:
    figures = {one.ours.what: one for one in report_of("services", temporary, *SHORT).comparisons}
    for kinds in Kinds:
        assert figures[f"flows and groups of a service, {kinds}"].ours.median > 2
    for entrance in ("ClusterIP", "NodePort"):
        assert figures[f"new connections, {entrance}"].ours.median > 0
    many = figures[f"new connections, {services.MANY:,} clients, reply_path learn"]
    assert many.peer is not None
    assert many.peer.median > 0


@pytest.mark.parametrize(
    ("by", "sent", "right"),
    [
        ("", {"eth1": 1000, "gw0": 3, "tun0": 0}, True),
        ("", {"eth1": 1000, "gw0": 900, "tun0": 0}, False),
        ("gw0", {"eth1": 1000, "gw0": 900, "tun0": 0}, True),
        ("gw0", {"eth1": 1000, "gw0": 3, "tun0": 0}, False),
        ("tun0", {"eth1": 1000, "gw0": 3, "tun0": 0}, False),
        ("tun0", {"eth1": 1000, "gw0": 3, "tun0": 990}, True),
    ],
)
def test_a_stream_that_went_another_way_is_no_figure(by: str, sent: dict[str, int], right: bool) -> None:
    way = Way("way", "c", Layout("none", {}), by)
    if right:
        paths._check(way, sent)
    else:
        with pytest.raises(LabError):
            paths._check(way, sent)


def test_services_of_mixed_kinds_are_what_their_kinds_say() -> None:
    cluster = Cluster(services=5, endpoints=2, nodes=2, kinds=Kinds.MIXED)
    found = {change.key: change.value for change in changes(cluster.objects()) if change.kind is Kind.SERVICE}
    by_kind = {}
    for number, kind in enumerate(ServiceKind):
        service = found[f"bench/service-{number}"]
        assert isinstance(service, Service)
        assert not service.problems
        by_kind[kind] = service
    for kind, service in by_kind.items():
        assert bool(service.ports[0].node_port) == kind.has_node_port
        assert bool(service.load_balancer_ips) == kind.has_load_balancer
        assert (service.external_policy is Policy.LOCAL) == (kind is ServiceKind.LOCAL)
        assert service.affinity == (AFFINITY_SECONDS if kind is ServiceKind.AFFINITY else 0)


def test_ovn_gets_only_local_backends_of_a_local_service_and_refuses_where_there_is_none() -> None:
    cluster = Cluster(services=1, endpoints=2, nodes=2, kinds=Kinds.LOCAL)
    here, there = cluster.endpoint_addresses(0)
    words = [" ".join(command) for command in balancer(cluster, 0, [here, there])]
    assert words == [
        f"--may-exist lb-add service-0 10.96.0.1:80 {here}:8080,{there}:8080 tcp",
        f"--may-exist lb-add service-0 10.0.0.2:30000 {here}:8080 tcp",
        f"--may-exist lb-add service-0 172.20.0.1:80 {here}:8080 tcp",
    ]
    assert balancer(cluster, 0, [there])[1][1:] == ["--reject", "lb-add", "service-0", "10.0.0.2:30000", "", "tcp"]


def test_processes_of_clients_share_all_addresses_and_no_address_is_used_by_two() -> None:
    shares = [clients.addresses("198.51.0.0/16+10", number, 3) for number in range(3)]
    used = [[next(share) for _ in range(count)] for share, count in zip(shares, (4, 3, 3), strict=True)]
    assert len({address for listed in used for address in listed}) == 10
    assert next(shares[0]) == used[0][0] == "198.51.0.1"


def test_a_client_counts_what_fails() -> None:
    words = [sys.executable, "-IS", str(service_lab.CLIENTS), "127.0.0.1", "1", "0.1", "2", "connections"]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
    answered, failed = ran.stdout.strip("[]").split(",")
    assert int(answered) == 0
    assert int(failed) > 0


def test_manifests_of_the_service_have_no_problem(tmp_path: Path) -> None:
    reading = manifests.read(write_manifests(tmp_path / "manifests"))
    assert not reading.problems
    assert (Kind.SERVICE, "default/echo") in reading.values
