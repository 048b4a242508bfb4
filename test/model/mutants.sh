#!/bin/sh
# SPDX-License-Identifier: MIT
# Proves that the differential test sees: plants one mistake at a time into a copy of
# src/core, builds the test against it and wants it to fail.
#
#     test/model/mutants.sh [TEXT]     only the mutants whose name contains TEXT
#
# TAP on stdout. A mutant whose text is no longer in the source fails too, so that the
# list can't rot. Takes a minute.
set -eu
cd "$(dirname "$0")/../.."
only=${1:-}
cc=${CC:-cc}
commands=2000000 # as many as the test itself runs; most are seen in the first thousands
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
count=0
failed=0

compile() { # compile SOURCE OBJECT
    "$cc" -std=c11 -O1 -D_GNU_SOURCE -I"$work/src" -Isrc -Itest/model -c "$1" -o "$2"
}

link_and_run() { # link_and_run: the test's own exit code; its output in $work/log
    "$cc" "$work"/*.o -o "$work/differential"
    "$work/differential" --commands "$commands" --shrink 0 >"$work/log" 2>&1
}

result() { # result OK NAME TEXT
    count=$((count + 1))
    if [ "$1" = yes ]; then
        echo "ok $count - $2: $3"
    else
        failed=$((failed + 1))
        echo "not ok $count - $2: $3"
    fi
}

# Replaces OLD, which must be there exactly once, by NEW.
patch_text() { # patch_text FILE OLD NEW
    OLD=$2 NEW=$3 awk '
        BEGIN { old = ENVIRON["OLD"]; new = ENVIRON["NEW"] }
        {
            i = index($0, old)
            if (i > 0) {
                rest = substr($0, i + length(old))
                found += index(rest, old) > 0 ? 2 : 1
                $0 = substr($0, 1, i - 1) new rest
            }
            print
        }
        END { exit found != 1 }' "src/core/$1" >"$work/src/core/$1"
}

mutant() { # mutant NAME FILE OLD NEW
    case $1 in
    *"$only"*) ;;
    *) return 0 ;;
    esac
    object="$work/$(basename "$2" .c).o"
    if ! patch_text "$2" "$3" "$4"; then
        result no "$1" "its text is not in src/core/$2 exactly once: $3"
    elif ! compile "$work/src/core/$2" "$object"; then
        result no "$1" "does not compile"
    elif link_and_run; then
        result no "$1" "NOT SEEN in $commands commands"
    else
        how=$(sed -n 's/^# seed.*step/step/p; s/^# died in.*/the machine stopped/p' \
            "$work/log" | head -n 1)
        result yes "$1" "${how:-failed}"
    fi
    cp "src/core/$2" "$work/src/core/$2"
    compile "src/core/$2" "$object"
}

mkdir -p "$work/src/core"
cp src/core/* "$work/src/core/"
for source in src/core/*.c src/host/door.c test/model/*.c; do
    [ "$source" = test/model/interleave.c ] ||
        compile "$source" "$work/$(basename "$source" .c).o"
done
if link_and_run; then
    result yes unchanged "passes"
else
    result no unchanged "fails: the mutants would prove nothing"
    cat "$work/log"
fi

# Granting (G, P1, P7)
mutant shared_beside_exclusive lock.c \
    '(mode == PK_SHARED && pk_lock_oldest_hold(l)->mode == PK_SHARED)' \
    'mode == PK_SHARED'
mutant one_slot_too_many lock.c \
    'return l->n_holds < l->slots;' 'return l->n_holds <= l->slots;'
mutant grant_while_closed lock.c 'if (l->closed != NULL) {' 'if (false) {'
mutant barge_past_waiters lock.c 'l->n_waits == 0 && compatible(' 'compatible('
mutant set_passes_other_queue lock.c 'if (!first || !compatible(' 'if (!compatible('
mutant mismatch_kind_only lock.c 'l->slots != a->c->parts[i].slots' \
    '(l->slots == 0) != (a->c->parts[i].slots == 0)'
mutant smallest_place_of_a_set lock.c \
    'claim->place = place > claim->place ? place' \
    'claim->place = claim->place == 0 ? place'
mutant max_hold_lost_by_waiting lock.c 'if (c->max_hold_ms != 0) {' \
    'if (c->max_hold_ms != 0 && c->place == 0) {'
mutant since_kept_from_queueing lock.c 'c->since_ms = m->clock;' ';'

# Tokens (P2)
mutant set_reuses_token lock.c 'c->token = ++m->last_token;' \
    'c->token = c->n_parts > 1 && m->last_token > 0 ? m->last_token : ++m->last_token;'
mutant leap_too_short machine.c \
    'm->last_token = from + PK_TOKEN_LEAP;' 'm->last_token = from + (1 << 20);'
mutant leap_ignores_the_token machine.c \
    'uint64_t from = c->token > m->last_token ? c->token : m->last_token;' \
    'uint64_t from = m->last_token;'
mutant leap_goes_down_to_the_token machine.c \
    'uint64_t from = c->token > m->last_token ? c->token : m->last_token;' \
    'uint64_t from = c->token != 0 ? c->token : m->last_token;'

# Waking (W, P9)
mutant set_grant_wakes_nobody lock.c '        touch(m, c->parts[i].lock);' ''
mutant opened_lock_wakes_nobody lock.c '    touch(m, l);' ''
mutant end_wakes_nobody lock.c '        touch(m, p->lock);' ''

# Time (S2)
mutant due_means_past machine.c '->at <= m->clock' '->at < m->clock'
mutant clock_goes_back machine.c 'if (stamp > m->clock) {' 'if (stamp != 0) {'
mutant claims_before_leases machine.c \
    'return a->kind < b->kind ? -1 : 1;' 'return a->kind > b->kind ? -1 : 1;'
mutant woken_before_all_ended machine.c \
    '        first = pk_tree_first(&m->timers);' \
    '        pk_locks_settle(m); first = pk_tree_first(&m->timers);'
mutant renewal_never_shortens lease.c \
    'c->ttl_ms != 0 ? c->ttl_ms' 'c->ttl_ms > l->ttl_ms ? c->ttl_ms'

# Ending (E)
mutant no_delay_after_overheld lock.c 'why == PK_END_OVERHELD ||' ''
mutant delay_after_release lock.c \
    'return why == PK_END_EXPIRED ||' \
    'return why == PK_END_RELEASED || why == PK_END_EXPIRED ||'
mutant shorter_delay_wins lock.c \
    'else if (l->closed->at < until)' 'else if (l->closed->at != until)'
mutant waiter_closes_lock lock.c \
    'if (held && c->lock_delay_ms != 0' 'if (c->lock_delay_ms != 0'
mutant release_by_anybody lock.c '|| (*claim)->lease != *l' ''
mutant break_does_not_say_who lock.c '.by = c->principal, ' ''
mutant one_ended_lease_less lease.c \
    'while (m->n_ended > m->limits.ended)' \
    'while (m->n_ended > 1 && m->n_ended >= m->limits.ended)'

# Repeats (R, P8)
mutant timeout_not_remembered lock.c 'if (c->lease->end == PK_END_NONE) {' \
    'if (c->lease->end == PK_END_NONE && e->why != PK_END_TIMED_OUT) {'
mutant timeout_told_as_cancelled lock.c \
    '? PK_TIMEOUT : PK_CANCELLED' '? PK_CANCELLED : PK_CANCELLED'
mutant overtaken_acquire_runs lock.c \
    'c->target > l->forgotten &&' 'c->target <= l->forgotten &&'
mutant refusals_not_remembered lock.c \
    '    pk_lease_remember(m, l, c->request, c->verb, s, 0);' \
    '    (void)m; (void)l; (void)c; (void)s;'
mutant forgotten_goes_down machine.c \
    '*forgotten = oldest > *forgotten ? oldest : *forgotten;' '*forgotten = oldest;'
mutant too_old_off_by_one lease.c 'c->request <= l->forgotten' 'c->request < l->forgotten'
mutant id_of_another_verb_runs lease.c '(a != NULL && a->verb != c->verb) ||' ''

# Keys (K)
mutant keep_touches_any_hold key.c \
    'if (key == NULL || !key->lease->keyed) {' 'if (key == NULL) {'
mutant key_of_anybody key.c \
    'any || pk_bytes_equal(pk_blob_bytes(key->value), c->value) ?' 'true || any ?'
mutant any_is_not_heard key.c 'bool any = c->flags & PK_KEY_ANY;' 'bool any = false;'
mutant value_by_its_length key.c \
    'pk_bytes_equal(pk_blob_bytes(key->value), c->value)' \
    '(pk_blob_len(key->value) == c->value.len)'
mutant added_to_the_old_ttl key.c \
    'pk_lease_left(m, l) + c->ttl_ms' 'l->ttl_ms + c->ttl_ms'
mutant kept_ttl_not_checked key.c \
    'if (ttl < PK_TTL_MIN_MS || ttl > PK_TTL_MAX_MS) {' 'if (ttl > PK_TTL_MAX_MS) {'
mutant keeps_the_first_only key.c \
    'pk_lease_extend(m, leases[i], new_ttl(m, c, leases[i]));' \
    'pk_lease_extend(m, leases[0], new_ttl(m, c, leases[0]));'
mutant dropped_as_released key.c '.why = PK_END_CLOSED}' '.why = PK_END_RELEASED}'
mutant key_lease_not_marked key.c \
    'pk_lease_begin(m, c, true)' 'pk_lease_begin(m, c, false)'
mutant keys_share_one_lease key.c \
    'a.lease = pk_lease_begin(m, c, true);' \
    'a.lease = i == 0 ? pk_lease_begin(m, c, true) : a.lease;'
mutant key_gone_lease_lives lock.c 'if (claim->lease->keyed) {' 'if (false) {'
mutant every_release_ends_the_lease lock.c 'if (claim->lease->keyed) {' 'if (true) {'
mutant acquire_on_a_keyed_lease lock.c \
    'if (lease != NULL && lease->keyed) {' 'if (false) {'
mutant keyed_asked_after_repeats lock.c \
    'if (lease != NULL && lease->keyed) {' \
    'if (lease != NULL && lease->keyed && !pk_lease_repeated(m, lease, c)) {'
mutant keys_counted_as_one_lease lock.c \
    'm->stats.leases + a->claims > m->limits.leases' \
    'm->stats.leases + 1 > m->limits.leases'
mutant keys_counted_as_one_claim lock.c \
    'm->stats.waits + a->claims > m->limits.claims' \
    'm->stats.waits + 1 > m->limits.claims'
mutant labels_of_keys_are_free lock.c \
    '((uint64_t)a->c->label.len + a->c->value.len)' '(uint64_t)a->c->value.len'
mutant keys_are_a_set lock.c 'bool is_set = a->lease != NULL;' 'bool is_set = true;'

# Fences (F, P6)
mutant fence_one_too_low fence.c \
    'if (*rule == PK_FENCING_STALE && !f->shadow) {' \
    'if (*rule == PK_FENCING_STALE && !f->shadow && c->token + 1 < f->token) {'
mutant raise_keeps_request fence.c '        f->request = 0;' ''
mutant late_copy_undoes_write fence.c \
    'c->request <= f->request' 'c->request == f->request'
mutant shadow_mode_still_refuses fence.c \
    'if (*rule == PK_FENCING_STALE && !f->shadow) {' 'if (*rule == PK_FENCING_STALE) {'
mutant shadow_mode_for_all fence.c \
    'if (*rule == PK_FENCING_STALE && !f->shadow) {' 'if (false) {'
mutant shadowed_lowers_the_fence fence.c \
    'if (*rule == PK_FENCING_RAISE) {' 'if (*rule != PK_FENCING_HELD) {'
mutant shadowed_not_counted fence.c '        f->shadowed++;' '        ;'
mutant shadowed_takes_the_request fence.c \
    'c->request != 0 && rule != PK_FENCING_STALE' 'c->request != 0'
mutant shadowed_answer_says_nothing fence.c \
    '.would = rule == PK_FENCING_STALE ? PK_STALE : PK_OK};' '.would = PK_OK};'
mutant unclaimed_can_be_read fence.c \
    'if (anybody && token_of(f) == 0) {' 'if (anybody && f == NULL) {'
mutant check_refuses_in_shadow_mode fence.c \
    'pk_reply(m, c, shadow ? PK_OK : s);' 'pk_reply(m, c, s);'
mutant mode_begins_a_new_count fence.c \
    '        f->shadow = shadow;' '        f->shadow = shadow; f->shadowed = 0;'
mutant kept_for_good fence.c 'if (keep_ms != 0) {' 'if (false) {'
mutant kept_from_the_first_write fence.c \
    '    keep(m, f, c->ttl_ms);' \
    '    if (f->ends == NULL || c->ttl_ms == 0) { keep(m, f, c->ttl_ms); }'
mutant plain_write_leaves_the_end fence.c \
    '    keep(m, f, c->ttl_ms);' '    if (c->ttl_ms != 0) { keep(m, f, c->ttl_ms); }'
mutant shadowed_write_leaves_the_end fence.c \
    '    keep(m, f, c->ttl_ms);' \
    '    if (rule != PK_FENCING_STALE) { keep(m, f, c->ttl_ms); }'
mutant ended_fence_says_no_token fence.c \
    '    pk_event(m, (struct pk_effect){.kind = PK_EV_FENCE_ENDED,' \
    '    f->token = 0; pk_event(m, (struct pk_effect){.kind = PK_EV_FENCE_ENDED,'
mutant late_mode_switches_back machine.c ' || v == PK_FENCE_MODE;' ';'

# Limits (P10)
mutant waits_not_counted lock.c \
    'a->lease->n_holds + a->lease->n_waits >= m->limits.lease_claims' \
    'a->lease->n_holds >= m->limits.lease_claims'
mutant queue_one_longer lock.c \
    'n_waits >= m->limits.lock_waiters' 'n_waits > m->limits.lock_waiters'

# Reading and snapshots (Q)
mutant cursor_included lock.c \
    'order_name(&c->cursor, n) == 0' 'order_name(&c->cursor, n) < 0'
mutant snapshot_loses_place snapshot.c \
    'pk_write_uint(w, c->place);' 'pk_write_uint(w, 0);'
mutant show_of_one_shows_all lease.c 'if (c->target != 0) {' 'if (false) {'
mutant snapshot_loses_keyed snapshot.c \
    'pk_write_byte(w, l->keyed);' 'pk_write_byte(w, 0);'
mutant snapshot_loses_the_mode snapshot.c \
    'pk_write_byte(w, f->shadow);' 'pk_write_byte(w, 0);'
mutant snapshot_loses_shadowed snapshot.c \
    'pk_write_uint(w, f->shadowed);' 'pk_write_uint(w, 0);'
mutant restored_fence_never_ends snapshot.c \
    'pk_fence_keep(m, f, id, until);' '(void)f;'
mutant snapshot_loses_forgotten snapshot.c \
    'pk_write_uint(w, l->forgotten);' 'pk_write_uint(w, 0);'
mutant restored_closing_has_new_id snapshot.c \
    'pk_lock_shut(m, l, id, until)' 'pk_lock_shut(m, l, m->next_seq++, until)'

echo "1..$count"
[ "$failed" -eq 0 ]
