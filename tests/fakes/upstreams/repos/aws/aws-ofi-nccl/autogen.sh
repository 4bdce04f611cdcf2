#!/bin/sh
# Stand-in of the plugin's autogen.sh: the version of releases from 1.20 on is git's, or a file's.
set -eu
version=$(cat version.txt)
if [ "$(printf '1.20.0\n%s\n' "$version" | sort -V | head -n 1)" = 1.20.0 ]; then
  [ -f .release_version ] || { echo "No version found. Cannot continue." >&2; exit 1; }
  version=$(cat .release_version)
fi
for program in autoconf automake libtoolize; do
  command -v "$program" > /dev/null || { echo "$program is not there" >&2; exit 1; }
done
echo "VERSION = $version" > version.mk
