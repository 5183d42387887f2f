-- Removes a portion of what must go: jobs whose time has come, submissions whose producer died, rows of jobs that
-- were cancelled or discarded.
-- ARGV: silence (ms) after which a submission counts as left behind, how many shards at most
--   ->  1 while rows are left to remove
local silence, most = tonumber(ARGV[1]), tonumber(ARGV[2])
go_on_when_full()
local now = now_ms()
for _, job in ipairs(redis.call("ZRANGEBYSCORE", key.staging, "-inf", now - silence, "LIMIT", 0, 10)) do
    guarded(discard, job)
    redis.call("ZREM", key.staging, job)
end
for _, job in ipairs(redis.call("ZRANGEBYSCORE", key.expiring, "-inf", now, "LIMIT", 0, 10)) do
    guarded(remove, job)
    redis.call("ZREM", key.expiring, job)
end
local doomed = redis.call("ZRANGE", key.doomed, 0, 0, "WITHSCORES")
if doomed[1] then
    local job, shards = doomed[1]:match("^(%S+) (%d+)$")
    if not job then
        redis.call("ZREM", key.doomed, doomed[1]) -- nobody of us wrote that
        return redis.call("EXISTS", key.doomed)
    end
    local stop = math.min(doomed[2] + most, tonumber(shards))
    for shard = doomed[2], stop - 1 do
        redis.call("UNLINK", key.rows:format(job, shard))
    end
    if stop == tonumber(shards) then
        redis.call("ZREM", key.doomed, doomed[1])
    else
        redis.call("ZADD", key.doomed, stop, doomed[1])
    end
end
return redis.call("EXISTS", key.doomed)
