-- SPDX-License-Identifier: MIT
-- One node of a Redlock: a lock is a key whose value is its owner's card, made as SET NX
-- PX would make it. ARGV[1] is what to do; then come keys, values and TTLs in turn. The
-- answer has a word for each of them.
local verb = ARGV[1]

local function value_of(key)
    local found = redis.pcall('GET', key)
    return type(found) == 'table' and '(a key that is no lock)' or found
end

local verbs = {}

-- "ours", or who has it.
function verbs.take(key, value, ttl)
    local found = value_of(key)
    if found and found ~= value then
        return found
    end
    redis.call('SET', key, value, 'PX', ttl)
    return 'ours'
end

function verbs.keep(key, value, ttl)
    local found = value_of(key)
    if found == value then
        redis.call('PEXPIRE', key, ttl)
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
