"""The bench with a cluster of a few services: that it runs, says what it should, and leaves nothing behind."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec
import pytest

from bench.cluster import Cluster, changes
from bench.figures import Comparison, Report, Series, Verdict, joined, number, percentile
from bench.ovn import DONE, balancers
from pipelines.model import Kind

ROOT = Path(__file__).parents[2]
SMALL = ("--services=5", "--endpoints=2", "--switches=3", "--changes=4", "--repetitions=2", "--no-ovn", "--output=json")


def bench(part: str, temporary: Path, *more: str) -> subprocess.Popen[str]:
    environment = os.environ | {"TMPDIR": str(temporary)}
    # Whoever runs the tests in the background of a shell has let it ignore SIGINT, and so would what it starts.
    command = ["env", "--default-signal=INT", sys.executable, "-W", "ignore", "-m", "bench", part, *SMALL, *more]
    return subprocess.Popen(
        command, cwd=ROOT, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def report_of(part: str, temporary: Path, *more: str) -> Report:
    process = bench(part, temporary, *more)
    printed, said = process.communicate(timeout=300)
    assert process.returncode == 0, said
    assert not list(temporary.iterdir()), "its directory is still there"
    assert not alive(temporary)
    return msgspec.json.decode(printed, type=Report)


def alive(temporary: Path) -> list[str]:
    """Command lines of processes that know the directory."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if str(temporary) in line:
            found.append(line)
    return found


@pytest.fixture
def temporary():
    """Its path is short: sockets of Open vSwitch lie in it."""
    with tempfile.TemporaryDirectory(prefix="sb-") as directory:
        yield Path(directory)


@pytest.mark.ovs
@pytest.mark.parametrize(
    ("part", "wanted"),
    [
        ("sync", "objects → committed"),
        ("change", "event → committed"),
        ("reconnect", "flow and group mods sent"),
    ],
)
def test_a_part_with_a_real_switch_measures_us_and_a_peer(part: str, wanted: str, temporary: Path) -> None:
    report = report_of(part, temporary)
    assert wanted in [one.ours.what for one in report.comparisons]
    beside = [one.peer.what for one in report.comparisons if one.peer is not None]
    assert any("ovs-ofctl" in what for what in beside)
    assert all(value > 0 for one in report.comparisons if one.ours.unit for value in one.ours.values)


@pytest.mark.ovs
def test_fakes_get_the_same_bytes_and_these_are_counted(temporary: Path) -> None:
    figures = {one.ours.what: one.ours for one in report_of("fakes", temporary).comparisons}
    delivered = figures["flow mods delivered in all"].values
    assert delivered == [delivered[0]] * 2
    assert delivered[0] > 3 * 5 * (2 + 1)
    assert 40 < figures["share of them encoded for another switch already"].median < 67


@pytest.mark.ovs
def test_encoding_is_measured_beside_ryus(temporary: Path) -> None:
    report = report_of("encode", temporary)
    assert report.comparisons[0].ours.what == "flow mods encoded"
    assert report.comparisons[0].ratio is not None
    assert report.comparisons[0].ratio > 1


@pytest.mark.ovs
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_when_it_is_stopped_in_the_middle(number: signal.Signals, temporary: Path) -> None:
    process = bench("sync", temporary)
    limit = time.monotonic() + 60
    while not any("ovs-vswitchd" in line for line in alive(temporary)):
        assert process.poll() is None
        assert time.monotonic() < limit
        time.sleep(0.02)
    process.send_signal(number)
    process.communicate(timeout=30)
    assert process.returncode != 0
    limit = time.monotonic() + 10
    while alive(temporary) and time.monotonic() < limit:
        time.sleep(0.05)
    assert not alive(temporary)
    if number is not signal.SIGKILL:
        assert not list(temporary.iterdir()), "its directory is still there"


def test_a_part_that_fails_fails_the_run(temporary: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-m", "bench", "encode", *SMALL, "--services=0"]
    environment = os.environ | {"TMPDIR": str(temporary)}
    ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 1
    assert "encode failed" in ran.stderr
    assert not list(temporary.iterdir())


def test_a_duty_that_was_not_met_fails_the_run_and_an_aim_does_not() -> None:
    aim, duty = Verdict("fast", met=False), Verdict("right", met=False, duty=True)
    assert not Report([], [aim]).failed
    assert joined([Report([], [aim]), Report([], [duty])]).failed


def test_a_ratio_is_ours_to_the_peers_by_medians() -> None:
    comparison = Comparison("part", Series("ours", "ms", [1, 2, 9]), Series("theirs", "ms", [8, 4, 3]))
    assert comparison.ratio == 0.5
    assert str(comparison.ours) == "2 ms (1–9, n=3)"
    assert Comparison("part", comparison.ours).ratio is None


def test_numbers_have_three_digits_that_count() -> None:
    assert [number(value) for value in (0.1234, 12.34, 1234.5, 0.0)] == ["0.123", "12.3", "1,234", "0"]
    assert percentile([float(value) for value in range(101)], 99) == 99


def test_no_two_services_share_an_endpoint_and_spare_ones_belong_to_nobody() -> None:
    cluster = Cluster(services=700, endpoints=7, nodes=3)
    used = [address for service in range(700) for address in cluster.endpoint_addresses(service)]
    assert len(set(used)) == len(used) == 4900
    assert not {cluster.spare_address(index) for index in range(4)} & set(used)
    assert not [change for change in changes(cluster.objects()) if getattr(change.value, "problems", ())]


def test_a_source_understands_every_object() -> None:
    found = list(changes(Cluster(services=2, endpoints=2, nodes=2).objects()))
    kinds = [change.kind for change in found]
    assert kinds.count(Kind.SERVICE) == kinds.count(Kind.ENDPOINT_SLICE) == kinds.count(Kind.NODE) == 2
    assert all(change.value is not None for change in found)


def test_ovn_gets_the_services_that_we_get() -> None:
    words = [" ".join(command) for command in balancers(Cluster(services=1, endpoints=2, nodes=2))]
    assert words == [
        "--may-exist lb-add service-0 10.96.0.1:80 10.128.0.3:8080,10.128.1.3:8080 tcp",
        "ls-lb-add pods service-0",
    ]


def test_the_time_that_ovn_counts_is_found() -> None:
    found = DONE.search("\tovn-northd completion:\t\t678ms\n\tovn-controller(s) completion:\t1056ms\n")
    assert found is not None
    assert found[1] == "1056"
