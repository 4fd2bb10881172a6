#!/bin/sh
# Installs edgellm from this bundle, or upgrades it, without a network. Nothing of the bundle is run before all of it is
# verified: the signature of manifest.json, then the SHA-256 of every file that it names, then that there are no others.
#
#   sudo sh install.sh --key PUBLISHER.pub             the first time: whose bundles this machine is to trust
#   sudo sh install.sh [--mode venv|container]         from then on
#   sh install.sh --verify-only --key PUBLISHER.pub    look, and change nothing
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
trusted=/etc/edgellm/trusted-keys
installed=/usr/local/lib/edgellm/installed.json
mode=
key=
verify_only=

refuse() {
    echo "install: $2" >&2
    exit "$1"
}

while [ $# -gt 0 ]; do
    case $1 in
    --key | --mode)
        [ -n "${2-}" ] || refuse 64 "$1 needs a value"
        if [ "$1" = --key ]; then key=$2; else mode=$2; fi
        shift 2
        ;;
    --verify-only)
        verify_only=1
        shift
        ;;
    -h | --help)
        sed -n '2,7s/^# \{0,1\}//p' "$0"
        exit 0
        ;;
    *) refuse 64 "$1 is no option — see sh install.sh --help" ;;
    esac
done
case $mode in '' | venv | container) ;; *) refuse 64 "--mode is venv or container, not $mode" ;; esac
[ -n "$verify_only" ] || [ "$(id -u)" = 0 ] || refuse 77 "this changes the system — run it as root"
if [ -z "$verify_only" ] && ! python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    if command -v python3 >/dev/null; then found=$(python3 --version 2>&1 || true); else found=missing; fi
    refuse 69 "edgellm needs Python 3.11 or newer, and python3 here is $found"
fi
command -v ssh-keygen >/dev/null || refuse 69 "ssh-keygen is not here, and checks the signature — install openssh-client"

no_room() {
    refuse 73 "${TMPDIR:-/tmp} takes no copy of the bundle's manifest — make room there, or set TMPDIR"
}

work=$(mktemp -d 2>/dev/null) || no_room
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

# Who signed it.
[ -z "$key" ] || [ -e "$key" ] || refuse 66 "--key $key is not there"
[ -z "$key" ] || [ -f "$key" ] || refuse 66 "--key $key is no file — name the file itself"
[ -z "$key" ] || [ -r "$key" ] || refuse 66 "--key $key may not be read — see its rights, or run this as root"
case $key in '' | /*) ;; *) key=$PWD/$key ;; esac # below, this is another folder
for file in ${key:+"$key"} "$trusted"/*.pub; do
    [ -f "$file" ] || continue
    sed -n 's/^\(ssh-ed25519\|ecdsa-sha2-[^ ]*\|sk-[^ ]*\|ssh-rsa\) \([A-Za-z0-9+\/=]*\).*/edgellm namespaces="edgellm-bundle" \1 \2/p' \
        "$file" >>"$work/allowed"
    [ -s "$work/allowed" ] || [ "$file" != "$key" ] ||
        refuse 66 "--key $key holds no public key of ssh-keygen — give the .pub file, never the private key"
done
[ -s "$work/allowed" ] || refuse 77 "this machine trusts nobody's bundles yet — give --key with the publisher's public key"
for name in manifest.json manifest.json.sig; do
    [ -f "$here/$name" ] && [ ! -L "$here/$name" ] || refuse 77 "$here/$name is missing — copy the bundle anew"
done
# A copy: a stick may not give the same bytes twice.
cp "$here/manifest.json" "$here/manifest.json.sig" "$work/" 2>/dev/null || no_room
# And lists of its files are made below.
cat "$work/manifest.json" "$work/manifest.json" "$work/manifest.json" 2>/dev/null >"$work/room" || no_room
rm "$work/room"
ssh-keygen -Y verify -f "$work/allowed" -I edgellm -n edgellm-bundle -s "$work/manifest.json.sig" \
    <"$work/manifest.json" >"$work/said" 2>&1 ||
    refuse 77 "$here/manifest.json is not signed by a key that this machine trusts, or was changed"

# What is in it.
sed -n 's/^  "\([A-Za-z0-9][A-Za-z0-9._+@\/-]*\)": {"sha256": "\([0-9a-f]\{64\}\)", "size_bytes": [0-9]*},\{0,1\}$/\2  \1/p' \
    "$work/manifest.json" >"$work/sums"
[ "$(wc -l <"$work/sums")" = "$(grep -c '"sha256"' "$work/manifest.json")" ] ||
    refuse 77 "$here/manifest.json has lines that this program cannot read"
cd "$here"
sed 's/^[0-9a-f]*  //' "$work/sums" | LC_ALL=C sort >"$work/named"
find . ! -type d ! -path ./manifest.json ! -path ./manifest.json.sig | sed 's/^\.\///' | LC_ALL=C sort >"$work/present"
LC_ALL=C comm -13 "$work/named" "$work/present" >"$work/extra"
[ ! -s "$work/extra" ] || refuse 77 "$here/$(head -n 1 "$work/extra") is not in the bundle's manifest — remove it"
LC_ALL=C comm -23 "$work/named" "$work/present" >"$work/missing"
[ ! -s "$work/missing" ] || refuse 77 "$here/$(head -n 1 "$work/missing") is missing — copy the bundle anew"
find . -type l | sed 's/^\.\///' >"$work/links"
[ ! -s "$work/links" ] || refuse 77 "$here/$(head -n 1 "$work/links") is a link, no file — copy the bundle anew"
began=$(date +%s)
LC_ALL=C sha256sum -c "$work/sums" >"$work/checked" 2>/dev/null || {
    wrong=$(sed -n 's/: FAILED.*//p' "$work/checked" | head -n 1)
    refuse 77 "$here/$wrong was changed — copy the bundle anew"
}
seconds=$(($(date +%s) - began))
size_kib=$(du -sk . | cut -f 1)
[ "$seconds" -gt 0 ] || seconds=1
echo "verified: $(wc -l <"$work/sums") files, $((size_kib / 1024)) MiB, about $((size_kib / 1024 / seconds)) MiB/s"
[ -z "$verify_only" ] || exit 0

# The record alone is what an uninstall that was cut short leaves.
here_is=
if [ -f "$installed" ] && { [ -f /usr/local/lib/systemd/system/edgellm.service ] ||
    [ -f /usr/share/containers/systemd/edgellm.container ]; }; then
    here_is=$(sed -n 's/^ *"mode": "\([a-z]*\)".*/\1/p' "$installed")
    [ -z "$mode" ] || [ "$mode" = "$here_is" ] ||
        refuse 78 "edgellm is installed here as a $here_is, not as a $mode — leave --mode out to upgrade it, or take it off first: edgellm uninstall"
fi
# Key and configuration reach /etc by the upgrade itself, once it has refused what it refuses.
set -- upgrade "$here"
[ -z "$key" ] || set -- "$@" --trust "$key"
if [ -n "$here_is" ]; then
    exec python3 -I host.pyz "$@"
fi
if [ -z "$mode" ]; then
    mode=venv
    if [ -f image.tar ] && { [ ! -d wheels ] || command -v podman >/dev/null; }; then mode=container; fi
fi
exec python3 -I host.pyz "$@" --install "$mode"
