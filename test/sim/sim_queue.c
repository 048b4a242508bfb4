/* SPDX-License-Identifier: MIT */
#include "sim_queue.h"

#include <string.h>

#include "core/door.h"

/* ---- the heap ---- */

static bool earlier(const struct sim_event *a, const struct sim_event *b)
{
    return a->at_us != b->at_us ? a->at_us < b->at_us : a->order < b->order;
}

static void push(struct sim_queue *q, const struct sim_event *e)
{
    if (q->count == q->capacity) {
        q->capacity = q->capacity == 0 ? 256 : q->capacity * 2;
        q->heap = pk_door_resize(q->heap, q->capacity * sizeof *q->heap);
    }
    size_t at = q->count++;
    while (at > 0 && earlier(e, &q->heap[(at - 1) / 2])) {
        q->heap[at] = q->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    q->heap[at] = *e;
}

static struct sim_event pop(struct sim_queue *q)
{
    struct sim_event first = q->heap[0];
    struct sim_event last = q->heap[--q->count];
    size_t at = 0;
    for (;;) {
        size_t child = 2 * at + 1;
        if (child + 1 < q->count && earlier(&q->heap[child + 1], &q->heap[child])) {
            child++;
        }
        if (child >= q->count || !earlier(&q->heap[child], &last)) {
            break;
        }
        q->heap[at] = q->heap[child];
        at = child;
    }
    q->heap[at] = last;
    return first;
}

/* ---- the queue ---- */

void sim_queue_init(struct sim_queue *q)
{
    memset(q, 0, sizeof *q);
    sim_heap_init(&q->loads);
}

void sim_queue_free(struct sim_queue *q)
{
    sim_heap_clear(&q->loads);
    pk_door_resize(q->heap, 0);
    q->heap = NULL;
}

void *sim_queue_load(struct sim_queue *q, size_t size)
{
    return sim_heap_take(&q->loads, size);
}

void sim_queue_note(struct sim_queue *q, uint64_t v)
{
    q->hash = (q->hash ^ v) * UINT64_C(0x9e3779b97f4a7c15);
    q->hash ^= q->hash >> 29;
}

static void pile_up(struct sim_process *p, const struct sim_event *e)
{
    if (p->n_backlog == p->backlog_capacity) {
        p->backlog_capacity = p->backlog_capacity == 0 ? 16 : p->backlog_capacity * 2;
        p->backlog = pk_door_resize(p->backlog, p->backlog_capacity * sizeof *p->backlog);
    }
    p->backlog[p->n_backlog++] = *e;
}

static void let_happen(struct sim_queue *q, const struct sim_event *e)
{
    struct sim_process *p = e->who;
    if (!p->up || p->life != e->life) {
        sim_heap_give(e->load);
    } else if (p->paused) {
        pile_up(p, e);
    } else {
        q->happened++;
        sim_queue_note(q, e->at_us ^ (e->order << 40));
        e->happen(p->self, e->what, e->load);
    }
}

void sim_queue_run(struct sim_queue *q, uint64_t until_us)
{
    while (q->count > 0 && q->heap[0].at_us <= until_us) {
        struct sim_event e = pop(q);
        PK_ASSERT(e.at_us >= q->now_us);
        q->now_us = e.at_us;
        let_happen(q, &e);
    }
    q->now_us = until_us;
}

/* ---- processes ---- */

void sim_process_init(struct sim_process *p, struct sim_queue *q, void *self)
{
    memset(p, 0, sizeof *p);
    p->queue = q;
    p->self = self;
}

void sim_process_free(struct sim_process *p)
{
    pk_door_resize(p->backlog, 0);
    p->backlog = NULL;
}

void sim_process_start(struct sim_process *p, struct sim_clock clock)
{
    PK_ASSERT(!p->up);
    p->up = true;
    p->paused = false;
    p->life++;
    p->clock = clock;
}

static void forget_backlog(struct sim_process *p)
{
    for (size_t i = 0; i < p->n_backlog; i++) {
        sim_heap_give(p->backlog[i].load);
    }
    p->n_backlog = 0;
}

void sim_process_kill(struct sim_process *p)
{
    p->up = false;
    p->paused = false;
    forget_backlog(p);
}

void sim_process_pause(struct sim_process *p)
{
    p->paused = true;
}

void sim_process_resume(struct sim_process *p)
{
    p->paused = false;
    size_t i = 0;
    while (i < p->n_backlog && !p->paused) { /* until its disk fails, perhaps */
        struct sim_event e = p->backlog[i++];
        let_happen(p->queue, &e);
        PK_ASSERT(p->up); /* nobody does that to himself */
    }
    p->n_backlog -= i;
    if (i > 0 && p->n_backlog > 0) {
        memmove(p->backlog, p->backlog + i, p->n_backlog * sizeof *p->backlog);
    }
}

void sim_process_resume_with(struct sim_process *p, sim_action *happen)
{
    struct sim_event *first = pk_door_resize(NULL, (p->n_backlog + 1) * sizeof *first);
    size_t n = 0, kept = 0;
    for (size_t i = 0; i < p->n_backlog; i++) {
        if (p->backlog[i].happen == happen) {
            first[n++] = p->backlog[i];
        } else {
            p->backlog[kept++] = p->backlog[i];
        }
    }
    p->n_backlog = kept;
    p->paused = false;
    for (size_t i = 0; i < n; i++) {
        let_happen(p->queue, &first[i]);
    }
    pk_door_resize(first, 0);
}

void sim_process_at(struct sim_process *p, uint64_t at_us, sim_action *happen,
                    uint64_t what, void *load)
{
    if (!p->up) {
        sim_heap_give(load);
        return;
    }
    struct sim_queue *q = p->queue;
    struct sim_event e = {.at_us = at_us > q->now_us ? at_us : q->now_us,
                          .order = q->order++,
                          .who = p,
                          .life = p->life,
                          .happen = happen,
                          .what = what,
                          .load = load};
    push(q, &e);
}

/* ---- clocks ---- */

static uint64_t clock_us(const struct sim_clock *c, uint64_t real_us)
{
    return c->offset_us + real_us + (uint64_t)((int64_t)real_us * c->ppm / SIM_SECOND);
}

uint64_t sim_clock_ms(const struct sim_clock *c, uint64_t real_us)
{
    return clock_us(c, real_us) / SIM_MS;
}

uint64_t sim_clock_when_us(const struct sim_clock *c, uint64_t ms)
{
    uint64_t wanted_us = ms * SIM_MS;
    if (wanted_us <= c->offset_us) {
        return 0;
    }
    uint64_t local = wanted_us - c->offset_us;
    uint64_t rate = (uint64_t)(SIM_SECOND + c->ppm);
    uint64_t real_us = local / rate * SIM_SECOND + local % rate * SIM_SECOND / rate;
    while (clock_us(c, real_us) < wanted_us) { /* one or two steps: rounding */
        real_us++;
    }
    return real_us;
}

uint64_t sim_process_ms(const struct sim_process *p)
{
    return sim_clock_ms(&p->clock, p->queue->now_us);
}
