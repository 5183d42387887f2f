-- How much a worker's model has waiting.  ARGV: the model the worker serves, prefix of arq's keys of running tokens
--   ->  {open shards, tokens in arq's queue, those of them that nobody runs}
local served, running = ARGV[1], ARGV[2]
local wanted = { served }
if served ~= "target" then
    wanted[2] = "target"
end
local shards = 0
for _, model in ipairs(wanted) do
    for _, job in ipairs(redis.call("ZRANGE", key.runnable:format(model), 0, -1)) do
        local open = redis.pcall("ZCARD", key.open:format(job))
        shards = shards + (type(open) == "number" and open or 1) -- damaged: whoever claims finds out, and stops the job
    end
end
local tokens = redis.call("ZRANGE", key.tokens:format(served), 0, -1)
local waiting = 0
for _, token in ipairs(tokens) do
    if redis.call("EXISTS", running .. token) == 0 then
        waiting = waiting + 1
    end
end
return { shards, #tokens, waiting }
