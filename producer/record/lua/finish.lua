-- Writes the results of rows and counts them, in one step; ends the shard, and the job, with their last row.
-- ARGV: job, shard, epoch, (index, line, failed 0|1, prompt tokens, completion tokens)...
--   ->  how many rows were written (one that has a result already is not written again), or -1: the lease is lost
local job, shard, epoch = ARGV[1], ARGV[2], ARGV[3]
if not holds(job, shard, epoch) then
    return -1
end
local rows, results = key.rows:format(job, shard), key.results:format(job)
local done, failed, prompt, completion = 0, 0, 0, 0
for at = 4, #ARGV, 5 do
    local index = ARGV[at]
    if redis.call("HDEL", rows, index) == 1 then
        redis.call("HSET", results, index, ARGV[at + 1])
        redis.call("RPUSH", key.finished:format(job), index)
        done = done + 1
        failed = failed + tonumber(ARGV[at + 2])
        prompt = prompt + tonumber(ARGV[at + 3])
        completion = completion + tonumber(ARGV[at + 4])
    end
end
local counters = { done = done, failed = failed, prompt_tokens = prompt, completion_tokens = completion }
for name, gain in pairs(counters) do
    redis.call("HINCRBY", key.job:format(job), name, gain)
end
if redis.call("EXISTS", rows) == 0 then
    redis.call("ZREM", key.leases, lease_name(job, shard))
    redis.call("HDEL", key.epochs:format(job), shard)
    redis.call("HDEL", key.lost:format(job), shard)
    if redis.call("HGET", key.job:format(job), "state") == "running" then
        complete_if_done(job)
    end
end
return done
