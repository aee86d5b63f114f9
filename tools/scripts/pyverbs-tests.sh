#!/usr/bin/env bash
# Prints the folder of the tests of the installed pyverbs. They are not part of this project. The script unpacks them into
# a cache from the documentation of Debian's python3-pyverbs.
set -euo pipefail

package=python3-pyverbs
version=$(dpkg-query -W -f '${Version}' "$package" 2>/dev/null) ||
	{ echo "$package is not installed" >&2; exit 1; }
cache=${XDG_CACHE_HOME:-$HOME/.cache}/roced/rdma-core-$version
documents=usr/share/doc/rdma-core/tests
if [ ! -e "$cache/tests/run_tests.py" ]; then
	mkdir -p "$(dirname "$cache")"
	new=$(mktemp -d "$cache.XXXXXX")
	trap 'rm -rf "$new"' EXIT
	# Minimal systems have the package without its documentation.
	if [ ! -e "/$documents/run_tests.py" ]; then
		(cd "$new" && apt-get download -qq "$package=$version" >&2 && dpkg -x ./*.deb .)
	else
		mkdir -p "$new/$documents"
		cp "/$documents"/* "$new/$documents"
	fi
	gunzip -q "$new/$documents"/*.gz
	mkdir -p "$cache"
	rm -rf "$cache/tests"
	mv "$new/$documents" "$cache/tests"
fi
echo "$cache/tests"
