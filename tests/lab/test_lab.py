"""A real lab: what is built passes traffic under a hand-written flow, survives changes, and leaves nothing behind."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from lab import netns, switch
from lab.cli import lab as command
from lab.cluster import STATE, Lab, take_down
from lab.netns import LabError
from lab.traffic import Probe

pytestmark = pytest.mark.ovs

DEMO = Path(__file__).parents[2] / "examples" / "demo"
PORT = 8080


def unique(word: str) -> str:
    return f"{word}{os.getpid()}"


def learn(lab: Lab) -> None:
    """Makes every bridge a plain learning switch."""
    for node in lab.plan.nodes:
        lab.ofctl(node.name, "add-flow", switch.BRIDGE, "actions=NORMAL")


def remains(name: str) -> list[str]:
    """Namespaces, processes and files of a lab, wherever they are."""
    found = [*netns.existing(name), *map(str, (STATE / name).glob("**"))]
    for path in Path("/proc").iterdir():
        line = netns.command_line(int(path.name)) if path.name.isdigit() else ""
        if f"/{name}/" in line or f"echo.py {name}" in line:
            found.append(line)
    return found


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab(unique("real"), DEMO) as built:
        learn(built)
        yield built


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return Path(shutil.copytree(DEMO, tmp_path / "demo"))


def test_pods_of_one_node_and_its_host_reach_each_other(lab: Lab) -> None:
    servers = [lab.echo(place, tcp=[PORT], udp=[PORT]) for place in ("a", "b", "n1")]
    targets = {
        "a": ("10.10.1.10", "fd00:10:1::10"),
        "b": ("10.10.1.11", "fd00:10:1::11"),
        "n1": ("10.10.1.1", "fd00:10:1::1", "192.168.77.101", "fd00:77::101"),
    }
    for client in targets:
        wanted = [(name, ip) for name, ips in targets.items() if name != client for ip in ips]
        probes = [
            Probe(protocol, ip, PORT, tries=3, requests=2, size=9) for _, ip in wanted for protocol in ("tcp", "udp")
        ]
        answers = lab.probe(client, probes)
        assert [(answer.error, answer.names) for answer in answers] == [
            ("", (name, name)) for name, _ in wanted for _ in range(2)
        ]
    for server in servers:
        lab.stop(server)


def test_probe_says_who_was_seen_and_why_it_failed(lab: Lab) -> None:
    server = lab.echo("b", tcp=[PORT], udp=[PORT])
    seen, refused, refused_udp, silent = lab.probe(
        "a",
        [
            Probe("udp", "fd00:10:1::11", PORT, source_port=40001),
            Probe("tcp", "10.10.1.11", 9),
            Probe("udp", "10.10.1.11", 9),
            Probe("udp", "10.10.1.99", 9, timeout=0.1),
        ],
    )
    assert seen.answers == ("b fd00:10:1::10 40001",)
    assert seen.seen_as == "fd00:10:1::10"
    assert (refused.error, refused_udp.error, silent.error) == ("ECONNREFUSED", "ECONNREFUSED", "timeout")
    assert not silent.ok
    lab.stop(server)


def test_pods_keep_their_address_in_the_cluster_and_leave_it_with_that_of_their_node(lab: Lab) -> None:
    servers = [lab.echo(place, tcp=[PORT]) for place in ("n3", "d", "remote")]
    inside = [Probe("tcp", ip, PORT) for ip in ("192.168.88.103", "fd00:88::103", "10.10.3.10", "fd00:10:3::10")]
    outside = [Probe("tcp", ip, PORT) for ip in ("203.0.113.9", "fd00:203::9")]
    seen = [(answer.error, answer.seen_as) for answer in lab.probe("a", inside + outside)]
    assert seen[:4] == [("", "10.10.1.10"), ("", "fd00:10:1::10")] * 2
    assert seen[4:] == [("", "192.168.77.101"), ("", "fd00:77::101")]
    for server in servers:
        lab.stop(server)


@pytest.mark.parametrize("ip", ["192.168.77.102", "fd00:77::102", "192.168.88.103", "fd00:88::103"])
@pytest.mark.parametrize("client", ["outside", "remote", "n1"])
def test_nodes_are_reached_from_everywhere_and_answer_once(lab: Lab, client: str, ip: str) -> None:
    said = lab.run(client, "ping", "-c2", "-i0.05", "-W10", ip).stdout
    assert "2 packets transmitted, 2 received" in said
    assert "DUP" not in said


def test_kernel_does_not_answer_frames_that_the_switch_has_tapped(lab: Lab) -> None:
    paths = "/proc/sys/net/ipv4/conf/all/rp_filter /proc/sys/net/ipv4/conf/eth1/rp_filter"
    lab.run("n1", "sh", "-c", f"for f in {paths}; do echo 0 > $f; done")  # it would hide most of them
    said = lab.run("outside", "ping", "-c2", "-i0.05", "-W10", "192.168.77.101").stdout
    lab.run("n1", "sh", "-c", f"for f in {paths}; do echo 1 > $f; done")
    assert "2 packets transmitted, 2 received, 0% packet loss" in said


def test_kernel_of_a_node_is_a_router_that_accepts_its_own_address_from_the_gateway_port(lab: Lab) -> None:
    def setting(name: str) -> str:
        return lab.run("n1", "cat", f"/proc/sys/net/{name}").stdout.strip()

    wanted = {
        "ipv4/ip_forward": "1",
        "ipv6/conf/all/forwarding": "1",
        "ipv4/conf/gw0/accept_local": "1",
        "ipv4/conf/br0/accept_local": "0",
        "ipv4/conf/gw0/rp_filter": "1",
        "ipv4/conf/br0/send_redirects": "0",
        "ipv6/conf/br0/accept_ra": "0",
        "ipv6/conf/br0/accept_dad": "0",
        "ipv6/conf/eth1/disable_ipv6": "1",
        f"ipv6/conf/{lab.pod('a').port}/disable_ipv6": "1",
    }
    assert {name: setting(name) for name in wanted} == wanted


def test_many_probes_at_once_are_all_answered(lab: Lab) -> None:
    server = lab.echo("b", tcp=[PORT], udp=[PORT])
    lab.run("a", "ping", "-c1", "-W10", "10.10.1.11")
    probes = [Probe(protocol, "10.10.1.11", PORT, tries=3) for protocol in ("tcp", "udp") for _ in range(200)]
    assert [answer.error for answer in lab.probe("a", probes) if not answer.ok] == []
    lab.stop(server)


def test_controller_reaches_the_nodes_on_a_network_of_its_own(lab: Lab) -> None:
    for node in lab.plan.nodes:
        lab.run("controller", "ping", "-c1", "-W10", node.management)
    with pytest.raises(LabError):
        lab.run("controller", "ping", "-c1", "-W1", "192.168.77.101")


def test_switch_is_set_up_as_the_plan_says(lab: Lab) -> None:
    assert lab.vsctl("n2", "get", "bridge", "br0", "datapath_type", "fail_mode", "protocols").split() == [
        "netdev",
        "secure",
        "[OpenFlow15]",
    ]
    described = lab.ofctl("n2", "show", "br0")
    assert "dpid:0000000000000002" in described
    assert "1(eth1): addr:aa:00:00:00:00:02" in described
    assert "2(gw0): addr:0a:58:0a:0a:02:01" in described
    assert "3(tun0): addr:" in described
    assert "LOCAL(br0): addr:aa:00:00:00:00:02" in described
    assert lab.vsctl("n2", "get", "controller", "br0", "connection_mode", "max_backoff").split() == [
        "out-of-band",
        "1000",
    ]


def test_capture_has_the_frames_and_counters_count_them(lab: Lab) -> None:
    before = lab.port_counters("n1")["eth1"]
    with lab.capture("n1", "eth1", "icmp") as capture:
        lab.run("n1", "ping", "-c3", "-i0.05", "192.168.77.102")
    after = lab.port_counters("n1")["eth1"]
    kinds = [(frame.src, frame["IP"].ttl, frame["ICMP"].type) for frame in capture.frames()]
    assert kinds == [("aa:00:00:00:00:01", 64, 8), ("aa:00:00:00:00:02", 64, 0)] * 3
    assert after.sent >= before.sent + 3
    assert after.received >= before.received + 3


def test_restarted_vswitchd_has_no_flows_and_a_host_with_all_its_addresses(lab: Lab) -> None:
    routes = [lab.run("n1", "ip", family, "route").stdout for family in ("-4", "-6")]
    lab.kill_vswitchd("n1")
    assert switch.pid(lab.switch_directory("n1"), "ovs-vswitchd") is None
    lab.start_vswitchd("n1")
    assert [sorted(lab.run("n1", "ip", family, "route").stdout.split("\n")) for family in ("-4", "-6")] == [
        sorted(text.split("\n")) for text in routes
    ]
    assert "actions=NORMAL" not in lab.ofctl("n1", "dump-flows", "br0")
    learn(lab)
    lab.run("n1", "ping", "-c1", "-W10", "192.168.88.103")


def test_port_can_be_renumbered_and_works_on(lab: Lab) -> None:
    port = lab.pod("a").port
    assert lab.renumber_port("n1", port, 77) == 77
    assert lab.renumber_port("n1", "gw0", 78) == 78
    assert f"77({port})" in lab.ofctl("n1", "show", "br0")
    lab.run("a", "ping", "-c1", "-W10", "10.10.1.1")
    lab.run("a", "ping", "-c1", "-W10", "fd00:10:1::1")


def test_new_uplink_mac_is_that_of_the_port_and_of_the_host(lab: Lab) -> None:
    lab.set_uplink_mac("n2", "aa:00:00:00:00:22")
    assert "1(eth1): addr:aa:00:00:00:00:22" in lab.ofctl("n2", "show", "br0")
    assert "LOCAL(br0): addr:aa:00:00:00:00:22" in lab.ofctl("n2", "show", "br0")
    assert "fe80::a800:ff:fe00:22" in lab.run("n2", "ip", "address", "show", "dev", "br0").stdout
    lab.run("n2", "ping", "-c1", "-W10", "192.168.77.1")


def test_cut_cable_passes_nothing_until_it_is_mended(lab: Lab) -> None:
    lab.set_link("n3", up=False)
    with pytest.raises(LabError):
        lab.run("n3", "ping", "-c1", "-W1", "192.168.88.1")
    lab.set_link("n3", up=True)
    lab.run("n3", "ping", "-c1", "-W10", "192.168.88.1")


def test_sync_makes_and_removes_pods_as_the_manifests_do(lab: Lab, directory: Path) -> None:
    clients = (directory / "clients.yaml").read_text()
    documents = clients.split("---\n")
    fresh = (
        documents[0].replace("name: a\n", "name: fresh\n").replace("10.10.1.10", "10.10.1.30").replace("::10", "::30")
    )
    moved = documents[1].replace("10.10.1.11", "10.10.1.31")
    (directory / "clients.yaml").write_text("---\n".join([fresh, moved, *documents[2:]]))
    done = lab.sync(directory)
    assert (set(done.added), set(done.removed)) == ({"default/fresh", "default/b"}, {"default/a", "default/b"})
    lab.run("fresh", "ping", "-c1", "-W10", "10.10.1.31")
    assert lab.pod("fresh").port in lab.port_counters("n1")
    with pytest.raises(LabError, match="nothing is called that"):
        lab.run("a", "true")
    subprocess.run(["ip", "netns", "delete", lab.namespace("fresh")], check=True)  # by hand, which must not matter
    assert set(lab.sync(DEMO).added) == {"default/a", "default/b"}
    assert lab.sync(DEMO) == ((), (), ())
    lab.run("a", "ping", "-c1", "-W10", "fd00:10:1::11")


def test_sync_with_other_nodes_is_refused_and_changes_nothing(lab: Lab, directory: Path) -> None:
    nodes = directory / "nodes.yaml"
    nodes.write_text(nodes.read_text().replace("10.10.3.0/24", "10.10.4.0/24"))
    before = lab.plan
    with pytest.raises(ValueError, match="not those that lab"):
        lab.sync(directory)
    assert Lab.attach(lab.name).plan == before


def test_every_place_is_found_by_its_name(lab: Lab) -> None:
    for place in ("router", "router2", "outside", "remote", "controller", "fabric", "n1", "a"):
        assert lab.run(place, "ip", "-brief", "link", "show", "lo").stdout.startswith("lo")


def test_second_lab_of_a_name_is_refused_unless_it_replaces_the_first(lab: Lab) -> None:
    with pytest.raises(LabError, match="is up"):
        Lab(lab.name, DEMO).up()
    lab.run("n1", "true")  # the refusal has not touched it


def test_commands_do_what_the_objects_do(lab: Lab) -> None:
    shown = CliRunner().invoke(command, ["status", "--name", lab.name])
    assert (shown.exit_code, "0000000000000003" in shown.output) == (0, True)
    refused = CliRunner().invoke(command, ["up", str(DEMO), "--name", lab.name])
    assert (refused.exit_code, "is up" in refused.output) == (1, True)
    absent = CliRunner().invoke(command, ["status", "--name", unique("none")])
    assert (absent.exit_code, "no lab" in absent.output) == (1, True)


def test_down_leaves_nothing() -> None:
    name = unique("down")
    built = Lab(name, DEMO).up()
    built.echo("web-1", name, tcp=[PORT])
    assert remains(name)
    built.up(replace=True)
    assert built.run("web-1", "ss", "-Hltn").stdout == ""  # nothing of the first one serves there
    built.down()
    assert remains(name) == []
    built.down()


def test_down_removes_the_remains_of_a_broken_lab() -> None:
    name = unique("broken")
    built = Lab(name, DEMO).up()
    server = built.echo("web-1", name, tcp=[PORT])
    for program in ("ovs-vswitchd", "ovsdb-server"):
        pid = switch.pid(built.switch_directory("n1"), program)
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
    # By hand: the names go, but what runs in them runs on.
    for place in ("n2", "web-1"):
        subprocess.run(["ip", "netns", "delete", built.namespace(place)], check=True)
    (built.state / "plan.json").unlink()
    assert server.poll() is None
    take_down(name, built.state)
    assert remains(name) == []
    built.down()
    assert server.poll() is not None


@pytest.mark.parametrize("share", [0.2, 0.4, 0.6, 0.8, 0.95])
def test_build_that_is_killed_leaves_nothing_that_cannot_be_taken_down(share: float) -> None:
    name = unique("killed")
    words = [sys.executable, "-c", f"from lab.cluster import Lab; Lab({name!r}, {str(DEMO)!r}).up()"]
    begun = time.monotonic()
    subprocess.run(words, check=True)  # how long it takes today
    took = time.monotonic() - begun
    take_down(name, STATE / name)
    building = subprocess.Popen(words)
    time.sleep(took * share)
    building.kill()
    building.wait()
    take_down(name, STATE / name)
    assert remains(name) == []


def test_pid_file_of_a_dead_switch_ends_no_other_process() -> None:
    name = unique("stale")
    bystander = subprocess.Popen(["sleep", "60"])
    try:
        with Lab(name, DEMO) as built:
            built.kill_vswitchd("n1")
            (built.switch_directory("n1") / "ovs-vswitchd.pid").write_text(f"{bystander.pid}\n")
            (built.state / "processes" / str(bystander.pid)).write_text("1")
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()
    assert remains(name) == []


def test_build_that_fails_half_way_cleans_up_and_says_why(directory: Path) -> None:
    name = unique("half")
    nodes = directory / "nodes.yaml"
    nodes.write_text(nodes.read_text().replace("uplink: eth1", "uplink: gw0", 1))
    with pytest.raises(LabError, match="gw0"):
        Lab(name, directory).up()
    assert remains(name) == []


def test_one_labs_name_is_no_beginning_of_another() -> None:
    with pytest.raises(LabError, match="lower-case letters and digits"):
        Lab("lab-2", DEMO)
