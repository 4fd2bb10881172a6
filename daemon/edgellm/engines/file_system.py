"""File systems: which kind a folder is on, what makes its files outlast a power cut, and what its refusals mean."""

from __future__ import annotations

import errno
import os
import re
import stat
from contextlib import suppress
from pathlib import Path

from edgellm.errors import CacheError

# Locks, renames or mappings there do not hold between machines, or at all.
NETWORK_TYPES = frozenset(
    {
        *("nfs", "nfs4", "cifs", "smb3", "smbfs", "ncpfs", "afs", "9p", "ceph", "lustre", "gpfs", "beegfs", "orangefs"),
        *("glusterfs", "coda", "gfs2", "ocfs2"),
        *("fuse.sshfs", "fuse.s3fs", "fuse.rclone", "fuse.glusterfs", "fuse.ceph-fuse", "fuse.juicefs", "fuse.davfs"),
    }
)
MOUNTS_FILE = Path("/proc/self/mountinfo")
_OCTAL = re.compile(r"\\([0-7]{3})")
_UNWRITABLE = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})
_NO_FOLDER = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EEXIST, errno.ELOOP, errno.ENAMETOOLONG})
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


def file_system_type(path: Path, mounts: str) -> str | None:
    """The type of the mount that ``path``, which is absolute and resolved, lies on; ``mounts`` as in mountinfo."""
    found, found_length = None, -1
    for line in mounts.splitlines():
        before, separator, after = line.partition(" - ")
        fields = before.split()
        if not separator or len(fields) < 5 or not after:
            continue
        point = Path(_OCTAL.sub(lambda match: chr(int(match[1], 8)), fields[4]))
        # Of several mounts on one point the last one is seen.
        if len(point.parts) >= found_length and path.is_relative_to(point):
            found, found_length = after.split()[0], len(point.parts)
    return found


def refuse_network_file_system(root: Path) -> None:
    """Raise CacheError when ``root``, or what exists of its parents, is on a file system of another machine."""
    try:
        mounts = MOUNTS_FILE.read_text(errors="replace")
    except OSError:
        return
    kind = file_system_type(Path(os.path.realpath(root)), mounts)
    if kind in NETWORK_TYPES:
        raise CacheError(
            f"{root}: on a network file system ({kind}), where locks do not hold — set EDGELLM_CACHE_DIR to a "
            "folder on "
            "a disk of this machine"
        )


def cache_error(
    error: OSError, root: Path, *, what: str = "the cache", elsewhere: str = "set EDGELLM_CACHE_DIR to"
) -> CacheError:
    """What ``error`` means for someone who keeps ``what`` in ``root``; ``elsewhere`` is the way out."""
    if error.errno in _UNWRITABLE:
        return CacheError(f"{root}: {what} cannot be written ({error.strerror}) — {elsewhere} a folder that can")
    if error.errno in _FULL:
        return CacheError(f"{root}: no space left — free some or {elsewhere} a folder with more")
    if error.errno == errno.EFBIG:
        return CacheError(f"{root}: a file of this size is not allowed there — raise the limit (ulimit -f)")
    if error.errno in _NO_FOLDER:
        return CacheError(f"{root}: no folder can be there ({error.strerror}) — {elsewhere} one on this machine's disk")
    return CacheError(f"{root}: {error.strerror or error} — check the disk or {elsewhere} a folder on another")


def unreadable(error: OSError, path: Path) -> CacheError:
    """What it means that ``path`` of the cache cannot be looked into, with the account that it belongs to."""
    reason, owner = error.strerror or str(error), None
    if error.errno in _UNWRITABLE:
        with suppress(OSError):
            owner = path.lstat().st_uid
    if owner is None:
        return CacheError(f"{path}: {reason} — check the disk, or set EDGELLM_CACHE_DIR to a folder on another")
    return CacheError(
        f"{path}: {reason} for user {os.geteuid()}: it belongs to user {owner} — chown -R it to the user that runs "
        "edgellm, or run edgellm as that user"
    )


def synchronise_tree(directory: Path) -> None:
    """Bring every file and folder below ``directory`` to the disk. Raises OSError."""
    for path in directory.iterdir():
        mode = path.lstat().st_mode
        if stat.S_ISDIR(mode):
            synchronise_tree(path)
        elif stat.S_ISREG(mode):
            with path.open("rb") as stream:
                os.fsync(stream.fileno())
    synchronise_directory(directory)


def synchronise_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def tree_bytes(directory: Path) -> int:
    """Sizes of all files below ``directory``; what vanishes meanwhile does not count."""
    total_bytes = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            try:
                total_bytes += os.lstat(os.path.join(folder, name)).st_size
            except OSError:
                continue
    return total_bytes
