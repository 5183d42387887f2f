-- Sets the next results of a job aside for a consumer, in the order in which they ended; those that were set aside
-- before and not trimmed since come again first. A row that is set aside cannot be retried any more.
-- ARGV: job, how many at most, about how many bytes at most, "take", or "look" to change nothing
--   ->  false when there is no such job, else {how many were consumed before, their digest, line, line, ...}
local job, most, bytes = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local state, consumed, digest = unpack(redis.call("HMGET", key.job:format(job), "state", "consumed", "consumed_digest"))
if not state then
    return false
end
local batch = { tonumber(consumed), digest or "" }
if state == "submitting" then -- its refused rows are there already, and may yet be discarded
    return batch
end
local finished, taken, results = key.finished:format(job), key.taken:format(job), key.results:format(job)
local indices = redis.call("LRANGE", taken, 0, -1)
if #indices == 0 then
    for _, index in ipairs(redis.call("LRANGE", finished, 0, most - 1)) do
        if bytes > 0 then
            bytes = bytes - redis.call("HSTRLEN", results, index)
            indices[#indices + 1] = index
        end
    end
    if #indices > 0 and ARGV[4] == "take" then
        redis.call("LTRIM", finished, #indices, -1) -- the first write, and one that a full server allows
        redis.call("RPUSH", taken, unpack(indices))
        redis.call("HDEL", key.failed:format(job), unpack(indices))
    end
end
if #indices > 0 then
    for _, line in ipairs(redis.call("HMGET", results, unpack(indices))) do
        batch[#batch + 1] = line
    end
end
return batch
