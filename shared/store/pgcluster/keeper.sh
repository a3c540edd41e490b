# Keeps one throwaway Postgres cluster: sh -c "$keeper" keeper PARENT BINARIES
#
# Makes a folder in PARENT, or in /tmp where it may not write there, and prints
# its name. Then takes one order per line from standard input and answers each
# with one line, its exit status. Standard input ends when the owner closes it
# or dies, in whatever way: then Postgres is stopped and the folder removed.

# Only the end of the input ends the keeper: not the terminal, and not an owner
# who is gone before he reads an answer.
trap '' HUP INT TERM PIPE
umask 077

bin=$2
dir=$(mktemp -d "$1/fencepost-pg-XXXXXX" 2>/dev/null) || dir=$(mktemp -d /tmp/fencepost-pg-XXXXXX) || exit 1
exec 2>>"$dir/log"
echo +0 >"$dir/clock"
echo "$dir"

init() {
	printf '%s\n' "$1" >"$dir/password" &&
		"$bin/initdb" --pgdata="$dir/data" --username=postgres --pwfile="$dir/password" \
			--auth=scram-sha-256 --encoding=UTF8 --locale=C --no-sync &&
		rm "$dir/password"
}

# The server reads its clock through the library that the owner named, if any.
start() {
	LD_PRELOAD=$CLOCK_LIBRARY FAKETIME_TIMESTAMP_FILE=$dir/clock "$bin/pg_ctl" start --silent --wait --timeout=60 --pgdata="$dir/data" --log="$dir/log"
}

# stop MODE SECONDS: as pg_ctl has them. A server that does not run is stopped.
stop() {
	"$bin/pg_ctl" status --pgdata="$dir/data" || return 0
	"$bin/pg_ctl" stop --silent --wait --mode="$1" --timeout="$2" --pgdata="$dir/data"
}

while read -r order argument; do
	case $order in
	init) init "$argument" ;;
	start) start ;;
	stop) stop "$argument" 60 ;;
	*) false ;;
	esac </dev/null >&2
	echo "$?"
done

# Postgres gives its own processes five seconds to obey. A server that takes
# longer is frozen and obeys only SIGKILL.
stop immediate 7 </dev/null >&2 || kill -KILL "$(head -n 1 "$dir/data/postmaster.pid")"
rm -rf "$dir"
