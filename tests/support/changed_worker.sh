#!/bin/sh
# The real worker (REAL_WORKER) with another model: CHANGE, a sed expression, is made to every request, which the runner
# knows nothing of.
[ "$1" = run ] || exec "$REAL_WORKER" "$@"
IFS= read -r request
file=$(mktemp)
printf '%s\n' "$request" | sed "$CHANGE" > "$file"
exec "$REAL_WORKER" run --request "$file"
