-- Submissions that are not committed and began with the same rows.
-- ARGV: hash of what decides how rows are staged, digest of the rows that were read by the first call
--   ->  {{job, its producer or "" when it let go of it, calls, digest after the last of them, ms since then}, ...}
local plan, first = ARGV[1], ARGV[2]
local found, now = {}, now_ms()
local staging = redis.call("ZRANGE", key.staging, 0, -1, "WITHSCORES")
for at = 1, #staging, 2 do
    local job = staging[at]
    local stored = redis.pcall("HMGET", key.job:format(job), "state", "plan", "first", "owner", "calls", "digest")
    if not stored.err and stored[1] == "submitting" and stored[2] == plan and stored[3] == first then
        found[#found + 1] = { job, stored[4], tonumber(stored[5]), stored[6], now - staging[at + 1] }
    end
end
return found
