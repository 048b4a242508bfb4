/* SPDX-License-Identifier: MIT */
/*
 * Virtual time: what will happen, in which order, and to whom.
 *
 * A process (a node or a client) has a clock of its own that runs a little fast or slow
 * and may show anything. It can be paused: what happens to it piles up while time goes
 * on. It can be killed: what was meant for that life never happens.
 */
#ifndef PICKET_SIM_QUEUE_H
#define PICKET_SIM_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim_heap.h"

enum { SIM_MS = 1000, SIM_SECOND = 1000000 }; /* in microseconds of virtual time */

struct sim_process;

/* What happens: `self` is the process's own; `what` and `load` are up to the action. A
 * load comes from sim_queue_load; whatever is not given back goes with the queue. */
typedef void sim_action(void *self, uint64_t what, void *load);

struct sim_event {
    uint64_t at_us;
    uint64_t order; /* of scheduling: decides between equal times */
    struct sim_process *who;
    uint64_t life;
    sim_action *happen;
    uint64_t what;
    void *load;
};

struct sim_queue {
    struct sim_event *heap; /* binary, earliest first */
    size_t count, capacity;
    uint64_t now_us;
    uint64_t order;
    uint64_t happened;
    uint64_t hash; /* of everything that happened: same seed, same hash */
    struct sim_heap loads;
};

/* Shows offset + elapsed * (1 + ppm / 10^6). */
struct sim_clock {
    uint64_t offset_us;
    int64_t ppm;
};

struct sim_process {
    struct sim_queue *queue;
    void *self;
    struct sim_clock clock;
    bool up, paused;
    uint64_t life; /* the how-manieth */
    struct sim_event *backlog;
    size_t n_backlog, backlog_capacity;
};

void sim_queue_init(struct sim_queue *q);
void sim_queue_free(struct sim_queue *q);
void *sim_queue_load(struct sim_queue *q, size_t size);
/* Lets everything happen that is due until then; `now_us` ends there. */
void sim_queue_run(struct sim_queue *q, uint64_t until_us);
/* Mixes a number into the hash. */
void sim_queue_note(struct sim_queue *q, uint64_t v);

void sim_process_init(struct sim_process *p, struct sim_queue *q, void *self);
void sim_process_free(struct sim_process *p);
/* Begins the next life. */
void sim_process_start(struct sim_process *p, struct sim_clock clock);
void sim_process_kill(struct sim_process *p);
void sim_process_pause(struct sim_process *p);
/* What piled up happens now, in order. */
void sim_process_resume(struct sim_process *p);
/* Of what piled up only that happens; call sim_process_resume for the rest. */
void sim_process_resume_with(struct sim_process *p, sim_action *happen);
/* Schedules for this life of the process; nothing happens to who is dead. */
void sim_process_at(struct sim_process *p, uint64_t at_us, sim_action *happen,
                    uint64_t what, void *load);

/* What the process's clock shows now, or at a moment of real time; and the first moment
 * at which it shows `ms`. */
uint64_t sim_process_ms(const struct sim_process *p);
uint64_t sim_clock_ms(const struct sim_clock *c, uint64_t real_us);
uint64_t sim_clock_when_us(const struct sim_clock *c, uint64_t ms);

#endif
