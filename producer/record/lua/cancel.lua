-- Ends a job: what is done stays, nothing else is answered any more.  ARGV: job  ->  1, or 0 when it had ended
local job = ARGV[1]
go_on_when_full()
local state, model = unpack(redis.call("HMGET", key.job:format(job), "state", "model"))
if state == "submitting" then
    discard(job)
    return 1
end
if state ~= "queued" and state ~= "running" and state ~= "paused" then
    return 0
end
for _, shard in ipairs(redis.pcall("HKEYS", key.epochs:format(job))) do -- nothing, where the key is damaged
    redis.call("ZREM", key.leases, lease_name(job, shard))
end
redis.call("ZREM", key.runnable:format(model), job)
doom(job)
ended(job, "cancelled")
return 1
