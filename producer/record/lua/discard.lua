-- Removes a job that was never committed.  ARGV: job  ->  1, or 0 when it is no job in submission
local job = ARGV[1]
local state, shards = unpack(redis.call("HMGET", key.job:format(job), "state", "shards"))
if state ~= "submitting" then
    return 0
end
for shard = 0, tonumber(shards) - 1 do
    redis.call("UNLINK", key.rows:format(job, shard))
end
redis.call("UNLINK", key.job:format(job), key.open:format(job), key.results:format(job), key.finished:format(job))
redis.call("ZREM", key.jobs, job)
return 1
