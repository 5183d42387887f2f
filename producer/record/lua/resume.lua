-- Lets a paused job go on; whatever it was stopped for is forgiven.  ARGV: job  ->  1, or 0 when it is not paused
local job = ARGV[1]
go_on_when_full()
if redis.call("HGET", key.job:format(job), "state") ~= "paused" then
    return 0
end
local started = redis.call("HEXISTS", key.job:format(job), "started") == 1
redis.call("HSET", key.job:format(job), "state", started and "running" or "queued")
redis.call("HDEL", key.job:format(job), "reason")
forgive(job)
line_up(job)
return 1
