-- Takes the errors of a job back and makes shards of their rows, in input order; those that get one answer together
-- share one. Rows refused at intake, and those whose error lines a consumer has taken, stay as they are.
-- ARGV: job, answers that a shard asks for, its most rows and bytes  ->  how many rows run again
local job, size, most_rows, most_bytes = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
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
local again, homes, asked_of = {}, {}, asked_by(job)
local last
local function has_room(shard, row)
    return shard and shard.rows < most_rows and shard.bytes + #row <= most_bytes
end
for _, index in ipairs(indices) do
    again[index] = true
    local row = redis.call("HGET", failed, index)
    local asked = asked_of(row)
    local shard = asked and homes[asked]
    if not has_room(shard, row) then
        if not has_room(last, row) or last.asked == size then
            last = { rows = 0, bytes = 0, asked = 0 }
            last.number = redis.call("HINCRBY", key.job:format(job), "shards", 1) - 1
            redis.call("ZADD", key.open:format(job), last.number, last.number)
        end
        shard = last
        shard.asked = shard.asked + 1
        if asked then
            homes[asked] = shard
        end
    end
    shard.rows, shard.bytes = shard.rows + 1, shard.bytes + #row
    redis.call("HSET", key.rows:format(job, shard.number), index, row)
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
