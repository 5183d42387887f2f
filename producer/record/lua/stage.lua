-- Adds rows to a job that is still being submitted: good rows, and rows that were refused at intake.
-- Calls are numbered from 1, so that one whose answer was lost can be sent again.
-- ARGV: job, its producer, number of the call, digest of all rows that were read by then,
--       how many of the good rows are equal to an earlier one, the shards that these go to, each with their indices
--       ("0:0,1,2 4:3,5"), the good rows in this order (a line each), SHA-1 of these, (index, result line)...
--   ->  1; 0 when the job is not being submitted (any more); -2 when another producer has taken it over
local job, owner, call, digest, copies, places, lines, sum = unpack(ARGV, 1, 8)
call = tonumber(call)
local stored = redis.call("HMGET", key.job:format(job), "state", "owner", "calls", "rows", "copies", "shards",
    "invalid", "done", "failed")
if stored[2] and stored[2] ~= owner then
    return -2
end
if stored[1] ~= "submitting" then
    return 0
end
if call <= tonumber(stored[3]) then
    return 1
end
if call > stored[3] + 1 then -- of calls sent together, the first may have found no script: all are to be sent again
    return redis.error_reply("NOSCRIPT an earlier part of the job is missing")
end
if redis.sha1hex(lines) ~= sum then -- a producer that was torn out of writing has left something else in its place
    return redis.error_reply("ERR the rows are damaged")
end
local shards, good, bad, at = tonumber(stored[6]), 0, (#ARGV - 8) / 2, 1
redis.call("ZADD", key.staging, now_ms(), job)
for shard, indices in places:gmatch("(%d+):(%S+)") do
    local rows, fields = key.rows:format(job, shard), {}
    for index in indices:gmatch("%d+") do
        local stop = lines:find("\n", at, true) or #lines + 1
        fields[#fields + 1] = index
        fields[#fields + 1] = lines:sub(at, stop - 1)
        at = stop + 1
    end
    if redis.call("EXISTS", rows) == 0 then
        redis.call("ZADD", key.open:format(job), shard, shard)
        shards = shards + 1
    end
    redis.call("HSET", rows, unpack(fields))
    good = good + #fields / 2
end
for at = 9, #ARGV, 2 do
    redis.call("HSET", key.results:format(job), ARGV[at], ARGV[at + 1])
    redis.call("RPUSH", key.finished:format(job), ARGV[at])
end
redis.call("HSET", key.job:format(job), "calls", call, "digest", digest, "rows", stored[4] + good + bad,
    "copies", stored[5] + copies, "shards", shards, "invalid", stored[7] + bad, "done", stored[8] + bad,
    "failed", stored[9] + bad)
if call == 1 then
    redis.call("HSET", key.job:format(job), "first", digest)
end
return 1
