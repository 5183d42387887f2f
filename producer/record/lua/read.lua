-- The lines of rows that have ended: the next ones from a place on, as many as fit.
-- Places count from 0. In the order "input" a place is a row's index; in the order "done" it is how many rows ended
-- before it, those that were consumed included: rows that end later do not move it.
-- ARGV: job, order, place, how many places at most, about how many bytes at most,
--       for "done" the SHA-1 of the line before that place, or "": it is not asked for
--   ->  false when there is no such job; -1 when another line is before that place now, or lines from there on were
--       consumed; else {the place after the last that was looked at, how many lines, the lines, each with a newline}
local job, order, place, most, bytes = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local consumed = redis.call("HGET", key.job:format(job), "consumed")
if not consumed then
    return false
end
local results = key.results:format(job)

local indices
if order == "done" then
    local first = place - tonumber(consumed)
    if first < 0 then
        return -1
    end
    if ARGV[6] ~= "" and first > 0 then
        local before = ended_rows(job, first - 1, first - 1)[1]
        local line = before and redis.call("HGET", results, before)
        if not line or redis.sha1hex(line) ~= ARGV[6] then
            return -1
        end
    end
    indices = ended_rows(job, first, first + most - 1)
else
    indices = {}
    local rows = tonumber(redis.call("HGET", key.job:format(job), "rows"))
    for index = place, math.min(place + most, rows) - 1 do
        indices[#indices + 1] = ("%d"):format(index)
    end
end

local lines, looked_at = {}, 0
for at, index in ipairs(indices) do
    looked_at = at
    local line = redis.call("HGET", results, index)
    if line then
        lines[#lines + 1] = line
        bytes = bytes - #line
        if bytes <= 0 then
            break
        end
    end
end
lines[#lines + 1] = ""
return { place + looked_at, #lines - 1, table.concat(lines, "\n") }
