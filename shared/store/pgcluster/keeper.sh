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
export PGPASSWORD

bin=$2
dir=$(mktemp -d "$1/fencepost-pg-XXXXXX" 2>/dev/null) || dir=$(mktemp -d /tmp/fencepost-pg-XXXXXX) || exit 1
exec 2>>"$dir/log"
echo +0 >"$dir/clock"
echo "$dir"

# make FOLDER: the data of a new cluster. The password is random, and needs no slow hash, which each new
# connection would compute again; Postgres 15 cannot choose one.
make() {
	hash=
	if "$bin/initdb" --help | grep -q -e --set; then
		hash=--set=scram_iterations=1
	fi
	printf '%s\n' "$PGPASSWORD" >"$dir/password" &&
		"$bin/initdb" --pgdata="$dir/$1" --username=postgres --pwfile="$dir/password" $hash \
			--auth=scram-sha-256 --encoding=UTF8 --locale=C --no-sync &&
		rm "$dir/password"
}

# init PASSWORD
init() {
	PGPASSWORD=$1
	make data
}

# copy FOLDER HOST PORT [OPTION]: the data of a running server, with the log that its
# recovery needs.
copy() {
	"$bin/pg_basebackup" --pgdata="$dir/$1" --host="$2" --port="$3" --username=postgres \
		--checkpoint=fast --wal-method=stream --no-sync $4
}

# follow PORT PASSWORD: a standby of the server at that port.
follow() {
	PGPASSWORD=$2
	copy data 127.0.0.1 "$1" --write-recovery-conf
}

# backup: a file backup of the running server.
backup() {
	rm -rf "$dir/backup"
	copy backup "$dir" "$(sed -n 4p "$dir/data/postmaster.pid")"
}

# restore: the backup in the place of the data, of the same system and timeline.
restore() {
	rm -rf "$dir/data" && cp -a "$dir/backup" "$dir/data"
}

# upgrade: what pg_upgrade makes of the stopped server's data, in its place.
upgrade() {
	make new && cp "$dir/data/postgresql.conf" "$dir/new/" && cd "$dir" &&
		"$bin/pg_upgrade" --old-bindir="$bin" --new-bindir="$bin" --old-datadir="$dir/data" --new-datadir="$dir/new" \
			--username=postgres --socketdir="$dir" --no-sync &&
		rm -rf "$dir/data" && mv "$dir/new" "$dir/data"
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
	init | follow) "$order" $argument ;;
	backup | restore | upgrade) "$order" ;;
	promote) "$bin/pg_ctl" promote --silent --wait --pgdata="$dir/data" ;;
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
