-- Makes shards claimable whose lease ran out: their worker is dead, frozen or cut off. Idempotent.
-- ARGV: at most how many, when that was decided (ms)  ->  {job, shard, job, shard, ...}
local reaped = {}
if now_ms() - tonumber(ARGV[2]) > 2000 then
    return reaped -- Redis was frozen meanwhile, and leases ran out for that: their workers shall renew them first
end
go_on_when_full()
local expired = redis.call("ZRANGEBYSCORE", key.leases, "-inf", now_ms(), "LIMIT", 0, tonumber(ARGV[1]))
for _, lease in ipairs(expired) do
    local job, shard = lease:match("^(%S+) (%d+)$")
    if job then
        if not guarded(attempt_lost, job, shard) then
            -- There again when somebody has mended the keys; where even that cannot be, it is tried again in a minute.
            if type(redis.pcall("ZADD", key.open:format(job), shard, shard)) == "number" then
                redis.call("ZREM", key.leases, lease)
            else
                redis.call("ZADD", key.leases, now_ms() + 60000, lease)
            end
        end
        reaped[#reaped + 1] = job
        reaped[#reaped + 1] = shard
    else
        redis.call("ZREM", key.leases, lease) -- no lease of ours
    end
end
return reaped
