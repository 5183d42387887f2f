-- Creates a job that nobody can see yet: its rows are staged next. Also removes what killed producers left behind.
-- ARGV: job, model, name, silence (ms) after which a submission counts as left behind  ->  1, or 0 when the id is taken
local job, model, name, silence = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
if redis.call("EXISTS", key.job:format(job)) == 1 then
    return 0
end
local now = now_ms()
for _, abandoned in ipairs(redis.call("ZRANGEBYSCORE", key.staging, "-inf", now - silence, "LIMIT", 0, 10)) do
    discard(abandoned)
end
redis.call("ZADD", key.staging, now, job)
redis.call("HSET", key.job:format(job), "state", "submitting", "model", model, "name", name, "created", now,
    "rows", 0, "invalid", 0, "shards", 0, "done", 0, "failed", 0, "prompt_tokens", 0, "completion_tokens", 0)
redis.call("ZADD", key.jobs, now, job)
return 1
