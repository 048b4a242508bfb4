/* SPDX-License-Identifier: MIT */
/*
 * The keeper: when to renew a lease, and how long it can be trusted. Pure arithmetic:
 * times come in as milliseconds of the holder's own clock, so the simulator runs this
 * very code.
 *
 *     sent ................................ safe_until ........ sent + ttl
 *      |   renew at ttl/3   overdue at ttl/2     |     margin       |
 *                                                |                  the service may give
 *                                                |                  it away (P4)
 *                                                grace ...... lost
 *
 * Promise kept here (P5): validity is counted from before the renewal was sent, and ends
 * a margin early. The margin covers clock rates that differ by up to 1 % (2 % of the TTL)
 * and 50 ms, or a tenth of a short TTL, for getting the news to whoever must act on it.
 * Lost is final: a renewal acknowledged after that revives nothing.
 */
#ifndef PICKET_CLIENT_KEEPER_H
#define PICKET_CLIENT_KEEPER_H

#include <stdbool.h>
#include <stdint.h>

struct pk_keeper {
    uint64_t ttl_ms;
    uint64_t margin_ms; /* asked for; the default is the floor */
    uint64_t grace_ms;
    uint64_t sent_ms;  /* when the last acknowledged renewal was sent */
    uint64_t next_ms;  /* when to send the next */
    uint32_t failures; /* renewals in a row that failed */
};

enum pk_trust { PK_TRUST_SAFE, PK_TRUST_OVERDUE, PK_TRUST_SUSPENDED, PK_TRUST_LOST };

/* The margin that a TTL gets when at least `asked` is wanted. */
uint64_t pk_keeper_margin(uint64_t ttl_ms, uint64_t asked);

/* A renewal (or the opening) that was sent at `sent_ms` has been acknowledged with this
 * TTL. `hint_ms`: the service's wish for the next, kept between a tenth and a half of the
 * TTL; 0: a third. */
void pk_keeper_acked(struct pk_keeper *k, uint64_t sent_ms, uint64_t ttl_ms,
                     uint64_t hint_ms);
/* A renewal failed without a word about the lease: when to try again, with jitter by
 * `random`. */
void pk_keeper_failed(struct pk_keeper *k, uint64_t now_ms, uint64_t random);

/* The next renewal is wanted at once; a little later, if the last one was just sent. */
void pk_keeper_hurry(struct pk_keeper *k, uint64_t now_ms);

uint64_t pk_keeper_safe_until(const struct pk_keeper *k);
/* The end of all hope: safe_until + grace. */
uint64_t pk_keeper_lost_at(const struct pk_keeper *k);
enum pk_trust pk_keeper_trust(const struct pk_keeper *k, uint64_t now_ms);

/* The pause before try number `failures` (from 1) of anything: doubles from `least` up to
 * `most`, half of it random. */
uint64_t pk_backoff_ms(uint32_t failures, uint64_t least, uint64_t most, uint64_t random);

#endif
