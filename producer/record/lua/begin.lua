-- Creates a job that nobody can see yet: its rows are staged next.
-- ARGV: job, model, name, priority, most share of errors or "", ms to stay after its end or "",
--       what rows ask for that do not say otherwise (JSON) or "", "1" when equal rows get one answer, or "",
--       its producer, hash of what decides how rows are staged
--   ->  1, or 0 when the id is taken
local job, model, name, priority, max_error_rate, ttl, defaults, dedupe, owner, plan = unpack(ARGV)
if redis.call("HGET", key.job:format(job), "owner") == owner then
    return 1 -- begun before: the caller did not hear of it
end
if redis.call("EXISTS", key.job:format(job)) == 1 then
    return 0
end
local now = now_ms()
redis.call("ZADD", key.staging, now, job)
redis.call("HSET", key.job:format(job), "state", "submitting", "model", model, "asked_model", model, "name", name,
    "created", now, "priority", priority, "max_error_rate", max_error_rate, "ttl", ttl, "defaults", defaults,
    "dedupe", dedupe, "owner", owner, "plan", plan, "rows", 0, "copies", 0, "invalid", 0, "shards", 0, "calls", 0,
    "done", 0, "failed", 0, "consumed", 0, "attempts_lost", 0, "prompt_tokens", 0, "completion_tokens", 0)
redis.call("ZADD", key.jobs, now, job)
return 1
