#!/bin/sh
# SPDX-License-Identifier: MIT
# Proves that the simulator sees: plants one mistake at a time into a copy of a product's
# source, links the simulator with it and wants a promise to be broken.
#
#     test/sim/mutants.sh [--all] BUILD [TEXT]
#
# BUILD is a build folder with test/sim built; the rest of the product comes from its
# libraries. --all plants also those that take long to show; with TEXT, only those whose
# name contains it. TAP on stdout, with the promise and the seed that gave the mistake
# away. A mutant whose text is no longer in the source fails too, so that the list can't
# rot. Each has the options under which it shows soon.
#
# Not planted, because they break no promise: a reign that begins before the barrier of
# its term has been applied, and serving before that. Both only stamp too low, which
# stretches leases, and every command, reads too, still goes through the log.
set -eu
cd "$(dirname "$0")/../.."
all=
[ "$1" != --all ] || {
    all=yes
    shift
}
build=$1
only=${2:-}
cc=${CC:-cc}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
count=0
failed=0

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
    mkdir -p "$work/$(dirname "$1")"
    [ -f "$work/$1" ] || cp "$1" "$work/$1"
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
        END { exit found != 1 }' "$work/$1" >"$work/patched" &&
        mv "$work/patched" "$work/$1"
}

compile() { # compile SOURCE OBJECT
    "$cc" -std=c11 -O2 -w -D_GNU_SOURCE -Isrc -Iinclude -Itest -Itest/sim -c "$1" -o "$2"
}

# Objects come first, so that the libraries' own copies of them are not taken.
link_and_run() { # link_and_run OPTIONS...
    "$cc" "$work"/*.o -Wl,--start-group "$build/test/libsimulator.a" \
        "$build/test/libmodel.a" "$build/libpicket-server.a" "$build/libpicket-raft.a" \
        "$build/libpicket.a" -Wl,--end-group -lraft -luv -lpthread -o "$work/sim"
    timeout 120 "$work/sim" "$@" >"$work/log" 2>&1
}

# mutant NAME OPTIONS FILE OLD NEW [FILE OLD NEW]...
mutant() {
    name=$1
    options=$2
    shift 2
    case $name in
    *"$only"*) ;;
    *) return 0 ;;
    esac
    rm -rf "$work/src" "$work/test" "$work"/mutant*.o
    while [ $# -gt 0 ]; do
        if ! patch_text "$1" "$2" "$3"; then
            result no "$name" "its text is not in $1 exactly once: $2"
            return 0
        fi
        shift 3
    done
    for source in "$work"/src/*/*.c "$work"/test/*/*.c; do
        [ -f "$source" ] || continue
        if ! compile "$source" "$work/mutant-$(basename "$source" .c).o"; then
            result no "$name" "does not compile"
            return 0
        fi
    done
    # shellcheck disable=SC2086 # the options are several words
    link_and_run $options || :
    how=$(sed -n 's/^not ok [0-9]* *- seed/seed/p' "$work/log" | head -n 1)
    if [ -n "$how" ]; then
        result yes "$name" "$how"
    else
        result no "$name" "NOT SEEN with $options"
    fi
}

# The same for one that takes more than a few seconds.
slow_mutant() {
    [ -z "$all" ] || mutant "$@"
}

compile test/sim/sim_run.c "$work/sim_run.o"
if link_and_run --seeds 1-100; then
    result yes unchanged "passes"
else
    result no unchanged "fails: the mutants would prove nothing"
    sed 's/^/# /' "$work/log" | tail -n 5
fi

seeds='--seeds 1-1500'

# Guards around the library. The index inside each entry and guard G2 are two cures of
# one illness, so either alone is not missed. G5 keeps out what depends on the addresses
# of memory: it can't be missed twice the same way.
mutant g1_off "$seeds --snapshots 16" src/raft/guard.c \
    'return m->type == RAFT_INSTALL_SNAPSHOT && !g->off.no_g1 &&' 'return false &&'
mutant g2_and_index_rule_off \
    "$seeds --seconds 30 --snapshots 8 --only stalls --only crash --only pause_node" \
    src/raft/guard.c \
    'a->prev_log_index + a->n_entries < ours && a->leader_commit > ours;' 'false;' \
    src/raft/state.c 'if (e.index <= r->last_entry) {' 'if (false) {'
mutant g3_off "$seeds --snapshots 16" src/raft/guard.c \
    '        s->last_term = term;' ''
mutant g4_off "$seeds --only join --only leave --only crash" src/raft/guard.c \
    '        m->append_entries.n_entries = n;' ''
slow_mutant g6_off "--seeds 1-10000 --snapshots 6 --only crash --only crash_all \
    --only pause_node --only pause_leader --only stay_down" src/raft/guard.c \
    '        v->term = term;' ''

mutant g7_off "$seeds --snapshots 32 --only crash_all --only stalls --only slow_disk \
    --only join --only leave" src/raft/guard.c \
    '    own->configuration_index = g->raft->configuration_uncommitted_index;' ''

# A disk that lies: not the product's mistakes, but the judge must see what they do.
mutant last_entry_lost_by_a_crash "$seeds" test/sim/sim_io.c \
    '    crash_lane(s, &s->taken);' '    crash_lane(s, &s->taken);
     if (s->o.disk->count > 1) {
         sim_disk_truncate(s->o.disk, s->o.disk->first + s->o.disk->count - 1);
     }'
slow_mutant vote_not_written "--seeds 1-10000 --only crash --only crash_all" \
    test/sim/sim_io.c 'sim_of(io)->o.disk->vote = vote;' '(void)io; (void)vote;'

# The log and what is answered about it (P3)
mutant lost_leadership_is_refused "$seeds" src/server/turn.c \
    'refuse(t, 0, flight_at(t, 0)->n_tickets, PK_REFUSED_UNKNOWN);' \
    'refuse(t, 0, flight_at(t, 0)->n_tickets, PK_REFUSED_NOT_LEADER);'
mutant answers_in_wrong_order "$seeds" src/server/turn.c \
    '*ticket_at(t, (size_t)s->nth)' \
    '*ticket_at(t, f->n_tickets - 1 - (size_t)s->nth)'
mutant entries_of_others_answer_ours "$seeds" src/server/turn.c \
    'if (e->origin != t->origin) {' 'if (false) {'
mutant reads_from_local_state "$seeds --only isolate_leader --only pause_leader" \
    src/server/turn.c \
    '    size_t size = pk_command_size(c);' \
    '    if ((pk_verb_fields(c->verb) & PK_F_READ) != 0) {
         struct pk_effects e = {0};
         pk_machine_step(pk_replica_machine(t->replica), c, &e);
         t->hooks.answer(t->hooks.ctx, ticket, c, &e);
         pk_effects_free(&e);
         return true;
     }
     size_t size = pk_command_size(c);'

# Time (P4)
mutant clock_5_percent_fast "$seeds" src/server/reign.c \
    'r->tau_ms += step;' 'r->tau_ms += step + (r->now_ms + step) / 20 - r->now_ms / 20;'
mutant clock_goes_on_without_reign "$seeds" src/server/reign.c \
    'r->tau_ms = machine_clock_ms;' \
    'uint64_t own = r->tau_ms + (r->now_ms == 0 ? 0 : now_ms - r->now_ms);
     r->tau_ms = own > machine_clock_ms ? own : machine_clock_ms;'
mutant expired_100_ms_early "$seeds" src/core/machine.c \
    '->at <= m->clock) {' '->at <= m->clock + 100) {'

# The client's view (P5)
mutant validity_from_later_than_sent "$seeds" src/client/keeper.c \
    'k->sent_ms = sent_ms;' 'k->sent_ms = sent_ms + ttl_ms / 10;'
mutant no_margin_for_rates "$seeds" src/client/keeper.c \
    'return wanted < ttl_ms ? wanted : ttl_ms;' 'return 0;'

# The machine and its snapshots (P2, P6, P8, P9, R12)
mutant ended_lease_can_acquire "$seeds" src/core/lock.c \
    'struct pk_lease *lease = pk_lease_alive(m, c);' \
    'struct pk_lease *lease = pk_lease_find(m, c->lease);
     lease = lease != NULL ? lease : pk_lease_alive(m, c);'
mutant release_ignores_token "$seeds" src/core/lock.c \
    'pk_tree_find(&l->holds, &c->token, order_token);' 'pk_tree_first(&l->holds);'
mutant end_wakes_nobody "$seeds" src/core/lock.c '        touch(m, p->lock);' ''
mutant answers_not_remembered "$seeds" src/core/lease.c \
    '    if (a != NULL) {' '    if (false) {'
mutant answers_not_in_snapshot "$seeds" src/core/snapshot.c \
    'write_replies(w, &l->replies);' 'write_replies(w, &(struct pk_replies){0});'
mutant tokens_begin_anew_after_snapshot "$seeds" src/core/snapshot.c \
    '        read_fences(r, m);' \
    '        read_fences(r, m); m->last_token = m->stats.holds == 0 ? 0 : m->last_token;'
mutant restore_does_not_leap "$seeds --only restore" src/core/machine.c \
    'm->last_token = from + PK_TOKEN_LEAP;' 'm->last_token += 1;' \
    src/raft/state.c 'return done && pk_machine_last_token(m) > floor' 'return done'
mutant lease_ids_again_after_a_restore "$seeds --only restore" src/core/machine.c \
    'm->next_lease = m->next_lease > m->last_token ? m->next_lease : m->last_token;' ''
mutant fence_lets_the_last_one_pass "$seeds" src/core/fence.c \
    'if (*rule == PK_FENCING_STALE && !f->shadow) {' \
    'if (*rule == PK_FENCING_STALE && !f->shadow && c->token + 1 < f->token) {'
mutant restored_state_differs "$seeds" src/core/snapshot.c \
    'c->since_ms = since;' 'c->since_ms = since + 1;'
mutant restored_state_differs_marks_ignored "$seeds" src/core/snapshot.c \
    'c->since_ms = since;' 'c->since_ms = since + 1;' \
    src/raft/state.c 'if (has_diverged(r, &e)) {' 'if (false) {'

echo "1..$count"
[ "$failed" -eq 0 ]
