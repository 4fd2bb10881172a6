"""Engine archives: a bundle, what it needs and who vouches for it, as one file that moves between boards.

A zstd-compressed tar of plain files, in this order and no other:

    manifest.json           the bundle's, as it lies in the store
    archive.json            the manifest's SHA-256, and every further file with size and SHA-256 (``contents.py``)
    signature.json          optional: an ed25519 signature over archive.json, and so over everything (``signing.py``)
    bundle/…                the files of the manifest, in order of names
    checkpoint/…, draft/…   the checkpoints of a bundle that reads weights at load

The reader knows from the first two members what must follow, byte by byte: any other name, kind, size or order ends it.
"""
