-- A report: a fiftieth of the table, in order.
\set from random(0, 49) * 2000 * :scale
SELECT count(*), sum(abalance) FROM pgbench_accounts WHERE aid BETWEEN :from AND :from + 2000 * :scale;
