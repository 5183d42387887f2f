-- Lets no shard of a job be claimed any more; those that are leased run to their end.
-- ARGV: job, why, or "" where a user wants it  ->  1, or 0 when it is not queued or running
local job = ARGV[1]
go_on_when_full()
local state, model = unpack(redis.call("HMGET", key.job:format(job), "state", "model"))
if state ~= "queued" and state ~= "running" then
    return 0
end
redis.call("HSET", key.job:format(job), "state", "paused", "reason", ARGV[2])
redis.call("ZREM", key.runnable:format(model), job)
return 1
