-- The key schema, prepended to every script here and read by ../keys.py, so that it is written once.
-- "%s" is filled with string.format. A shard is a number from 0; times are milliseconds of Redis's own clock.
local key = {
    jobs       = "minedraft:jobs",               -- ZSET   job -> when it was created
    job        = "minedraft:job:%s",             -- HASH   one job: state, reason (why it is paused), model, asked_model (as
                                                 --        it was submitted), name, identity, priority, max_error_rate,
                                                 --        ttl (ms), defaults (parameters of all its rows, JSON or ""),
                                                 --        dedupe ("1": equal rows get one answer), rows, copies (rows
                                                 --        that are equal to an earlier one, where that counts), invalid,
                                                 --        shards, done (failed included), failed, consumed,
                                                 --        consumed_digest (SHA-256 of these lines of the file),
                                                 --        forgiven_done, forgiven_failed (not judged by max_error_rate),
                                                 --        attempts_lost, prompt_tokens, completion_tokens, created,
                                                 --        started, ended. While it is submitted: owner (its producer,
                                                 --        "" when it was left), plan (hash of what decides how rows are
                                                 --        staged), calls (of `stage`), digest (of all rows that were
                                                 --        read by the last of them), first (the same by the first)
    staging    = "minedraft:staging",            -- ZSET   job in submission -> when it last got rows
    rows       = "minedraft:job:%s:rows:%s",     -- HASH   row index -> row, of one shard: its *unfinished* rows. A row leaves
                                                 --        it in the step that writes its result, so none counts twice
    open       = "minedraft:job:%s:open",        -- ZSET   shard -> place in line: committed, unfinished, nobody's
    epochs     = "minedraft:job:%s:epochs",      -- HASH   shard -> how often it was claimed: the fencing number
    lost       = "minedraft:job:%s:lost",        -- HASH   shard -> attempts that took their worker or engine down
    results    = "minedraft:job:%s:results",     -- HASH   row index -> line of the results file
    finished   = "minedraft:job:%s:finished",    -- LIST   row indices in the order in which they ended
    taken      = "minedraft:job:%s:taken",       -- LIST   of those, the ones that a consumer is writing to its file
    failed     = "minedraft:job:%s:failed",      -- HASH   row index -> row, of rows that a worker failed: for `retry`
    engines    = "minedraft:job:%s:engines",     -- HASH   worker -> what it computes with and did here (JSON)
    identities = "minedraft:identities",         -- HASH   hash of (rows, defaults, model) -> job
    runnable   = "minedraft:runnable:%s",        -- ZSET   of one model: job -> its place in line, by priority, then turn;
                                                 --        only jobs with open shards, neither paused nor ended
    turn       = "minedraft:turn",               -- STRING the last turn given
    leases     = "minedraft:leases",             -- ZSET   "job shard" -> when the lease runs out
    expiring   = "minedraft:expiring",           -- ZSET   ended job -> when it is purged
    doomed     = "minedraft:doomed",             -- ZSET   "job shards" -> the next shard whose rows are removed
    workers    = "minedraft:workers",            -- ZSET   worker -> when its heartbeat runs out
    worker     = "minedraft:worker:%s",          -- STRING what the worker says of itself (JSON)
    tokens     = "minedraft:tokens:%s",          -- ZSET   of one model: arq's queue. A token says "there is work"
}

-- From so many lost attempts on, a shard has its engine to itself, so that others are not taken down with it (and
-- are not blamed): claim tells the worker.
local SUSPECT = 2
-- With so many, it is split into single rows. (A single row with leases.CONDEMNED becomes an error row. Rows that get one
-- answer together count as one.)
local SPLIT = 3
-- Suspects wait behind all other shards of their job.
local LAST = 2 ^ 40

-- A priority outweighs any number of turns.
local PRIORITY = 2 ^ 44

-- Redis 6.2 refuses writes after TIME unless it replicates effects; from 7 on it always does.
redis.replicate_commands()

-- Redis checks its memory limit at the first write of a script only. Scripts that bring work to an end, or free
-- memory, begin with a write that needs none; claiming and staging are refused by a full server, whole, before they
-- change anything.
local function go_on_when_full()
    redis.call("ZREM", key.doomed, "")
end

local function now_ms()
    local time = redis.call("TIME")
    return time[1] * 1000 + math.floor(time[2] / 1000)
end

local function lease_name(job, shard)
    return job .. " " .. shard
end

-- A lease holds while nobody took the shard over since: same epoch, and not handed back, reaped, finished or cancelled.
local function holds(job, shard, epoch)
    return redis.call("HGET", key.epochs:format(job), shard) == epoch
        and redis.call("ZSCORE", key.leases, lease_name(job, shard)) ~= false
end

-- Puts a job in line, behind the others of its priority, unless it is there or nothing of it may be claimed.
local function line_up(job)
    local state, model, priority = unpack(redis.call("HMGET", key.job:format(job), "state", "model", "priority"))
    if (state == "queued" or state == "running") and redis.call("EXISTS", key.open:format(job)) == 1 then
        local turn = redis.call("INCR", key.turn)
        redis.call("ZADD", key.runnable:format(model), "NX", turn - tonumber(priority) * PRIORITY, job)
    end
end

-- Indices of rows in the order in which they ended, from 0 on; those that were consumed are not among them any more, and
-- those that a consumer has set aside come before all others.
local function ended_rows(job, first, last)
    local indices = redis.call("LRANGE", key.taken:format(job), first, last)
    local aside = redis.call("LLEN", key.taken:format(job))
    if last >= aside then
        for _, index in ipairs(redis.call("LRANGE", key.finished:format(job), math.max(first - aside, 0), last - aside)) do
            indices[#indices + 1] = index
        end
    end
    return indices
end

-- What errors say that come from damaged keys.
local DAMAGE = { "WRONGTYPE", "not an integer", "not a valid float", "attempt to" }

-- Calls a function that works on one job's keys. When somebody has damaged them, that job alone is stopped.
--   ->  whether they are sound, what the function returned
local function guarded(work, job, shard)
    local sound, found = pcall(work, job, shard)
    if sound then
        return true, found
    end
    local why = tostring(type(found) == "table" and found.err or found)
    local damaged = false
    for _, words in ipairs(DAMAGE) do
        damaged = damaged or why:find(words, 1, true) ~= nil
    end
    if not damaged then -- about rights, for instance: the next job would meet it, too
        pcall(line_up, job)
        error(found, 0)
    end
    why = why:gsub("@user_script:? ?%d+: ?", ""):gsub(" script: %w+, on.*", "")
    pcall(function()
        local state, model = unpack(redis.call("HMGET", key.job:format(job), "state", "model"))
        if state == "queued" or state == "running" then
            redis.call("HSET", key.job:format(job), "state", "paused", "reason", "its keys in Redis are damaged: " .. why)
            redis.call("ZREM", key.runnable:format(model), job)
        end
    end)
    return false
end

-- Makes a shard that was leased claimable.
local function reopen(job, shard)
    redis.call("ZREM", key.leases, lease_name(job, shard))
    if redis.call("EXISTS", key.rows:format(job, shard)) == 1 then
        local lost = tonumber(redis.call("HGET", key.lost:format(job), shard) or 0)
        redis.call("ZADD", key.open:format(job), shard + (lost >= SUSPECT and LAST or 0), shard)
        line_up(job)
    end
end

-- Forgets a shard that has no rows any more.
local function close(job, shard)
    redis.call("ZREM", key.leases, lease_name(job, shard))
    redis.call("HDEL", key.epochs:format(job), shard)
    redis.call("HDEL", key.lost:format(job), shard)
end

-- What says which rows of a job get one answer together; nil where each gets its own.
local function asked_by(job)
    if redis.call("HGET", key.job:format(job), "dedupe") ~= "1" then
        return function() end
    end
    return function(row)
        local request = row:find(',"url":"', 1, true) -- what is before it is no part of the request
        return request and redis.sha1hex(row:sub(request))
    end
end

-- Rows of a shard in groups: those that get one answer together, where a job has such, else each alone.
local function answered_together(job, rows)
    local groups, known, asked_of = {}, {}, asked_by(job)
    for at = 1, #rows, 2 do
        local asked = asked_of(rows[at + 1])
        local group = asked and known[asked]
        if not group then
            group = {}
            groups[#groups + 1] = group
            if asked then
                known[asked] = group
            end
        end
        group[#group + 1] = rows[at]
        group[#group + 1] = rows[at + 1]
    end
    return groups
end

-- Makes a shard claimable whose worker or engine died with it; one that did so too often as single rows.
local function attempt_lost(job, shard)
    local rows = redis.call("HGETALL", key.rows:format(job, shard))
    if redis.call("EXISTS", key.job:format(job)) == 0 or #rows == 0 then
        close(job, shard)
        return
    end
    redis.call("HINCRBY", key.job:format(job), "attempts_lost", 1)
    local lost = redis.call("HINCRBY", key.lost:format(job), shard, 1)
    local groups = lost >= SPLIT and answered_together(job, rows)
    if not groups or #groups == 1 then
        reopen(job, shard)
        return
    end
    for _, group in ipairs(groups) do
        local single = redis.call("HINCRBY", key.job:format(job), "shards", 1) - 1
        redis.call("HSET", key.rows:format(job, single), unpack(group))
        redis.call("HSET", key.lost:format(job), single, lost)
        reopen(job, single)
    end
    redis.call("UNLINK", key.rows:format(job, shard))
    close(job, shard)
end

-- An ended job stays for ever, or as long as it was submitted to.
local function ended(job, state)
    local now = now_ms()
    redis.call("HSET", key.job:format(job), "state", state, "ended", now)
    redis.call("HDEL", key.job:format(job), "reason")
    local ttl = redis.call("HGET", key.job:format(job), "ttl")
    if ttl and ttl ~= "" then
        redis.call("ZADD", key.expiring, now + ttl, job)
    end
end

local function complete_if_done(job)
    local rows, done = unpack(redis.call("HMGET", key.job:format(job), "rows", "done"))
    if tonumber(done) >= tonumber(rows) then
        ended(job, "completed")
    end
end

-- The errors so far are no reason to stop the job any more.
local function forgive(job)
    local done, failed = unpack(redis.call("HMGET", key.job:format(job), "done", "failed"))
    redis.call("HSET", key.job:format(job), "forgiven_done", done, "forgiven_failed", failed)
end

-- Leaves the rows of a job's shards to `sweep`: there may be too many to remove at once.
local function doom(job)
    local shards = redis.call("HGET", key.job:format(job), "shards")
    if tonumber(shards or 0) > 0 then
        redis.call("ZADD", key.doomed, 0, job .. " " .. shards)
    end
    redis.call("UNLINK", key.open:format(job), key.epochs:format(job), key.lost:format(job), key.failed:format(job))
end

-- Removes everything of a job but what `doom` left to `sweep`.
local function remove(job)
    local identity = redis.call("HGET", key.job:format(job), "identity")
    if identity and redis.call("HGET", key.identities, identity) == job then
        redis.call("HDEL", key.identities, identity)
    end
    for _, name in ipairs({ "job", "results", "finished", "taken", "failed", "engines" }) do
        redis.call("UNLINK", key[name]:format(job))
    end
    for _, name in ipairs({ "jobs", "staging", "expiring" }) do
        redis.call("ZREM", key[name], job)
    end
end

-- Removes a job that was never committed; false when it is no job in submission.
local function discard(job)
    if redis.call("HGET", key.job:format(job), "state") ~= "submitting" then
        return false
    end
    doom(job)
    remove(job)
    return true
end
