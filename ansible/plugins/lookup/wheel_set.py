"""Names a release by the wheels that it is installed from."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleError
from ansible.plugins.lookup import LookupBase

DOCUMENTATION = """
name: wheel_set
author: The edgellm authors
short_description: The name and version of a release in a folder of wheels
description:
  - Reads a folder on the control host that holds the wheel of edgellm and those it depends on.
options:
  _terms:
    description: The folder.
    type: path
    required: true
"""
RETURN = """
_raw:
  description:
    - A dictionary with C(name) (VERSION and 12 digits of the digest), C(version) and C(digest), the file name of the
      wheel of edgellm, C(wheel), and the C(python) and C(architecture) that it is for, empty where it is for any.
  type: list
  elements: dict
"""

DIGEST_DIGITS = 12
PYTHON_TAG = re.compile(r"cp(\d)(\d+)")
ARCHITECTURES = ("aarch64", "x86_64")
CHUNK_BYTES = 1 << 20


def release_of(folder: Path) -> dict[str, str]:
    """As `edgellm upgrade` names it: by names and contents of all wheels, so other dependencies are another release."""
    if not folder.is_dir():
        raise AnsibleError(f"edgellm_wheels: {folder} is no folder on the control host")
    wheels = sorted(folder.glob("*.whl"))
    own = [wheel for wheel in wheels if wheel.name.startswith("edgellm-")]
    if len(own) != 1:
        raise AnsibleError(f"edgellm_wheels: {folder} holds {len(own)} wheels of edgellm, one is needed")
    whole = hashlib.sha256()
    for wheel in wheels:
        whole.update(f"{wheel.name} {sha256_of(wheel)}\n".encode())
    version, digest = own[0].name.split("-")[1], whole.hexdigest()
    python, abi, platform = own[0].stem.split("-")[-3:]
    is_bound = PYTHON_TAG.fullmatch(python) and python == abi  # else it is for newer ones too
    return {
        "name": f"{version.lower()}-{digest[:DIGEST_DIGITS]}",
        "version": version,
        "digest": digest,
        "wheel": own[0].name,
        "python": PYTHON_TAG.sub(r"\1.\2", python) if is_bound else "",
        "architecture": next((name for name in ARCHITECTURES if platform.endswith(name)), ""),
    }


def sha256_of(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


class LookupModule(LookupBase):
    """How Ansible finds it."""

    def run(self, terms: list[str], variables: Any = None, **kwargs: Any) -> list[dict[str, str]]:
        """One release a folder."""
        self.set_options(var_options=variables, direct=kwargs)
        return [release_of(Path(term)) for term in terms]
