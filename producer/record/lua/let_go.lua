-- Leaves a submission to whoever submits the same rows next; one without rows is removed.
-- ARGV: job, its producer  ->  1, or 0 when it is not that one's to leave
local job, owner = ARGV[1], ARGV[2]
go_on_when_full()
local stored = redis.call("HMGET", key.job:format(job), "state", "owner", "calls")
if stored[1] ~= "submitting" or stored[2] ~= owner then
    return 0
end
if stored[3] == "0" then
    discard(job)
else
    redis.call("HSET", key.job:format(job), "owner", "")
end
return 1
