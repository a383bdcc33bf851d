# PostgreSQL on the data disk.
mkdir -p /data
mount -t ext4 LABEL=data /data
export PATH=$PATH:/usr/lib/postgresql/15/bin PGHOST=/tmp
as_postgres() { setpriv --reuid=postgres --regid=postgres --init-groups "$@"; }
start_server() { as_postgres pg_ctl -D /data/pg -w -t 600 -l /tmp/log -o "-k /tmp" start; }
stop_server() { as_postgres pg_ctl -D /data/pg -w -t 600 -m fast stop; cat /tmp/log; umount /data; }
