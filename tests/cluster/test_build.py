"""What is built is what go.mod pins, and the pins fit together."""

import re
import subprocess
from pathlib import Path

from tests.cluster.apiserver import program

MODULE = Path(__file__).with_name("go.mod").read_text()


def test_every_staging_module_is_of_the_same_release():
    (release,) = set(re.findall(r"k8s\.io/kubernetes v1\.(\S+)", MODULE))
    replaced = re.findall(r"^\s*(k8s\.io/\S+) => \1 (\S+)$", MODULE, re.MULTILINE)
    assert len(replaced) > 20
    assert {version for _, version in replaced} == {f"v0.{release}"}


def test_the_program_is_of_the_version_that_its_folder_names():
    path = program()
    said = subprocess.run([path, "--version"], capture_output=True, text=True, check=True).stdout
    assert said.strip() == f"Kubernetes v{path.parent.name}"
