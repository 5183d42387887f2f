-- Removes the results that were set aside: they are on the consumer's disk.
-- ARGV: job, how many were consumed before them (so that nobody trims what he has not written), the digest
--       of all that are consumed then
--   ->  how many were removed; 0 also when somebody else did it
local job = ARGV[1]
if redis.call("HGET", key.job:format(job), "consumed") ~= ARGV[2] then
    return 0
end
local indices = redis.call("LRANGE", key.taken:format(job), 0, -1)
if #indices > 0 then
    redis.call("HDEL", key.results:format(job), unpack(indices)) -- the first write, and one that a full server allows
    redis.call("UNLINK", key.taken:format(job))
    redis.call("HINCRBY", key.job:format(job), "consumed", #indices)
    redis.call("HSET", key.job:format(job), "consumed_digest", ARGV[3])
end
return #indices
