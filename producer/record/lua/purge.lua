-- Removes a job that has ended, results and all.  ARGV: job  ->  1, or 0 when it has not ended
local job = ARGV[1]
go_on_when_full()
local state = redis.call("HGET", key.job:format(job), "state")
if state ~= "completed" and state ~= "cancelled" then
    return 0
end
remove(job)
return 1
