#!/usr/bin/env bash
# Runs every fuzz target of the module for the given time each.
set -euo pipefail
log=$(mktemp)
trap 'rm -f "$log"' EXIT
time=${1:-60s}

# fuzz DIR TARGET. Go sometimes reports the end of the time as a failure of the target, with this message only and without
# a failing input (golang.org/issue/75804). Then the target runs once more.
fuzz() {
	for attempt in 1 2 3; do
		go test "$1" -run '^$' -fuzz "^$2\$" -fuzztime "$time" -fuzzminimizetime 1x -parallel 2 >"$log" 2>&1 && return
		grep -q '^ *context deadline exceeded$' "$log" && ! grep -q 'Failing input' "$log" || break
		echo "  attempt $attempt was cut off at the end of its time"
	done
	cat "$log"
	return 1
}

grep -rl --include='*_test.go' '^func Fuzz' . | xargs -n1 dirname | sort -u | while read -r dir; do
	grep -h '^func Fuzz' "$dir"/*_test.go | sed 's/func \(Fuzz[A-Za-z0-9_]*\).*/\1/' | sort | while read -r target; do
		echo "fuzz $dir $target $time"
		fuzz "$dir" "$target" || exit 1
	done
done
