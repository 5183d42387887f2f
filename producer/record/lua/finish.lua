-- Writes the results of rows and counts them, in one step; ends the shard, and the job, with their last row; pauses a
-- job with too many errors.
-- ARGV: job, shard, epoch, (index, line, failed 0|1, prompt tokens, completion tokens)...
--   ->  how many rows were written (one that has a result already is not written again), or -1: the lease is lost
local job, shard, epoch = ARGV[1], ARGV[2], ARGV[3]
if not holds(job, shard, epoch) then
    return -1
end
go_on_when_full()
local rows, results = key.rows:format(job, shard), key.results:format(job)
-- Where somebody has damaged one of these, this fails, before anything is changed.
redis.call("HLEN", results)
redis.call("LLEN", key.finished:format(job))
redis.call("HLEN", key.failed:format(job))
local done, failed, prompt, completion = 0, 0, 0, 0
for at = 4, #ARGV, 5 do
    local index, is_failed = ARGV[at], ARGV[at + 2] == "1"
    local row = redis.call("HGET", rows, index)
    if row then
        redis.call("HSET", results, index, ARGV[at + 1])
        redis.call("RPUSH", key.finished:format(job), index)
        redis.call("HDEL", rows, index)
        done = done + 1
        prompt = prompt + tonumber(ARGV[at + 3])
        completion = completion + tonumber(ARGV[at + 4])
        if is_failed then
            failed = failed + 1
            redis.call("HSET", key.failed:format(job), index, row)
        end
    end
end
local counters = { done = done, failed = failed, prompt_tokens = prompt, completion_tokens = completion }
for name, gain in pairs(counters) do
    redis.call("HINCRBY", key.job:format(job), name, gain)
end
if redis.call("EXISTS", rows) == 0 then
    close(job, shard)
    complete_if_done(job)
end
if failed > 0 then
    local stored = redis.call("HMGET", key.job:format(job), "state", "max_error_rate", "done", "failed",
        "forgiven_done", "forgiven_failed", "model")
    local most, judged, wrong = tonumber(stored[2]), stored[3] - stored[5], stored[4] - stored[6]
    if stored[1] == "running" and most and judged >= 50 and wrong / judged > most then
        local reason = ("%d of %d rows failed, more than the share of %g allowed"):format(wrong, judged, most)
        redis.call("HSET", key.job:format(job), "state", "paused", "reason", reason)
        redis.call("ZREM", key.runnable:format(stored[7]), job)
    end
end
return done
