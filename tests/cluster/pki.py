"""Keys and certificates for a throw-away cluster, made by openssl."""

import subprocess
from pathlib import Path
from typing import NamedTuple


class Pair(NamedTuple):
    """Files in PEM form."""

    certificate: Path
    key: Path


class Authority:
    """A certificate authority of its own in `folder`, good for a day."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.pair = Pair(folder / "ca.crt", folder / "ca.key")
        self._openssl(
            "req", "-x509", "-days", "1", "-subj", "/CN=test-ca", *_new_key(self.pair.key),
            "-out", str(self.pair.certificate),
            "-addext", "keyUsage=critical,keyCertSign,cRLSign,digitalSignature",
        )  # fmt: skip

    def issue(self, name: str, subject: str, addresses: tuple[str, ...] = ()) -> Pair:
        """A certificate for servers (with `addresses`) and clients (who `subject` says)."""
        pair = Pair(self._folder / f"{name}.crt", self._folder / f"{name}.key")
        request, extensions = self._folder / f"{name}.csr", self._folder / f"{name}.ext"
        names = ",".join(f"IP:{address}" for address in addresses)
        extensions.write_text(
            "keyUsage=critical,digitalSignature,keyEncipherment\nextendedKeyUsage=serverAuth,clientAuth\n"
            + (f"subjectAltName={names}\n" if names else "")
        )
        self._openssl("req", "-subj", subject, *_new_key(pair.key), "-out", str(request))
        self._openssl(
            "x509", "-req", "-days", "1", "-in", str(request), "-extfile", str(extensions),
            "-CA", str(self.pair.certificate), "-CAkey", str(self.pair.key), "-CAcreateserial",
            "-out", str(pair.certificate),
        )  # fmt: skip
        return pair

    @staticmethod
    def _openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], check=True, capture_output=True)


def _new_key(path: Path) -> tuple[str, ...]:
    return ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", str(path))
