#!/bin/bash
# Runs two commands at once: the first prints as it goes, the second when both have ended.  Fails when one has failed.
#
#     tools/side_by_side.sh "first command" "second command"
set -uo pipefail

output=$(mktemp)
trap 'rm -f "$output"' EXIT
set -m # a process group of its own, to be ended as a whole; in the same session, where `nice` counts
bash -c "$2" >"$output" 2>&1 </dev/null &
second=$!
set +m
trap 'kill -- -"$second" 2>/dev/null; exit 130' INT TERM HUP

bash -c "$1"
first_status=$?
wait "$second"
second_status=$?
printf -- '---- %s\n' "$2"
cat "$output"
[ "$first_status" -eq 0 ] || echo "failed ($first_status): $1" >&2
[ "$second_status" -eq 0 ] || echo "failed ($second_status): $2" >&2
[ "$first_status" -eq 0 ] && [ "$second_status" -eq 0 ]
