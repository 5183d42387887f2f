-- Adds rows to a job that is still being submitted: one shard of good rows, and rows that were refused at intake.
-- ARGV: job, shard, how many good rows, (index, row)..., (index, result line)...
--   ->  1, or 0 when the job is not being submitted (any more)
local job, shard, good = ARGV[1], ARGV[2], tonumber(ARGV[3])
if redis.call("HGET", key.job:format(job), "state") ~= "submitting" then
    return 0
end
redis.call("ZADD", key.staging, now_ms(), job)
local rows, results = key.rows:format(job, shard), key.results:format(job)
local at = 4
for _ = 1, good do
    redis.call("HSET", rows, ARGV[at], ARGV[at + 1])
    at = at + 2
end
if good > 0 then
    redis.call("ZADD", key.open:format(job), shard, shard)
    redis.call("HINCRBY", key.job:format(job), "shards", 1)
end
local bad = 0
while at < #ARGV do
    redis.call("HSET", results, ARGV[at], ARGV[at + 1])
    redis.call("RPUSH", key.finished:format(job), ARGV[at])
    at, bad = at + 2, bad + 1
end
redis.call("HINCRBY", key.job:format(job), "rows", good + bad)
for _, counter in ipairs({ "invalid", "done", "failed" }) do
    redis.call("HINCRBY", key.job:format(job), counter, bad)
end
return 1
