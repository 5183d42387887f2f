-- Makes shards claimable whose lease ran out: their worker is dead, frozen or cut off. Idempotent.
-- ARGV: at most how many  ->  {job, shard, job, shard, ...}
go_on_when_full()
local reaped = {}
local expired = redis.call("ZRANGEBYSCORE", key.leases, "-inf", now_ms(), "LIMIT", 0, tonumber(ARGV[1]))
for _, lease in ipairs(expired) do
    local job, shard = lease:match("^(%S+) (%d+)$")
    if job then
        guarded(attempt_lost, job, shard)
        redis.call("ZREM", key.leases, lease)
        reaped[#reaped + 1] = job
        reaped[#reaped + 1] = shard
    else
        redis.call("ZREM", key.leases, lease) -- no lease of ours
    end
end
return reaped
