-- Adds rows to a job that is still being submitted: one shard of good rows, and rows that were refused at intake.
-- Calls are numbered from 1, so that one whose answer was lost can be sent again.
-- ARGV: job, number of the call, shard, how many good rows, (index, row)..., (index, result line)...
--   ->  1, or 0 when the job is not being submitted (any more)
local job, call, shard, good = ARGV[1], tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])
local state, calls = unpack(redis.call("HMGET", key.job:format(job), "state", "calls"))
if state ~= "submitting" then
    return 0
end
if call <= tonumber(calls) then
    return 1
end
if call > calls + 1 then -- of calls sent together, the first may have found no script: all are to be sent again
    return redis.error_reply("NOSCRIPT an earlier part of the job is missing")
end
redis.call("ZADD", key.staging, now_ms(), job)
redis.call("HSET", key.job:format(job), "calls", call)
local rows, results = key.rows:format(job, shard), key.results:format(job)
local at = 5
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
