-- Starts a staged job, all of it at once; or finds that the same job is there already.
-- ARGV: job, its producer, identity, "new" to start it even then, how many rows there must be
--   ->  the job that now stands for these rows: this one, or the earlier one (then this one is for `discard`);
--       false when the job is not being submitted (any more); -1 when rows are missing; -2 when another producer
--       has taken it over
local job, owner, identity, insist = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local found = redis.call("HMGET", key.job:format(job), "state", "identity", "owner", "rows")
if found[3] and found[3] ~= owner then
    return -2
end
if found[2] == identity then
    return job -- committed before: the caller did not hear of it
end
if found[1] ~= "submitting" then
    return false
end
if found[4] ~= ARGV[5] then
    return -1
end
local earlier = redis.call("HGET", key.identities, identity)
if earlier and insist ~= "new" then
    local state = redis.call("HGET", key.job:format(earlier), "state")
    if state and state ~= "cancelled" then
        return earlier
    end
end
redis.call("ZREM", key.staging, job)
redis.call("HSET", key.identities, identity, job)
redis.call("HSET", key.job:format(job), "state", "queued", "identity", identity)
forgive(job)
line_up(job)
complete_if_done(job)
return job
