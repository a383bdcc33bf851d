# A database server's quarter of an hour, from an empty page cache on: eight clients, 25 transactions a second between them.
set -e
. /opt/job/server.sh
start_server
as_postgres pgbench -n -s 50 -c 8 -j 2 -R 25 -T $((work_minutes * 60)) -P 60 \
    -f /opt/job/lookup.sql@700 -f /opt/job/payment.sql@297 -f /opt/job/report.sql@3 bench
stop_server
