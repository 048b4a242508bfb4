-- SPDX-License-Identifier: MIT
-- Locks in one Redis: everything that has to be one step. With a prefix P (picket:)
--     PNAME                    who holds the lock, as picket:LEASE:REQUEST; lives as long
--                              as the lease, and longer by the lock-delay: then nobody
--                              holds it, but it is closed. A plain key, made as SET NX PX
--                              would make it: other clients of that idiom keep us out,
--                              and we them
--     picket-token:PNAME       the lock's counter, raised with each grant; never expires
--     picket-queue:PNAME       who waits, in order; a waiter whose lease is gone is passed
--                              over, so that the dead block nobody (P9)
--     picket-lease:LEASE:P     the lease, with its TTL: ttl, inbox (a channel), and of each
--                              claim n:REQUEST its lock, c: its card, d: its lock-delay,
--                              t: its token if it was granted, e: who broke it and why
--     picket-names:P           the locks that may be in use, for listing
-- ARGV[1] is what to do, ARGV[2] is P. Whatever can fail comes before the first write.
local verb, prefix = ARGV[1], ARGV[2]
local names = 'picket-names:' .. prefix
local closed = 'picket:closed'

local function hold_of(name) return prefix .. name end
local function counter_of(name) return 'picket-token:' .. prefix .. name end
local function queue_of(name) return 'picket-queue:' .. prefix .. name end
local function lease_of(id) return 'picket-lease:' .. id .. ':' .. prefix end
local function claim_of(id, request) return 'picket:' .. id .. ':' .. request end
local function field_of(id, letter, request)
    return redis.call('HGET', lease_of(id), letter .. ':' .. request)
end
local function split(claim) return claim:match('^picket:(%d+):(%d+)$') end

-- What the lock's key says; false: it is free. A key of another kind is somebody's, too.
local function holder_of(name)
    local found = redis.pcall('GET', hold_of(name))
    return type(found) == 'table' and '(a key that is no lock)' or found
end

-- Whoever may not publish has to rely on others looking from time to time.
local function tell(id, words)
    local inbox = redis.call('HGET', lease_of(id), 'inbox')
    if inbox then
        redis.pcall('PUBLISH', inbox, words)
    end
end

-- The key lives at least that long. A renewal never brings its end forward, whatever the
-- TTL: should the answer get lost, the holder still relies on the end that it was told
-- before (P4).
local function outlast(key, ms)
    if redis.call('PTTL', key) < tonumber(ms) then
        redis.call('PEXPIRE', key, ms)
    end
end

-- The first who waits and lives.
local function first_of(name)
    while true do
        local claim = redis.call('ZRANGE', queue_of(name), 0, 0)[1]
        if not claim then
            return nil
        end
        local id, request = split(claim)
        if redis.call('HEXISTS', lease_of(id), 'n:' .. request) == 1 then
            return claim
        end
        redis.call('ZREM', queue_of(name), claim)
    end
end

-- The lock is free: tells the next, and nobody else (P7).
local function pass_on(name)
    local claim = first_of(name)
    if claim then
        local id, request = split(claim)
        tell(id, 'go ' .. id .. ' ' .. request)
    else
        redis.call('ZREM', names, name)
    end
end

local function forget(id, request)
    redis.call('HDEL', lease_of(id), 'n:' .. request, 'c:' .. request, 'd:' .. request,
        't:' .. request, 'e:' .. request)
end

local function take_away(id, request, name)
    local mine = claim_of(id, request)
    local there = false
    if holder_of(name) == mine then
        redis.call('DEL', hold_of(name))
        there = true
    end
    if redis.call('ZREM', queue_of(name), mine) == 1 then
        there = true
    end
    forget(id, request)
    if not holder_of(name) then
        pass_on(name)
    end
    return there
end

local function grant(id, request, name, card, delay, left)
    redis.call('INCR', counter_of(name))
    local token = redis.call('GET', counter_of(name))
    redis.call('SET', hold_of(name), claim_of(id, request), 'PX', left + delay)
    redis.call('ZREM', queue_of(name), claim_of(id, request))
    redis.call('HSET', lease_of(id), 'n:' .. request, name, 'c:' .. request, card,
        'd:' .. request, delay, 't:' .. request, token)
    redis.call('ZADD', names, 0, name)
    return {'held', token}
end

-- In the queue: when it is worth to look again, in ms (negative: can't be said). The first
-- looks after the holder, everybody else after the one before it.
local function wait(id, request, name, card)
    local mine, queue = claim_of(id, request), queue_of(name)
    if not redis.call('ZSCORE', queue, mine) then
        local last = redis.call('ZREVRANGE', queue, 0, 0, 'WITHSCORES')[2] or '0'
        redis.call('HSET', lease_of(id), 'n:' .. request, name, 'c:' .. request, card)
        redis.call('ZADD', queue, tonumber(last) + 1, mine)
        redis.call('ZADD', names, 0, name)
    end
    local rank = redis.call('ZRANK', queue, mine)
    if rank == 0 then
        return {'first', redis.call('PTTL', hold_of(name))}
    end
    local before = split(redis.call('ZRANGE', queue, rank - 1, rank - 1)[1])
    return {'waiting', redis.call('PTTL', lease_of(before))}
end

-- The claims on a lock: name, 1 if it holds, token, order, ms left, card. A key that has
-- outlived its lease is told as order 'closed'.
local function see(name, rows)
    local holder = holder_of(name)
    if holder then
        local id, request = split(holder)
        local card = id and field_of(id, 'c', request)
        local left = redis.call('PTTL', hold_of(name))
        if id and not card or holder == closed then
            rows[#rows + 1] = {name, '0', '0', 'closed', tostring(left), ''}
        else
            left = left - (id and field_of(id, 'd', request) or 0)
            rows[#rows + 1] = {name, '1', id and field_of(id, 't', request) or '0', '0',
                tostring(left), card or holder}
        end
    end
    for place, claim in ipairs(redis.call('ZRANGE', queue_of(name), 0, -1)) do
        local id, request = split(claim)
        local card = field_of(id, 'c', request)
        if card then
            rows[#rows + 1] = {name, '0', '0', tostring(place),
                tostring(redis.call('PTTL', lease_of(id))), card}
        end
    end
end

local verbs = {}

function verbs.open(id, ttl, inbox)
    redis.call('HSET', lease_of(id), 'ttl', ttl, 'inbox', inbox)
    redis.call('PEXPIRE', lease_of(id), ttl)
    return {'ok'}
end

-- Answers with the TTL, then with each hold that is gone, and why.
function verbs.renew(id, ttl)
    local lease = lease_of(id)
    local before = redis.call('HGET', lease, 'ttl')
    if not before then
        return {'lost'}
    end
    ttl = ttl == '0' and before or ttl
    outlast(lease, ttl)
    redis.call('HSET', lease, 'ttl', ttl)
    local answer = {'ok', ttl}
    for _, field in ipairs(redis.call('HKEYS', lease)) do
        local request = field:match('^t:(%d+)$')
        if request then
            local name = field_of(id, 'n', request)
            if holder_of(name) == claim_of(id, request) then
                outlast(hold_of(name), ttl + field_of(id, 'd', request))
            else
                answer[#answer + 1] = request
                answer[#answer + 1] = field_of(id, 'e', request) or ''
            end
        end
    end
    return answer
end

-- A hold that is gone, once its owner has heard of it.
function verbs.forget(id, request)
    local name = field_of(id, 'n', request)
    if name then
        take_away(id, request, name)
    end
    return {'ok'}
end

function verbs.close(id)
    local lease = lease_of(id)
    if redis.call('EXISTS', lease) == 0 then
        return {'lost'}
    end
    tell(id, 'closed ' .. id)
    for _, field in ipairs(redis.call('HKEYS', lease)) do
        local request = field:match('^n:(%d+)$')
        if request then
            take_away(id, request, redis.call('HGET', lease, field))
        end
    end
    redis.call('DEL', lease)
    return {'ok'}
end

function verbs.look(id)
    local left = redis.call('PTTL', lease_of(id))
    return left > 0 and {'ok', tostring(left)} or {'lost'}
end

-- A grant counts only while the lease lives, and ends with it.
function verbs.stand(id, request, name, waits, card, delay)
    local left = redis.call('PTTL', lease_of(id))
    local mine = claim_of(id, request)
    if left <= 0 then
        return {'lost'}
    end
    local holder = holder_of(name)
    local token = field_of(id, 't', request)
    if token then -- a hold that is gone does not come back
        return holder == mine and {'held', token} or {'none'}
    end
    local first = first_of(name)
    if not holder and (not first or first == mine) then
        return grant(id, request, name, card, delay, left)
    end
    if waits == '0' then
        take_away(id, request, name)
        return {'none'}
    end
    if not holder then
        pass_on(name) -- who should have it may not have been told
    end
    return wait(id, request, name, card)
end

function verbs.leave(id, request, name)
    local lives = redis.call('EXISTS', lease_of(id)) == 1
    local there = take_away(id, request, name)
    return {there and 'ok' or lives and 'notheld' or 'lost'}
end

function verbs.release(id, name, token)
    if redis.call('EXISTS', lease_of(id)) == 0 then
        return {'lost'}
    end
    local holder, request = split(holder_of(name) or '')
    if holder ~= id or field_of(id, 't', request) ~= token then
        return {'notheld'}
    end
    tell(id, 'released ' .. id .. ' ' .. request)
    take_away(id, request, name)
    return {'ok'}
end

function verbs.rewrite(id, request, name, card)
    if holder_of(name) ~= claim_of(id, request) then
        return {'notheld'}
    end
    redis.call('HSET', lease_of(id), 'c:' .. request, card)
    return {'ok'}
end

verbs['break'] = function(name, token, why)
    local id, request = split(holder_of(name) or '')
    if not id or field_of(id, 't', request) ~= token then
        return {'notheld'}
    end
    local delay = field_of(id, 'd', request)
    redis.call('DEL', hold_of(name))
    if delay ~= '0' then
        redis.call('SET', hold_of(name), closed, 'PX', delay)
    end
    redis.call('HSET', lease_of(id), 'e:' .. request, why)
    tell(id, 'broken ' .. id .. ' ' .. request .. ' ' .. why)
    pass_on(name)
    return {'ok'}
end

function verbs.show(name)
    local rows = {'ok', ''}
    see(name, rows)
    return rows
end

-- A page of the locks that begin so, after that one. The second word of the answer is
-- where the next page begins; empty: there is none.
function verbs.list(beginning, after, count)
    local from = after ~= '' and '(' .. after or '[' .. beginning
    local found = redis.call('ZRANGEBYLEX', names, from, '+', 'LIMIT', 0, count)
    local rows = {'ok', #found == tonumber(count) and found[#found] or ''}
    for _, name in ipairs(found) do
        if name:sub(1, #beginning) ~= beginning then
            rows[2] = ''
            break
        end
        local before = #rows
        see(name, rows)
        if #rows == before then
            redis.call('ZREM', names, name)
        end
    end
    return rows
end

return verbs[verb](unpack(ARGV, 3))
