-- Adds staged rows to a job that is there, all of them at once; their indices go on from its own. Every shard is
-- renamed: 0.12 s for 100,000 rows, so Redis does nothing else for over a second when a million are added.
-- ARGV: the staged job, its producer, how many rows it must have, the job, its identity as it was when the rows
--       were staged, its identity with them
--   ->  the job; false when the rows are not being submitted (any more); -1 when some are missing; -2 when another
--       producer has taken them over; -3 when the job has ended up otherwise meanwhile
local staged, owner, staged_rows, job, old, new = unpack(ARGV)
local stored = redis.call("HMGET", key.job:format(job), "state", "identity", "shards", "started")
if stored[2] == new then -- appended before: by this one, who did not hear of it, or by another one
    if redis.call("HGET", key.job:format(staged), "owner") == owner then
        discard(staged)
    end
    return job
end
local found = redis.call("HMGET", key.job:format(staged), "state", "owner", "rows", "shards", "invalid", "copies")
if found[1] ~= "submitting" then
    return false
end
if found[2] ~= owner then
    return -2
end
if found[3] ~= staged_rows then
    return -1
end
local state = stored[1]
if stored[2] ~= old or not state or state == "cancelled" or state == "submitting" then
    return -3
end
for shard = 0, found[4] - 1 do
    if redis.call("EXISTS", key.rows:format(staged, shard)) == 0 then
        return -1
    end
end
redis.call("ZREM", key.staging, staged)
for shard = 0, found[4] - 1 do
    local number = stored[3] + shard
    redis.call("RENAME", key.rows:format(staged, shard), key.rows:format(job, number))
    redis.call("ZADD", key.open:format(job), number, number)
end
local finished = key.finished:format(staged)
for at = 0, found[5] - 1, 1000 do
    local indices, results = redis.call("LRANGE", finished, at, at + 999), {}
    for place, line in ipairs(redis.call("HMGET", key.results:format(staged), unpack(indices))) do
        results[2 * place - 1], results[2 * place] = indices[place], line
    end
    redis.call("HSET", key.results:format(job), unpack(results))
    redis.call("RPUSH", key.finished:format(job), unpack(indices))
end
local gains = { rows = found[3], shards = found[4], copies = found[6] }
for _, name in ipairs({ "invalid", "done", "failed", "forgiven_done", "forgiven_failed" }) do
    gains[name] = found[5] -- no worker failed these: they are no reason to stop the job
end
for name, gain in pairs(gains) do
    redis.call("HINCRBY", key.job:format(job), name, gain)
end
if redis.call("HGET", key.identities, old) == job then
    redis.call("HDEL", key.identities, old)
end
redis.call("HSET", key.identities, new, job)
redis.call("HSET", key.job:format(job), "identity", new)
if state == "completed" then
    redis.call("ZREM", key.expiring, job)
    redis.call("HSET", key.job:format(job), "state", stored[4] and "running" or "queued")
    redis.call("HDEL", key.job:format(job), "ended")
end
redis.call("UNLINK", key.open:format(staged))
remove(staged)
line_up(job)
complete_if_done(job)
return job
