"""A throw-away certificate authority, by the openssl program."""

import os
import shutil
import subprocess
import tempfile


class Authority:
    """A folder with ca.crt and certificates signed by it, readable by servers."""

    def __init__(self, name="test authority"):
        self.folder = tempfile.mkdtemp(prefix="collegedb-authority-")
        os.chmod(self.folder, 0o755)
        self.ca = os.path.join(self.folder, "ca.crt")
        self._key = os.path.join(self.folder, "ca.key")
        self._run("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                  "-subj", f"/CN={name}", "-keyout", self._key, "-out", self.ca)

    def _run(self, *arguments):
        subprocess.run(["openssl", *arguments], check=True, capture_output=True, cwd=self.folder)

    def issue(self, name, common_name, alternative="DNS:localhost,IP:127.0.0.1", owner=None):
        """(certificate file, key file) for a server or a client; `owner`: who may read the key."""
        key, request, certificate = (os.path.join(self.folder, f"{name}.{end}") for end in ("key", "csr", "crt"))
        extensions = os.path.join(self.folder, f"{name}.ext")
        with open(extensions, "w", encoding="ascii") as out:
            out.write(f"subjectAltName={alternative}\n")
        self._run("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj",
                  f"/CN={common_name}", "-keyout", key, "-out", request)
        self._run("x509", "-req", "-in", request, "-CA", self.ca, "-CAkey", self._key, "-CAcreateserial", "-days", "2",
                  "-extfile", extensions, "-out", certificate)
        os.chmod(key, 0o600)
        if owner and os.geteuid() == 0:
            shutil.chown(key, owner)
        return certificate, key

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.folder, ignore_errors=True)
