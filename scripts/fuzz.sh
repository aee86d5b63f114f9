#!/usr/bin/env bash
# Runs every fuzz target of the module for the given time each.
set -euo pipefail
log=$(mktemp)
trap 'rm -f "$log"' EXIT
time=${1:-60s}
grep -rl --include='*_test.go' '^func Fuzz' . | xargs -n1 dirname | sort -u | while read -r dir; do
	grep -h '^func Fuzz' "$dir"/*_test.go | sed 's/func \(Fuzz[A-Za-z0-9_]*\).*/\1/' | sort | while read -r target; do
		echo "fuzz $dir $target $time"
		go test "$dir" -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 1x -parallel 2 >"$log" 2>&1 ||
			{ cat "$log"; exit 1; }
	done
done
