-- Starts a staged job, all of it at once; or finds that the same job is there already.
-- ARGV: job, identity, "new" to start it even then
--   ->  the job that now stands for these rows: this one, or the earlier one (then this one is for `discard`);
--       false when the job is not being submitted (any more)
local job, identity, insist = ARGV[1], ARGV[2], ARGV[3]
if redis.call("HGET", key.job:format(job), "state") ~= "submitting" then
    return false
end
local earlier = redis.call("HGET", key.identities, identity)
if earlier and insist ~= "new" then
    local state = redis.call("HGET", key.job:format(earlier), "state")
    if state and state ~= "cancelled" then
        return earlier
    end
end
redis.call("ZREM", key.staging, job)
redis.call("HSET", key.identities, identity, job)
redis.call("HSET", key.job:format(job), "state", "queued", "identity", identity)
if redis.call("ZCARD", key.open:format(job)) > 0 then
    local model = redis.call("HGET", key.job:format(job), "model")
    redis.call("ZADD", key.runnable:format(model), redis.call("INCR", key.turn), job)
end
complete_if_done(job)
return job
