/* SPDX-License-Identifier: MIT */
/*
 * What happened during a run, so that a green result is not an empty one: a counter for
 * each kind of event, answer and repeat. A counter that stays 0 in a long run fails it.
 */
#ifndef PICKET_TEST_COVERAGE_H
#define PICKET_TEST_COVERAGE_H

#include <stdint.h>

#include "pair.h"

/*  X(name) */
#define COVERAGE(X)                                                                      \
    X(grants)                                                                            \
    X(grants_at_once)                                                                    \
    X(grants_by_wakeup)                                                                  \
    X(grants_of_sets_at_once)                                                            \
    X(grants_of_sets_by_wakeup)                                                          \
    X(grants_of_slots)                                                                   \
    X(shared_runs)                                                                       \
    X(queued)                                                                            \
    X(queued_sets)                                                                       \
    X(queued_fourth_or_later)                                                            \
    X(busy)                                                                              \
    X(busy_closed)                                                                       \
    X(mismatch)                                                                          \
    X(left_timed_out)                                                                    \
    X(left_withdrawn)                                                                    \
    X(left_with_lease)                                                                   \
    X(ended_released)                                                                    \
    X(ended_closed)                                                                      \
    X(ended_expired)                                                                     \
    X(ended_overheld)                                                                    \
    X(ended_broken)                                                                      \
    X(ended_restored)                                                                    \
    X(lease_expired)                                                                     \
    X(lease_closed)                                                                      \
    X(lease_restored)                                                                    \
    X(lock_closed)                                                                       \
    X(lock_opened)                                                                       \
    X(values)                                                                            \
    X(leaps)                                                                             \
    X(fence_raised)                                                                      \
    X(fence_set)                                                                         \
    X(fence_kept)                                                                        \
    X(fence_ended)                                                                       \
    X(fence_shown_kept)                                                                  \
    X(fence_mode)                                                                        \
    X(fence_mode_again)                                                                  \
    X(fence_mode_too_old)                                                                \
    X(fence_mode_limit)                                                                  \
    X(shadowed_claim)                                                                    \
    X(shadowed_set)                                                                      \
    X(shadowed_set_kept)                                                                 \
    X(shadowed_get)                                                                      \
    X(check_stale_in_shadow)                                                             \
    X(check_unclaimed_in_shadow)                                                         \
    X(fence_shown)                                                                       \
    X(fence_shown_shadowed)                                                              \
    X(version_set)                                                                       \
    X(version_held)                                                                      \
    X(version_refused)                                                                   \
    X(stale)                                                                             \
    X(unclaimed)                                                                         \
    X(notheld)                                                                           \
    X(notfound)                                                                          \
    X(lost)                                                                              \
    X(lost_forgotten)                                                                    \
    X(badarg)                                                                            \
    X(renewals)                                                                          \
    X(rows_of_locks)                                                                     \
    X(rows_of_holds)                                                                     \
    X(rows_of_waits)                                                                     \
    X(limit_leases)                                                                      \
    X(limit_locks)                                                                       \
    X(limit_claims)                                                                      \
    X(limit_lease_claims)                                                                \
    X(limit_lock_waiters)                                                                \
    X(limit_set_locks)                                                                   \
    X(limit_fences)                                                                      \
    X(limit_label_bytes)                                                                 \
    X(limit_value_bytes)                                                                 \
    X(limit_stored_bytes)                                                                \
    X(repeat_open)                                                                       \
    X(repeat_open_lost)                                                                  \
    X(repeat_close)                                                                      \
    X(repeat_held)                                                                       \
    X(repeat_waiting)                                                                    \
    X(repeat_ended)                                                                      \
    X(repeat_busy)                                                                       \
    X(repeat_timeout)                                                                    \
    X(repeat_cancelled)                                                                  \
    X(repeat_release)                                                                    \
    X(repeat_cancel)                                                                     \
    X(repeat_break)                                                                      \
    X(repeat_leap)                                                                       \
    X(repeat_fence_set)                                                                  \
    X(repeat_other_verb)                                                                 \
    X(repeat_too_old)                                                                    \
    X(fence_too_old)                                                                     \
    X(limit_tokens)                                                                      \
    X(key_taken)                                                                         \
    X(key_taken_several)                                                                 \
    X(key_busy)                                                                          \
    X(key_mismatch)                                                                      \
    X(key_limit)                                                                         \
    X(key_kept)                                                                          \
    X(key_kept_any)                                                                      \
    X(key_added_to)                                                                      \
    X(key_notheld)                                                                       \
    X(key_ttl_too_long_or_short)                                                         \
    X(key_dropped)                                                                       \
    X(key_dropped_some)                                                                  \
    X(key_dropped_none)                                                                  \
    X(key_released)                                                                      \
    X(key_broken)                                                                        \
    X(key_lease_acquires)                                                                \
    X(leap_from_token)                                                                   \
    X(show_one_request)                                                                  \
    X(renewed_as_heard)                                                                  \
    X(renewed_with_holds)                                                                \
    X(renewed_with_waits)                                                                \
    X(renewed_with_outcomes)                                                             \
    X(restores)

struct coverage {
#define X(name) uint64_t name;
    COVERAGE(X)
#undef X
};

/* Counts what the pair's last step did. */
void coverage_count(struct coverage *k, const struct pair *p, const struct pk_command *c);
/* Prints `# name count` lines; returns how many counters are 0. */
unsigned coverage_print(const struct coverage *k);

#endif
