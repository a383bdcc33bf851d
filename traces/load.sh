# Makes the database on the data disk: 750 MB of accounts, twelve times what PostgreSQL caches itself.
set -e
. /opt/job/server.sh
mkdir /data/pg && chown postgres /data/pg
as_postgres initdb --no-sync -D /data/pg -E UTF8 --locale C
cat >> /data/pg/postgresql.conf <<END
listen_addresses = ''
shared_buffers = 32MB
max_wal_size = 256MB
checkpoint_timeout = 2min
log_checkpoints = on
jit = off
END
start_server
as_postgres createdb bench
as_postgres pgbench -i -q -s 50 -I dtGvp bench
as_postgres vacuumdb -q --analyze bench
stop_server
