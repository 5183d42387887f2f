-- Takes a lease on the next shard: the job whose turn it is (so jobs share the fleet fairly), its lowest open shard.
-- A job for "target" names no model; the first worker that takes a shard of it binds the whole job to its own model,
-- so that one job is never answered by two models.
-- ARGV: the model the worker serves, lease (ms)
--   ->  false, or {job, shard, epoch, index, row, index, row, ...}
local served, lease = ARGV[1], tonumber(ARGV[2])
local wanted = { served }
if served ~= "target" then
    wanted[2] = "target"
end

for _, model in ipairs(wanted) do
    local job = redis.call("ZRANGE", key.runnable:format(model), 0, 0)[1]
    while job do
        redis.call("ZREM", key.runnable:format(model), job)
        local shard = redis.call("ZPOPMIN", key.open:format(job))[1]
        if shard then
            if redis.call("ZCARD", key.open:format(job)) > 0 then
                redis.call("ZADD", key.runnable:format(served), redis.call("INCR", key.turn), job)
            end
            if redis.call("HGET", key.job:format(job), "state") == "queued" then
                redis.call("HSET", key.job:format(job), "state", "running", "started", now_ms())
            end
            redis.call("HSET", key.job:format(job), "model", served)
            redis.call("ZADD", key.leases, now_ms() + lease, lease_name(job, shard))
            local epoch = redis.call("HINCRBY", key.epochs:format(job), shard, 1)
            local claim = { job, shard, tostring(epoch) }
            for _, part in ipairs(redis.call("HGETALL", key.rows:format(job, shard))) do
                claim[#claim + 1] = part
            end
            return claim
        end
        job = redis.call("ZRANGE", key.runnable:format(model), 0, 0)[1]
    end
end
return false
