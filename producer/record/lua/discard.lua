-- Removes a job that was never committed.  ARGV: job, its producer  ->  1, or 0 when it is not that one's to remove
local job, owner = ARGV[1], ARGV[2]
go_on_when_full()
if redis.call("HGET", key.job:format(job), "owner") ~= owner then
    return 0
end
return discard(job) and 1 or 0
