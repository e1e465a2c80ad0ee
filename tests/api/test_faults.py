"""Bad days: servers that die, freeze, expire what they promised, answer late, or seem to have lost everything."""

import logging
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from pipelines.model import Kind
from tests.api.objects import CIDRS, NODES, SLICES, endpoint_slice, node
from tests.api.relay import Relay, status
from tests.bridge.recording import until

ALL_SLICES = "/apis/discovery.k8s.io/v1/endpointslices"


@pytest.fixture(autouse=True)
def clean(cluster):
    yield
    for path in (NODES, SLICES):
        cluster.request("DELETE", path)


@pytest.fixture
def relay(cluster):
    running = Relay(cluster)
    yield running
    running.close()


def make_slices(cluster, count: int) -> set[str]:
    for number in range(count):
        cluster.request("POST", SLICES, endpoint_slice(f"web-{number}", "web", f"10.10.1.{number + 10}"))
    return {f"default/web-{number}" for number in range(count)}


def test_a_killed_server_is_left_for_the_second_and_nothing_is_removed(cluster, follow):
    cluster.request("POST", NODES, node("n1"))
    following = follow(servers=cluster.urls).wait_synced()
    assert following.source.status().servers == cluster.urls
    first, second = cluster.servers
    try:
        first.kill()
        second.request("POST", NODES, node("n2"))
        until(lambda: (Kind.NODE, "n2") in following.sink.values)
        until(lambda: following.source.status().last_error == "")
        assert following.source.status().servers == cluster.urls[::-1]
    finally:
        first.start()
        first.wait_ready()
    second.request("POST", NODES, node("n3"))
    until(lambda: (Kind.NODE, "n3") in following.sink.values)
    assert following.source.status().servers == cluster.urls[::-1], "a fail-over lasts until it fails too"
    gone = [change for batch in following.sink.batches for change in batch if change.value is None]
    assert gone == []


def test_a_frozen_server_is_noticed_by_its_silence(cluster, follow):
    following = follow(servers=cluster.urls, silence_seconds=2.0, list_seconds=3.0).wait_synced()
    first, second = cluster.servers
    try:
        first.freeze()
        second.request("POST", NODES, node("n1"))
        until(lambda: (Kind.NODE, "n1") in following.sink.values)
        assert following.source.status().servers[0] == second.url
    finally:
        first.thaw()


def test_with_every_server_down_everything_is_kept_and_they_are_tried_until_one_is_back(cluster, follow):
    cluster.request("POST", NODES, node("n1"))
    following = follow(servers=cluster.urls[:1], longest_wait=1.0).wait_synced()
    server = cluster.servers[0]
    try:
        server.stop()
        until(lambda: "refused" in following.source.status().last_error)
        assert (Kind.NODE, "n1") in following.sink.values
        assert following.source.status().problems[0].kind == "Source"
    finally:
        server.start()
        server.wait_ready()
    cluster.request("POST", NODES, node("n2"))
    until(lambda: (Kind.NODE, "n2") in following.sink.values)
    until(lambda: following.source.status().problems == ())


def test_an_expired_watch_lists_again_and_finds_what_it_missed(cluster, follow, relay, caplog):
    """410, made real: what happened while the watch was cut off is compacted, and in no server's cache."""
    caplog.set_level(logging.INFO, "signalbox.source")
    cluster.request("POST", NODES, node("n1"))
    cluster.request("POST", NODES, node("n2"))
    following = follow(servers=(relay.url,), silence_seconds=200.0).wait_synced()
    back = threading.Event()

    def hold_new_watches(_path, query):
        if "watch" in query:
            back.wait(200)

    until(lambda: relay.watches() == 5)
    relay.asked.clear()
    relay.answer = hold_new_watches
    relay.cut()
    until(lambda: [path for path, query in relay.asked if path == NODES])
    for number in range(3, 6):
        cluster.request("POST", NODES, node(f"n{number}"))
    cluster.request("DELETE", f"{NODES}/n1")
    cluster.compact()
    cluster.servers[0].kill()
    cluster.servers[0].start()
    cluster.servers[0].wait_ready()
    assert following.sink.keys(Kind.NODE) == {"n1", "n2"}
    assert not relay.lists(NODES)
    back.set()
    until(lambda: following.sink.keys(Kind.NODE) == {"n2", "n3", "n4", "n5"})
    assert relay.lists(NODES)
    assert any("Node: 410" in message for message in caplog.messages), "the reason was that the watch had expired"


def test_an_expired_watch_by_status_code_lists_again(cluster, follow, relay):
    """410 as the HTTP status instead of an event."""
    following = follow(servers=(relay.url,), silence_seconds=2.0).wait_synced()
    expired = iter([(410, status(410, "too old"))])
    relay.asked.clear()
    relay.answer = lambda path, query: next(expired, None) if path == NODES and "watch" in query else None
    until(lambda: relay.lists(NODES))
    cluster.request("POST", NODES, node("n1"))
    until(lambda: (Kind.NODE, "n1") in following.sink.values)
    assert following.source.status().last_error == ""


def test_a_watch_that_always_expires_does_not_list_without_a_pause(cluster, follow, relay):
    """No endless hot retry, whatever a server does."""
    relay.answer = lambda path, query: (410, status(410, "too old")) if path == NODES and "watch" in query else None
    following = follow(servers=(relay.url,)).wait_synced()
    time.sleep(2.0)
    assert len(relay.lists(NODES)) <= 6
    until(lambda: len(relay.lists(NODES)) >= 2)
    relay.answer = lambda _path, _query: None
    cluster.request("POST", NODES, node("n1"))
    until(lambda: (Kind.NODE, "n1") in following.sink.values)


def test_a_list_that_expires_between_two_pages_is_started_again(cluster, follow, relay):
    keys = make_slices(cluster, 12)
    compacted: list[dict[str, str]] = []

    def compact_before_the_second_page(path, query):
        if path == ALL_SLICES and "continue" in query and not compacted:
            cluster.request("POST", SLICES, endpoint_slice("web-late", "web", "10.10.1.99"))
            cluster.compact()
            compacted.append(query)

    relay.answer = compact_before_the_second_page
    following = follow(servers=(relay.url,), page_size=5).wait_synced()
    assert compacted
    first_pages = [query for query in relay.lists(ALL_SLICES) if "continue" not in query]
    assert len(first_pages) == 2
    assert following.sink.keys(Kind.ENDPOINT_SLICE) >= keys | {"default/web-late"}


def test_a_list_that_always_expires_is_asked_for_whole(cluster, follow, relay):
    keys = make_slices(cluster, 7)
    relay.answer = lambda _path, query: (410, status(410, "expired")) if "continue" in query else None
    following = follow(servers=(relay.url,), page_size=3).wait_synced()
    assert following.sink.keys(Kind.ENDPOINT_SLICE) >= keys
    assert "limit" not in relay.lists(ALL_SLICES)[-1]


def test_sync_waits_for_the_slowest_kind(cluster, follow, relay):
    """A controller that starts while Nodes come late must not take them for gone."""
    cluster.request("POST", NODES, node("n1"))
    let_go = threading.Event()

    def late(path, _query):
        if path == NODES:
            let_go.wait(200)

    relay.answer = late
    following = follow(servers=(relay.url,))
    until(lambda: following.sink.keys(Kind.SERVICE) and following.sink.keys(Kind.SERVICE_CIDR))
    until(lambda: following.source.status().last_event_age is not None)
    assert following.sink.synced_calls == 0
    assert not following.source.status().synced
    let_go.set()
    following.wait_synced()
    assert (Kind.NODE, "n1") in following.sink.values


def test_service_cidrs_may_be_v1beta1_or_unknown_to_the_server(cluster, follow, relay):
    beta = CIDRS.replace("/v1/", "/v1beta1/")
    items = [{"metadata": {"name": "kubernetes"}, "spec": {"cidrs": ["10.96.0.0/16"]}}]
    answers = {
        CIDRS: (404, status(404, "no such resource")),
        beta: (200, {"metadata": {"resourceVersion": "1"}, "items": items}),
    }
    relay.answer = lambda path, query: None if "watch" in query else answers.get(path)
    assert follow(servers=(relay.url,)).wait_synced().sink.keys(Kind.SERVICE_CIDR) == {"kubernetes"}
    answers[beta] = answers[CIDRS]
    following = follow(servers=(relay.url,)).wait_synced()
    assert following.sink.keys(Kind.SERVICE_CIDR) == set()
    assert following.source.status().last_error == ""


def test_a_list_that_lost_most_objects_is_doubted_until_a_second_one_agrees(cluster, follow, relay):
    """A relist that would remove more than 30 % holds the removals; a confirmed or second one does not."""
    keys = make_slices(cluster, 10)
    empty = {"metadata": {"resourceVersion": "1"}, "items": []}
    expired = iter([(410, status(410, "too old"))])

    def lost(path, query):
        if path != ALL_SLICES:
            return None
        return next(expired, None) if "watch" in query else (200, empty)

    following = follow(servers=(relay.url,), silence_seconds=2.0, second_list_after=3.0).wait_synced()
    relay.answer = lost
    until(lambda: following.source.status().held)
    assert {key for _, key in following.source.status().held} >= keys
    assert following.sink.keys(Kind.ENDPOINT_SLICE) >= keys
    until(lambda: not following.source.status().held, what="the second list")
    assert following.sink.keys(Kind.ENDPOINT_SLICE) == set()


def test_held_removals_end_when_the_other_server_knows_the_objects(cluster, follow, relay):
    """The second opinion comes from another server, at once, where there is one."""
    keys = make_slices(cluster, 10)
    following = follow(servers=(relay.url, cluster.servers[1].url), silence_seconds=2.0).wait_synced()
    expired = iter([(410, status(410, "too old"))])
    empty = {"metadata": {"resourceVersion": "1"}, "items": []}

    def lost(path, query):
        if path != ALL_SLICES:
            return None
        return next(expired, None) if "watch" in query else (200, empty)

    relay.asked.clear()
    relay.answer = lost
    until(lambda: relay.lists(ALL_SLICES))
    until(lambda: following.source.status().servers[0] == cluster.servers[1].url)
    until(lambda: not following.source.status().held)
    assert following.sink.keys(Kind.ENDPOINT_SLICE) >= keys
    assert all(change.value is not None for batch in following.sink.batches for change in batch)


def test_whoever_may_not_read_is_told_what_and_the_others_work(cluster, follow):
    nobody = cluster.authority.issue("nobody", "/CN=nobody")
    following = follow(kubeconfig=str(cluster.kubeconfig(nobody)))
    until(lambda: len(following.source.status().problems) == 5)
    error = following.source.status().last_error
    assert 'cannot list resource "nodes"' in error
    assert not following.source.status().synced


def test_an_unusable_configuration_is_refused_by_name(follow, tmp_path):
    with pytest.raises(ValueError, match=r"nowhere\.kubeconfig"):
        follow(kubeconfig=str(tmp_path / "nowhere.kubeconfig"))


def test_the_source_is_green_when_the_process_is_patched(cluster):
    """As in production: everything patched by eventlet, one hub, no thread; it never stalls for long."""
    make_slices(cluster, 30)
    program = Path(__file__).with_name("green.py")
    done = subprocess.run(
        [sys.executable, str(program), str(cluster.kubeconfig()), *cluster.urls],
        capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "synced once, 30 slices, stopped" in done.stdout
