-- The error lines among the next results of a job, in the order in which its rows ended: answers stay where they are.
-- ARGV: job, how many results of the list to skip, how many to look at
--   ->  {how many were looked at, error line, error line, ...}
local job, skip, most = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local results, aside = key.results:format(job), redis.call("LLEN", key.taken:format(job))
local indices = redis.call("LRANGE", key.taken:format(job), skip, skip + most - 1)
if #indices < most then
    local first = math.max(skip - aside, 0)
    for _, index in ipairs(redis.call("LRANGE", key.finished:format(job), first, first + most - #indices - 1)) do
        indices[#indices + 1] = index
    end
end
local page = { #indices }
for _, index in ipairs(indices) do
    local line = redis.call("HGET", results, index)
    -- Quotes inside a string of JSON have backslashes before them: no text of a user's looks like this.
    if line and line:find(',"response":null,"error":{', 1, true) then
        page[#page + 1] = line
    end
end
return page
