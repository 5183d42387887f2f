-- Makes shards claimable whose lease ran out: their worker is dead, frozen or cut off. Idempotent.
-- ARGV: at most how many  ->  {job, shard, job, shard, ...}
local reaped = {}
local expired = redis.call("ZRANGEBYSCORE", key.leases, "-inf", now_ms(), "LIMIT", 0, tonumber(ARGV[1]))
for _, lease in ipairs(expired) do
    local job, shard = lease:match("^(%S+) (%d+)$")
    if redis.call("EXISTS", key.job:format(job)) == 1 then
        redis.call("HINCRBY", key.lost:format(job), shard, 1)
    end
    reopen(job, shard)
    reaped[#reaped + 1] = job
    reaped[#reaped + 1] = shard
end
return reaped
