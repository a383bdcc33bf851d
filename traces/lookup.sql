-- Some accounts of a branch that many ask for. 5000 branches of 1000 accounts (16 pages of 8 KiB); the popular ones
-- lie anywhere.
\set branch permute(random_zipfian(1, 100 * :scale, 1.1), 100 * :scale)
\set aid :branch * 1000 + random(1, 900)
SELECT aid, abalance FROM pgbench_accounts WHERE aid = :aid;
SELECT count(*), sum(abalance) FROM pgbench_accounts WHERE aid BETWEEN :aid AND :aid + 99;
