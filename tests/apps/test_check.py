"""`signalbox check`: each fault is found, with file, object, field and reason."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from apps.cli import signalbox
from tests.apps.broken import FAULTS, SERVICE
from tests.apps.stub import DEMO


def run(*arguments: object, environment: dict[str, str] | None = None) -> Result:
    return CliRunner().invoke(signalbox, [str(one) for one in arguments], env=environment, catch_exceptions=False)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_broken_manifest_is_reported(fault: str, tmp_path: Path) -> None:
    files, (kind, name, field, words) = FAULTS[fault]
    for number, text in enumerate(files):
        (tmp_path / f"{number}.yaml").write_text(text)
    ran = run("check", tmp_path, "--output", "json")
    report = json.loads(ran.stdout)
    assert ran.exit_code == 1
    assert not report["ok"]
    matching = [one for one in report["findings"] if (one["kind"], one["object"], one["field"]) == (kind, name, field)]
    assert any(words in one["reason"] for one in matching), report["findings"]
    assert any(one["file"].startswith(f"{len(files) - 1}.yaml") or "0.yaml" in one["file"] for one in matching)


def test_a_problem_is_one_line_of_text_with_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(SERVICE % ("old", 1))
    (tmp_path / "b.yaml").write_text("# two lines\n# before it\n" + SERVICE % ("new", 2))
    ran = run("check", tmp_path)
    (line,) = [line for line in ran.stdout.splitlines() if "default/new" in line]
    assert line.split()[:3] == ["Service", "default/new", "spec.ports"]
    assert line.endswith("b.yaml:3")


def test_what_is_right_in_an_object_is_compiled_beside_what_is_wrong(tmp_path: Path) -> None:
    """Else another service could have its ClusterIP."""
    (tmp_path / "a.yaml").write_text(SERVICE.replace("port: 80", "port: 80, nodePort: x") % ("web", 1))
    (tmp_path / "b.yaml").write_text(SERVICE % ("thief", 2))
    report = json.loads(run("check", tmp_path, "--output", "json").stdout)
    assert [(one["object"], one["field"]) for one in report["findings"]] == [
        ("default/thief", "spec.ports"),
        ("default/web", "spec.ports[0].nodePort"),
    ]


def test_services_that_are_left_alone_are_counted_and_no_problem(tmp_path: Path) -> None:
    spec = "spec: {type: ExternalName, externalName: a.example}"
    (tmp_path / "a.yaml").write_text(f"apiVersion: v1\nkind: Service\nmetadata: {{name: ext}}\n{spec}\n")
    ran = run("check", tmp_path)
    assert ran.exit_code == 0
    assert "1 Service" in ran.stdout


def test_the_demo_is_in_order() -> None:
    ran = run("check", DEMO)
    assert ran.exit_code == 0
    assert ran.stdout.startswith("ok: ")
    assert "3 Node" in ran.stdout


def test_an_empty_directory_is_a_problem(tmp_path: Path) -> None:
    ran = run("check", tmp_path)
    assert ran.exit_code == 1
    assert "holds no manifest" in ran.stdout


def test_settings_and_their_directory_are_checked_together(tmp_path: Path) -> None:
    (tmp_path / "manifests").mkdir()
    (tmp_path / "manifests" / "x.yaml").write_text("kind: Foo\napiVersion: v1")
    config = tmp_path / "signalbox.yaml"
    config.write_text("source: manifests\n")
    ran = run("check", "--config", config)
    assert ran.exit_code == 1
    assert "x.yaml:1" in ran.stdout


def test_broken_settings_do_not_hide_broken_manifests(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text("kind: Foo\napiVersion: v1")
    config = tmp_path / "signalbox.conf"
    config.write_text("moode: observe\n")
    ran = run("check", "--config", config, tmp_path, "--output", "json")
    found = {(one["kind"], one["field"]) for one in json.loads(ran.stdout)["findings"]}
    assert found == {("Settings", "moode"), ("File", "content")}


def test_settings_that_do_not_fit_the_cluster_are_problems(tmp_path: Path) -> None:
    config = tmp_path / "signalbox.yaml"
    wrong = {
        "announce": "[10.96.1.0/24]",
        "node_port_addresses": "[172.16.0.0/12]",
        "virtual_ip4": "192.168.77.102",
        "virtual_ip6": "fd00:10:2::7",
    }
    config.write_text("".join(f"{key}: {value}\n" for key, value in wrong.items()))
    ran = run("check", DEMO, "--config", config, "--output", "json")
    assert ran.exit_code == 1
    found = {(one["kind"], one["object"], one["field"]) for one in json.loads(ran.stdout)["findings"]}
    assert found == {("Settings", "", key) for key in wrong}


def test_a_kubeconfig_that_is_not_there_is_a_problem(tmp_path: Path) -> None:
    config = tmp_path / "signalbox.yaml"
    config.write_text("source: kubeconfig:none.conf\n")
    ran = run("check", "--config", config)
    assert ran.exit_code == 1
    assert "none.conf is not a file" in ran.stdout
    assert ran.stdout.endswith("\n\n1 problem\n"), "the count stands where the table does"
    assert ran.stderr == ""


def test_nothing_to_check_is_a_usage_error() -> None:
    ran = run("check", environment={"SIGNALBOX_CONFIG": ""})
    assert ran.exit_code == 2
    assert "name a DIRECTORY" in ran.stderr
