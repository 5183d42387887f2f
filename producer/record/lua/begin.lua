-- Creates a job that nobody can see yet: its rows are staged next.
-- ARGV: job, model, name    ->  1, or 0 when the id is taken
local job, model, name = ARGV[1], ARGV[2], ARGV[3]
if redis.call("EXISTS", key.job:format(job)) == 1 then
    return 0
end
local now = now_ms()
redis.call("HSET", key.job:format(job), "state", "submitting", "model", model, "name", name, "created", now,
    "rows", 0, "invalid", 0, "shards", 0, "done", 0, "failed", 0, "prompt_tokens", 0, "completion_tokens", 0)
redis.call("ZADD", key.jobs, now, job)
return 1
