-- Takes a lease on the next shard: the job whose turn it is (the highest priority first; jobs of one priority share the
-- fleet fairly), its first open shard.
-- A job for "target" names no model; the first worker that takes a shard of it binds the whole job to its own model,
-- so that one job is never answered by two models.
-- ARGV: the model the worker serves, lease (ms), a job to look at first, or ""
--   ->  false, or {job, shard, epoch, lost attempts, the job's defaults, "1" when equal rows get one answer or
--       "", index, row, index, row, ...}
local served, lease, first = ARGV[1], tonumber(ARGV[2]), ARGV[3]

-- The job that is next in line, of those for this model and those for any.
local function next_job()
    local job, model, place
    for _, wanted in ipairs({ served, served ~= "target" and "target" or nil }) do
        if redis.call("ZSCORE", key.runnable:format(wanted), first) then
            return first, wanted
        end
        local front = redis.call("ZRANGE", key.runnable:format(wanted), 0, 0, "WITHSCORES")
        if front[1] and (not place or tonumber(front[2]) < place) then
            job, model, place = front[1], wanted, tonumber(front[2])
        end
    end
    return job, model
end

local function take(job)
    local shard = redis.call("ZRANGE", key.open:format(job), 0, 0)[1]
    if not shard then
        return nil
    end
    local now = now_ms()
    -- Where one of these fails, the shard is still there.
    local rows = redis.call("HGETALL", key.rows:format(job, shard))
    local lost = tonumber(redis.call("HGET", key.lost:format(job), shard) or 0)
    local defaults, dedupe = unpack(redis.call("HMGET", key.job:format(job), "defaults", "dedupe"))
    local epoch = redis.call("HINCRBY", key.epochs:format(job), shard, 1)
    redis.call("ZREM", key.open:format(job), shard)
    local claim = { job, shard, epoch, lost, defaults or "", dedupe or "" }
    for _, part in ipairs(rows) do
        claim[#claim + 1] = part
    end
    redis.call("HSET", key.job:format(job), "model", served, "state", "running")
    redis.call("HSETNX", key.job:format(job), "started", now)
    line_up(job)
    redis.call("ZADD", key.leases, now + lease, lease_name(job, shard))
    return claim
end

local job, model = next_job()
while job do
    redis.call("INCR", key.turn) -- the first write: a full Redis refuses the claim
    redis.call("ZREM", key.runnable:format(model), job)
    local _, claim = guarded(take, job)
    if claim then
        return claim
    end
    job, model = next_job()
end
return false
