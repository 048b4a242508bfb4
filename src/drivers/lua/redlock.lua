-- SPDX-License-Identifier: MIT
-- One node of a Redlock: a lock is a key whose value is its owner's card, made as SET NX
-- PX would make it. ARGV[1] is what to do; then come keys, values and TTLs in turn. The
-- answer has a word for each of them.
local verb = ARGV[1]

local function value_of(key)
    local found = redis.pcall('GET', key)
    return type(found) == 'table' and '(a key that is no lock)' or found
end

-- The key lives at least that long. A renewal never brings its end forward, whatever the
-- TTL: should the answer get lost, the holder still relies on the end that it was told
-- before (P4).
local function outlast(key, ms)
    if redis.call('PTTL', key) < tonumber(ms) then
        redis.call('PEXPIRE', key, ms)
    end
end

local verbs = {}

-- "ours", or who has it.
function verbs.take(key, value, ttl)
    local found = value_of(key)
    if found and found ~= value then
        return found
    elseif found then
        outlast(key, ttl)
    else
        redis.call('SET', key, value, 'PX', ttl)
    end
    return 'ours'
end

function verbs.keep(key, value, ttl)
    local found = value_of(key)
    if found == value then
        outlast(key, ttl)
        return 'ours'
    end
    return found and 'theirs' or 'missing'
end

function verbs.drop(key, value)
    return value_of(key) == value and redis.call('DEL', key) == 1 and 'ours' or 'missing'
end

-- Who has it, and for how long yet.
function verbs.see(key)
    return {value_of(key) or '', tostring(redis.call('PTTL', key))}
end

local answer = {}
for i = 2, #ARGV, 3 do
    answer[#answer + 1] = verbs[verb](ARGV[i], ARGV[i + 1], ARGV[i + 2])
end
return answer
