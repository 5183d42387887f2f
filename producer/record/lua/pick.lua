-- Takes arq tokens that nobody runs, and marks them as running. Tokens are all alike, so it looks at random ones: the
-- oldest are those that run, in a large fleet hundreds of them. Needs one command where arq's own way needs ten a token.
-- ARGV: the model the worker serves, prefixes of arq's keys of running tokens and of payloads, how long the mark
--       lives (ms), at most how many  ->  {token, ...}
local served, running, payload, lease, most = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
local picked = {}
for _, token in ipairs(redis.call("ZRANDMEMBER", key.tokens:format(served), 64)) do
    if redis.call("EXISTS", payload .. token) == 0 then
        redis.call("ZREM", key.tokens:format(served), token)
    elseif #picked < most and redis.call("SET", running .. token, 1, "NX", "PX", lease) then
        picked[#picked + 1] = token
    end
end
return picked
