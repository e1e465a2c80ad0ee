"""A directory that people and programs edit while it is followed. Time is driven by hand: one look after another."""

import itertools
import os
import shutil
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from k8s_bridge import manifests
from k8s_bridge.directory import DirectorySource
from k8s_bridge.mirror import KEPT
from pipelines.addresses import parse_cidr
from pipelines.model import Kind
from tests.bridge.recording import Recording, until

NODE = "apiVersion: v1\nkind: Node\nmetadata: {name: %s, uid: %s}\nspec: {podCIDRs: [%s]}\n"
SERVICE = "apiVersion: v1\nkind: Service\nmetadata: {name: %s}\nspec: {clusterIP: 10.96.0.%d, ports: [{port: 80}]}\n"


class Followed:
    """A directory source whose looks and clock are driven by the test."""

    def __init__(self, path, **options):
        self.path, self.sink, self.now = path, Recording(), 0.0
        self.source = DirectorySource(path, self.sink, clock=lambda: self.now, sleep=self._sleep, **options)

    def _sleep(self, seconds):
        self.now += seconds

    def settle(self):
        """Look until nothing is being written any more."""
        for _ in range(5):
            self.now += 0.2
            if self.source.look():
                return self
        raise AssertionError("never at rest")

    def write(self, name, text):
        """As an editor that saves in place, with a time stamp that differs for sure."""
        path = self.path / name
        path.write_text(text)
        stamp = next(STAMPS)
        os.utime(path, ns=(stamp, stamp))

    def messages(self):
        return [str(problem) for problem in self.source.status().problems]


STAMPS = itertools.count(1_700_000_000_000_000_000, 1_000_000_000)


@pytest.fixture
def followed(tmp_path):
    """Three nodes in one file, six services in another, in sync."""
    running = Followed(tmp_path)
    running.write("nodes.yaml", "---\n".join(NODE % (f"n{n}", "a", f"10.10.{n}.0/24") for n in (1, 2, 3)))
    running.write("services.yaml", "---\n".join(SERVICE % (f"s{n}", n) for n in range(1, 7)))
    return running.settle()


def test_the_first_sync_delivers_everything_once_and_then_says_so(followed):
    assert followed.sink.synced_calls == 1
    assert followed.sink.keys(Kind.NODE) == {"n1", "n2", "n3"}
    assert len(followed.sink.batches) == 1
    status = followed.source.status()
    assert (status.synced, status.complete, status.problems, status.held) == (True, True, (), ())
    assert status.counts == {"Node": 3, "Service": 6, "Pod": 0, "EndpointSlice": 0, "ServiceCIDR": 0}
    followed.settle().settle()
    assert len(followed.sink.batches) == 1
    assert followed.sink.synced_calls == 1


def test_what_is_current_is_as_old_as_the_last_look_that_left_nothing_to_be_read(followed):
    """So that who wrote something can know that it was taken, and not only a part of it."""
    assert followed.source.status().current_age == 0
    followed.now += 7
    assert followed.source.status().current_age == 7
    followed.write("n4.yaml", NODE % ("n4", "a", "10.10.4.0/24"))
    followed.now += 1
    followed.source.look()  # n4.yaml may still be being written
    assert followed.source.status().current_age == 8
    followed.write("n5.yaml", NODE % ("n5", "a", "10.10.5.0/24"))
    followed.now += 1
    followed.source.look()
    assert "n4" in followed.sink.keys(Kind.NODE)
    assert followed.source.status().current_age == 9
    followed.now += 1
    followed.source.look()
    assert "n5" in followed.sink.keys(Kind.NODE)
    assert followed.source.status().current_age == 0
    shutil.rmtree(followed.path)
    followed.now += 1
    followed.source.look()
    assert followed.source.status().current_age == 1


def test_live_edits_are_followed(followed):
    """B11 and B13: a podCIDR that comes later, and a node that was created anew with another one."""
    followed.write("n4.yaml", NODE % ("n4", "a", ""))
    followed.settle()
    assert followed.sink.values[Kind.NODE, "n4"].pod_cidrs == ()
    followed.write("n4.yaml", NODE % ("n4", "a", "10.10.4.0/24"))
    followed.settle()
    assert followed.sink.values[Kind.NODE, "n4"].pod_cidrs == (parse_cidr("10.10.4.0/24"),)
    followed.write("n4.yaml", NODE % ("n4", "b", "10.10.9.0/24"))
    followed.settle()
    assert followed.sink.values[Kind.NODE, "n4"].uid == "b"
    assert followed.sink.values[Kind.NODE, "n4"].pod_cidrs == (parse_cidr("10.10.9.0/24"),)
    assert all(len(batch) == 1 for batch in followed.sink.batches[1:])


def test_removed_objects_and_files_are_obeyed_at_once_however_many(followed):
    """Only a directory without anything is doubted: a person removed this file."""
    (followed.path / "services.yaml").unlink()
    followed.settle()
    assert followed.sink.keys(Kind.SERVICE) == set()
    assert followed.source.status().held == ()
    followed.write("nodes.yaml", NODE % ("n2", "a", "10.10.2.0/24"))
    followed.settle()
    assert followed.sink.keys(Kind.NODE) == {"n2"}


def test_only_changed_files_are_parsed(followed, monkeypatch):
    parsed: list[str] = []

    def noted(name, path, pause):
        parsed.append(name)
        return manifests.parse_file(name, path, pause)

    monkeypatch.setattr("k8s_bridge.directory.parse_file", noted)
    followed.write("n4.yaml", NODE % ("n4", "a", "10.10.4.0/24"))
    followed.settle().settle()
    assert parsed == ["n4.yaml"]


def test_a_file_that_is_being_written_is_not_taken_for_its_final_state(followed):
    """Every look sees another part of it; each part is good YAML with fewer objects."""
    whole = (followed.path / "services.yaml").read_text()
    for part in ("", SERVICE % ("s1", 1), SERVICE % ("s1", 1) + "---\n" + SERVICE % ("s2", 2)):
        followed.write("services.yaml", part)
        assert not followed.source.look(), "it wants to look again soon"
    followed.write("services.yaml", whole)
    followed.settle()
    assert len(followed.sink.batches) == 1


def test_a_file_that_is_replaced_by_unlink_and_create_never_seems_gone(followed):
    text = (followed.path / "services.yaml").read_text()
    (followed.path / "services.yaml").unlink()
    assert not followed.source.look()
    followed.write("services.yaml", text)
    followed.settle()
    assert len(followed.sink.batches) == 1


def test_a_broken_file_keeps_its_last_good_objects_until_it_is_mended(followed):
    followed.write("services.yaml", SERVICE % ("s1", 1) + "---\nkind: [\n")
    followed.settle()
    assert len(followed.sink.keys(Kind.SERVICE)) == 6
    assert followed.messages()[0].startswith("File services.yaml:")
    assert followed.source.status().complete, "nothing is missing: it was good before"
    followed.write("n4.yaml", NODE % ("n4", "a", "10.10.4.0/24"))
    followed.settle()
    assert "n4" in followed.sink.keys(Kind.NODE), "others are followed meanwhile"
    assert len(followed.sink.keys(Kind.SERVICE)) == 6
    followed.write("services.yaml", SERVICE % ("s1", 1))
    followed.settle()
    assert followed.sink.keys(Kind.SERVICE) == {"default/s1"}
    assert followed.messages() == []


def test_a_file_that_is_broken_at_the_start_makes_the_source_incomplete(tmp_path):
    """Nobody knows what it held: removals from switches have to wait for it."""
    followed = Followed(tmp_path)
    followed.write("nodes.yaml", NODE % ("n1", "a", "10.10.1.0/24"))
    followed.write("services.yaml", SERVICE % ("s1", 1) + "---\nkind: [\n")
    followed.settle()
    status = followed.source.status()
    assert (status.synced, status.complete) == (True, False)
    assert followed.sink.keys(Kind.SERVICE) == {"default/s1"}, "what stands before the fault counts already"
    followed.write("services.yaml", "kind: [\n")
    followed.settle()
    assert followed.sink.keys(Kind.SERVICE) == {"default/s1"}
    assert not followed.source.status().complete
    followed.write("services.yaml", SERVICE % ("s2", 2))
    followed.settle()
    assert followed.source.status().complete
    assert followed.sink.keys(Kind.SERVICE) == {"default/s2"}


def test_an_operator_may_confirm_an_incomplete_start(tmp_path):
    followed = Followed(tmp_path)
    followed.write("services.yaml", "kind: [\n")
    followed.settle()
    followed.source.confirm()
    assert followed.source.status().complete


def test_an_unusable_object_is_invalid_and_harms_no_other(followed):
    followed.write(
        "more.yaml", "apiVersion: v1\nkind: Service\nmetadata: {name: odd}\nspec: {clusterIP: 10.96.0.9, ports: x}\n"
    )
    followed.settle()
    assert type(followed.sink.values[Kind.SERVICE, "default/odd"]).__name__ == "Invalid"
    assert followed.messages() == ['Service default/odd: spec.ports: must be a list, not the text "x"']


def test_an_object_that_becomes_unusable_keeps_its_last_good_version_until_it_is_mended(followed, caplog):
    """Nobody else can take its address meanwhile, and what is right beside it in the file is followed."""
    caplog.set_level("INFO")
    good = SERVICE % ("s1", 1)
    before = followed.sink.values[Kind.SERVICE, "default/s1"]
    for wrong in (good.replace("spec: {", "spec: [{").replace("]}\n", "]}]\n"), good.replace("0.1,", "0.300,")):
        followed.write("services.yaml", wrong + "---\n" + SERVICE % ("s2", 222))
        followed.settle()
        kept = followed.sink.values[Kind.SERVICE, "default/s1"]
        assert (kept.cluster_ips, kept.ports) == (before.cluster_ips, before.ports)
        assert str(followed.sink.values[Kind.SERVICE, "default/s2"].cluster_ips[0]) == "10.96.0.222"
        first, second = followed.messages()
        assert first.startswith("Service default/s1: spec")
        assert second == f"Service default/s1: object: {KEPT}"
        assert second in caplog.text
        assert followed.source.status().complete
    followed.write("services.yaml", good)
    followed.settle()
    assert followed.sink.values[Kind.SERVICE, "default/s1"] == before
    assert followed.messages() == []
    assert f"mended: {second}" in caplog.text
    (followed.path / "services.yaml").unlink()
    followed.settle()
    assert followed.sink.keys(Kind.SERVICE) == set()


def test_a_value_of_a_wrong_type_leaves_the_rest_of_its_object_alone(followed):
    followed.write("services.yaml", (SERVICE % ("s1", 99)).replace("port: 80}", "port: 80, nodePort: x}"))
    followed.settle()
    value = followed.sink.values[Kind.SERVICE, "default/s1"]
    assert (str(value.cluster_ips[0]), value.ports[0].port) == ("10.96.0.99", 80)
    assert followed.messages() == [
        'Service default/s1: spec.ports[0].nodePort: must be a whole number, not the text "x"'
    ]


def test_a_directory_that_was_emptied_holds_everything_until_it_stays_so(followed):
    for path in followed.path.iterdir():
        path.unlink()
    followed.settle()
    status = followed.source.status()
    assert len(status.held) == 9
    assert "holds no manifest" in status.last_error
    assert len(followed.sink.values) == 9
    followed.now += 29
    followed.settle()
    assert len(followed.sink.values) == 9
    followed.now += 2
    followed.settle()
    assert followed.sink.values == {}
    assert followed.source.status().held == ()


def test_a_directory_that_fills_again_loses_nothing_on_the_way(followed):
    """Emptied and refilled file by file, as a synchronizing program may do."""
    texts = {path.name: path.read_text() for path in followed.path.iterdir()}
    for path in followed.path.iterdir():
        path.unlink()
    followed.settle()
    for name, text in texts.items():
        followed.write(name, text)
        followed.settle()
    assert len(followed.sink.values) == 9
    assert len(followed.sink.batches) == 1
    assert followed.source.status().held == ()


def test_what_is_held_goes_when_an_operator_confirms(followed):
    for path in followed.path.iterdir():
        path.unlink()
    followed.settle()
    followed.source.confirm()
    assert followed.sink.values == {}
    assert followed.settle().source.status().held == ()


def test_a_directory_that_is_missing_keeps_everything_for_as_long_as_it_takes(followed, tmp_path_factory):
    aside = tmp_path_factory.mktemp("aside") / "moved"
    shutil.move(followed.path, aside)
    followed.settle()
    followed.now += 3600
    followed.settle()
    assert len(followed.sink.values) == 9
    assert "everything is kept: No such file or directory" in followed.source.status().last_error
    shutil.move(aside, followed.path)
    followed.settle()
    assert followed.source.status().last_error == ""
    assert len(followed.sink.batches) == 1


def test_with_the_directory_missing_a_confirmation_means_everything(followed):
    shutil.rmtree(followed.path)
    followed.settle()
    followed.source.confirm()
    assert followed.sink.values == {}


def test_a_directory_that_is_missing_at_the_start_is_not_in_sync(tmp_path):
    followed = Followed(tmp_path / "later").settle()
    assert not followed.source.status().synced
    assert "nothing is known yet: No such file" in followed.messages()[0]
    followed.source.confirm()
    assert not followed.source.status().synced, "there is nothing to confirm yet"
    followed.path.mkdir()
    followed.write("nodes.yaml", NODE % ("n1", "a", "10.10.1.0/24"))
    followed.settle()
    assert followed.source.status().synced
    assert followed.sink.synced_calls == 1


def test_a_directory_that_is_empty_at_the_start_is_in_sync_but_incomplete(tmp_path):
    followed = Followed(tmp_path).settle()
    assert (followed.source.status().synced, followed.source.status().complete) == (True, False)
    followed.write("nodes.yaml", NODE % ("n1", "a", "10.10.1.0/24"))
    followed.settle()
    assert followed.source.status().complete


def test_of_an_object_in_two_files_the_first_by_path_counts_and_the_other_takes_over(followed):
    followed.write("a.yaml", SERVICE % ("s1", 99))
    followed.settle()
    assert str(followed.sink.values[Kind.SERVICE, "default/s1"].cluster_ips[0]) == "10.96.0.99"
    assert followed.messages() == ["Service default/s1: object: services.yaml:1 is ignored: already in a.yaml:1"]
    (followed.path / "a.yaml").unlink()
    followed.settle()
    assert str(followed.sink.values[Kind.SERVICE, "default/s1"].cluster_ips[0]) == "10.96.0.1"
    assert followed.messages() == []


def test_an_object_that_moves_to_another_file_is_no_change(followed):
    text = (followed.path / "nodes.yaml").read_text()
    (followed.path / "nodes.yaml").unlink()
    followed.write("z.yaml", text)
    followed.settle()
    assert len(followed.sink.batches) == 1


def test_a_running_source_follows_and_stops(tmp_path):
    """With real time and a thread, as an application runs it."""
    sink = Recording()
    (tmp_path / "nodes.yaml").write_text(NODE % ("n1", "a", "10.10.1.0/24"))
    source = DirectorySource(tmp_path, sink, poll_seconds=0.05)
    thread = threading.Thread(target=source.run)
    thread.start()
    try:
        until(lambda: sink.synced_calls, 5)
        (tmp_path / "n2.yaml").write_text(NODE % ("n2", "a", "10.10.2.0/24"))
        until(lambda: sink.keys(Kind.NODE) == {"n1", "n2"}, 5)
        (tmp_path / "n2.yaml").unlink()
        until(lambda: sink.keys(Kind.NODE) == {"n1"}, 5)
    finally:
        source.stop()
        thread.join(5)
    assert not thread.is_alive()


FILES = st.sampled_from(["a.yaml", "b.yaml", "c.yaml"])
PARTS = st.lists(st.tuples(st.sampled_from("xyz"), st.integers(1, 3)), max_size=3)
EDITS = st.lists(st.tuples(FILES, st.none() | st.just("broken") | PARTS, st.booleans()), max_size=12)


@given(EDITS)
@settings(max_examples=60)
def test_after_any_edits_the_sink_holds_what_the_directory_says(tmp_path_factory, edits):
    """Whatever was seen on the way, half-way looks included."""
    path = tmp_path_factory.mktemp("edits")
    followed = Followed(path)
    followed.write("anchor.yaml", NODE % ("n1", "a", "10.10.1.0/24"))  # never emptied, so never held
    followed.settle()
    for name, content, look in edits:
        if content is None:
            (path / name).unlink(missing_ok=True)
        elif content == "broken":
            followed.write(name, "kind: [\n")
        else:
            followed.write(name, "---\n".join(SERVICE % part for part in content))
        if look:
            followed.source.look()
    broken = {
        name for name in ("a.yaml", "b.yaml", "c.yaml") if (path / name).exists() and "[\n" in (path / name).read_text()
    }
    for name in broken:
        followed.write(name, "")
    followed.settle()
    assert followed.sink.values == manifests.read(path).values
