"""An authority for tests, made with the openssl program: certificates for brokers and clients, good and bad ones."""

import subprocess
from pathlib import Path

from tests.support.system import needs

needs_openssl = needs("openssl")
KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


class Authority:
    """Keeps everything in `directory`; `file` is what others trust."""

    def __init__(self, directory: Path, name: str = "authority") -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory, self.name = directory, name
        self.file = directory / f"{name}.pem"
        self._key = directory / f"{name}.key"
        files = ("-keyout", self._key, "-out", self.file)
        self._openssl("req", "-x509", *KEY, "-days", "2", "-subj", f"/CN={name}", *files)

    def certificate(self, name: str, hosts: str = "IP:127.0.0.1,DNS:localhost", days: int = 2) -> Path:
        """A file with key and certificate, for those hosts; negative `days`: one that has expired."""
        key, request = self.directory / f"{name}.key", self.directory / f"{name}.csr"
        made, extensions = self.directory / f"{name}.crt", self.directory / f"{name}.ext"
        extensions.write_text(f"subjectAltName={hosts}\n" if hosts else "basicConstraints=CA:FALSE\n")
        self._openssl("req", *KEY, "-subj", f"/CN={name}", "-keyout", key, "-out", request)
        signer = ("-CA", self.file, "-CAkey", self._key, "-CAcreateserial")
        self._openssl("x509", "-req", "-in", request, *signer, "-days", days, "-extfile", extensions, "-out", made)
        both = self.directory / f"{name}.pem"
        both.write_text(key.read_text() + made.read_text())
        return both

    def lock(self, both: Path, password: str) -> Path:
        """The same with an encrypted key."""
        key = both.with_suffix(".locked-key")
        self._openssl("pkey", "-in", both, "-aes256", "-passout", f"pass:{password}", "-out", key)
        locked = both.with_suffix(".locked")
        locked.write_text(key.read_text() + both.with_suffix(".crt").read_text())
        return locked

    @staticmethod
    def _openssl(*words: object) -> None:
        done = subprocess.run(["openssl", *map(str, words)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
