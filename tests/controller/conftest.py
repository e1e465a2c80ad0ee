"""Certificates for tests with TLS."""

import ssl
import subprocess

import pytest


@pytest.fixture(scope="session")
def pki(tmp_path_factory):
    """A CA, and certificates of the controller, of a switch, and of a stranger with an own CA."""
    directory = tmp_path_factory.mktemp("pki")

    def openssl(*words):
        subprocess.run(["openssl", *words], cwd=directory, check=True, capture_output=True)

    for ca in ("ca", "other"):
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                "-subj", f"/CN={ca}", "-keyout", f"{ca}.key", "-out", f"{ca}.pem")  # fmt: skip
    for name, ca in (("controller", "ca"), ("switch", "ca"), ("stranger", "other")):
        openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={name}",
                "-keyout", f"{name}.key", "-out", f"{name}.csr")  # fmt: skip
        openssl("x509", "-req", "-in", f"{name}.csr", "-CA", f"{ca}.pem", "-CAkey", f"{ca}.key", "-CAcreateserial",
                "-days", "2", "-out", f"{name}.pem")  # fmt: skip
    return directory


def tls_context(pki, name, server):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(pki / ("other.pem" if name == "stranger" else "ca.pem"))
    if name == "stranger":
        context.load_verify_locations(pki / "ca.pem")
    context.load_cert_chain(pki / f"{name}.pem", pki / f"{name}.key")
    return context
