/* SPDX-License-Identifier: MIT */
/*
 * Standing alone: the gate holds the lock of its name for as long as it admits anybody,
 * so that its memory of fences is the truth. Shared gates have no lock and always stand.
 *
 * Whether it stands is asked before each step that lets something through (P5: the
 * client library's clock answers, without network or thread); a loss is also told by a
 * descriptor, and then the lock is queued for again.
 */
#ifndef PICKET_GATE_STAND_H
#define PICKET_GATE_STAND_H

#include <picket.h>
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct pk_stand {
    uv_loop_t *loop;
    struct picket *store;
    const char *name;
    bool shared;
    void (*changed)(void *ctx, bool stands);
    void *ctx;
    /* The rest is private. */
    struct picket_lock *lock; /* held or waited for; NULL: neither */
    uv_poll_t *poll;          /* of its loss, or of the end of the wait */
    uv_work_t work;
    bool held, working, closing;
    enum picket_status status; /* of the work */
    uint64_t retry_ms;
};

/* Takes the lock, or with `wait` gets in line. Blocks as long as the store needs to
 * answer; other than OK, picket_last_error() says why. */
enum picket_status pk_stand_start(struct pk_stand *s, bool wait);
/* Whether it stands now, by the clock: to be asked before something is let through. */
bool pk_stand_stands(struct pk_stand *s);
/* Whether no loss has been told yet: cheaper, and good enough to refuse early. */
bool pk_stand_held(const struct pk_stand *s);
/* Now and then: tries again what failed. */
void pk_stand_tick(struct pk_stand *s, uint64_t now_ms);
/* Lets the lock go; may block. The loop must run until pk_stand_busy is false. */
void pk_stand_close(struct pk_stand *s);
bool pk_stand_busy(const struct pk_stand *s);

#endif
