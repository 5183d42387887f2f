-- Makes a submission another producer's, if it is still as that one has seen it.
-- ARGV: job, its producer as it was seen, the new one, how many rows it had (every call adds some), name,
--       priority, most share of errors or "", ms to stay after its end or ""
--   ->  1, or 0 when it has moved
local job, seen, owner, rows, name, priority, max_error_rate, ttl = unpack(ARGV)
local stored = redis.call("HMGET", key.job:format(job), "state", "owner", "rows")
if stored[1] == "submitting" and stored[2] == owner then
    return 1 -- taken before: the caller did not hear of it
end
if stored[1] ~= "submitting" or stored[2] ~= seen or stored[3] ~= rows then
    return 0
end
redis.call("ZADD", key.staging, now_ms(), job)
redis.call("HSET", key.job:format(job), "owner", owner, "name", name, "priority", priority,
    "max_error_rate", max_error_rate, "ttl", ttl)
return 1
