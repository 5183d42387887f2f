-- Takes the errors of a job back and makes shards of their rows, in input order. Rows refused at intake, and those
-- whose error lines a consumer has taken, stay as they are.
-- ARGV: job, rows in a shard  ->  how many rows run again
local job, size = ARGV[1], tonumber(ARGV[2])
local state = redis.call("HGET", key.job:format(job), "state")
if state ~= "running" and state ~= "paused" and state ~= "completed" then
    return 0
end
local failed, results = key.failed:format(job), key.results:format(job)
local indices = redis.call("HKEYS", failed)
if #indices == 0 then
    return 0
end
table.sort(indices, function(a, b) return (tonumber(a) or 0) < (tonumber(b) or 0) end)
local again = {}
local shard
for at, index in ipairs(indices) do
    again[index] = true
    if at % size == 1 or size == 1 then
        shard = redis.call("HINCRBY", key.job:format(job), "shards", 1) - 1
        redis.call("ZADD", key.open:format(job), shard, shard)
    end
    redis.call("HSET", key.rows:format(job, shard), index, redis.call("HGET", failed, index))
    redis.call("HDEL", results, index)
end
redis.call("UNLINK", failed)
-- The order of the others stays: every index goes from the front of the list to its end once.
local finished = key.finished:format(job)
local left = redis.call("LLEN", finished)
while left > 0 do
    local kept, some = {}, math.min(1000, left)
    left = left - some
    for _, index in ipairs(redis.call("LPOP", finished, some)) do
        if not again[index] then
            kept[#kept + 1] = index
        end
    end
    if #kept > 0 then
        redis.call("RPUSH", finished, unpack(kept))
    end
end
redis.call("HINCRBY", key.job:format(job), "done", -#indices)
redis.call("HINCRBY", key.job:format(job), "failed", -#indices)
redis.call("ZREM", key.expiring, job)
if state == "completed" then
    redis.call("HSET", key.job:format(job), "state", "running")
    redis.call("HDEL", key.job:format(job), "ended")
end
forgive(job)
line_up(job)
return #indices
