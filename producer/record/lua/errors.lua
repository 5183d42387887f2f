-- The error lines among the results of a job from a place on, in the order in which its rows ended: answers stay where
-- they are. Places are those of read.lua; where results from that place on were consumed, the next ones are looked at.
-- ARGV: job, place, how many results to look at at most, about how many bytes of them at most
--   ->  {the place after the last that was looked at, error line, error line, ...}
local job, most, bytes = ARGV[1], tonumber(ARGV[3]), tonumber(ARGV[4])
local consumed = tonumber(redis.call("HGET", key.job:format(job), "consumed") or 0)
local place = math.max(tonumber(ARGV[2]), consumed)
local results, first = key.results:format(job), place - consumed
local page = { place }
for at, index in ipairs(ended_rows(job, first, first + most - 1)) do
    page[1] = place + at
    local line = redis.call("HGET", results, index)
    if line then
        -- Quotes inside a string of JSON have backslashes before them: no text of a user's looks like this.
        if line:find(',"response":null,"error":{', 1, true) then
            page[#page + 1] = line
        end
        bytes = bytes - #line
        if bytes <= 0 then
            break
        end
    end
end
return page
