-- The lines of those rows that have ended, as many as fit.
-- ARGV: job, about how many bytes at most, row index...
--   ->  {how many of the indices were looked at, line, line, ...}
local results, bytes = key.results:format(ARGV[1]), tonumber(ARGV[2])
local page = { 0 }
for at = 3, #ARGV do
    local line = redis.call("HGET", results, ARGV[at])
    page[1] = at - 2
    if line then
        page[#page + 1] = line
        bytes = bytes - #line
        if bytes <= 0 then
            break
        end
    end
end
return page
