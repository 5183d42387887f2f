-- The key schema, prepended to every script here and read by ../keys.py, so that it is written once.
-- "%s" is filled with string.format. A shard is a number from 0; times are milliseconds of Redis's own clock.
local key = {
    jobs       = "minedraft:jobs",               -- ZSET   job -> when it was created
    job        = "minedraft:job:%s",             -- HASH   one job: state, model, name, identity, rows, invalid, shards,
                                                 --        done (failed included), failed, prompt_tokens,
                                                 --        completion_tokens, created, started, ended
    staging    = "minedraft:staging",            -- ZSET   job in submission -> when it last got rows
    rows       = "minedraft:job:%s:rows:%s",     -- HASH   row index -> row, of one shard: its *unfinished* rows. A row leaves
                                                 --        it in the step that writes its result, so none counts twice
    open       = "minedraft:job:%s:open",        -- ZSET   shard -> shard: committed, unfinished, nobody's
    epochs     = "minedraft:job:%s:epochs",      -- HASH   shard -> how often it was claimed: the fencing number
    lost       = "minedraft:job:%s:lost",        -- HASH   shard -> how often its lease ran out (attempts that failed)
    results    = "minedraft:job:%s:results",     -- HASH   row index -> line of the results file
    finished   = "minedraft:job:%s:finished",    -- LIST   row indices in the order in which they ended
    identities = "minedraft:identities",         -- HASH   hash of (rows, defaults, model) -> job
    runnable   = "minedraft:runnable:%s",        -- ZSET   of one model: job -> turn; only jobs with open shards.
                                                 --        The lowest turn is served next and goes to the end
    turn       = "minedraft:turn",               -- STRING the last turn given
    leases     = "minedraft:leases",             -- ZSET   "job shard" -> when the lease runs out
    workers    = "minedraft:workers",            -- ZSET   worker -> when its heartbeat runs out
    worker     = "minedraft:worker:%s",          -- STRING what the worker says of itself (JSON)
    tokens     = "minedraft:tokens:%s",          -- ZSET   of one model: arq's queue. A token says "there is work"
}

-- Redis 6.2 refuses writes after TIME unless it replicates effects; from 7 on it always does.
redis.replicate_commands()

local function now_ms()
    local time = redis.call("TIME")
    return time[1] * 1000 + math.floor(time[2] / 1000)
end

local function lease_name(job, shard)
    return job .. " " .. shard
end

-- A lease holds while nobody took the shard over since: same epoch, and not handed back, reaped or finished.
local function holds(job, shard, epoch)
    return redis.call("HGET", key.epochs:format(job), shard) == epoch
        and redis.call("ZSCORE", key.leases, lease_name(job, shard)) ~= false
end

-- Makes a shard claimable, and its job one that is looked at.
local function reopen(job, shard)
    redis.call("ZREM", key.leases, lease_name(job, shard))
    local state, model = unpack(redis.call("HMGET", key.job:format(job), "state", "model"))
    if state == "queued" or state == "running" then
        redis.call("ZADD", key.open:format(job), shard, shard)
        redis.call("ZADD", key.runnable:format(model), "NX", redis.call("INCR", key.turn), job)
    end
end

local function complete_if_done(job)
    local rows, done = unpack(redis.call("HMGET", key.job:format(job), "rows", "done"))
    if tonumber(rows) == tonumber(done) then
        redis.call("HSET", key.job:format(job), "state", "completed", "ended", now_ms())
    end
end

-- Removes a job that was never committed; false when it is no job in submission.
local function discard(job)
    local state, shards = unpack(redis.call("HMGET", key.job:format(job), "state", "shards"))
    if state ~= "submitting" then
        return false
    end
    for shard = 0, tonumber(shards) - 1 do
        redis.call("UNLINK", key.rows:format(job, shard))
    end
    redis.call("UNLINK", key.job:format(job), key.open:format(job), key.results:format(job), key.finished:format(job))
    redis.call("ZREM", key.jobs, job)
    redis.call("ZREM", key.staging, job)
    return true
end
