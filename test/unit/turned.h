/* SPDX-License-Identifier: MIT */
/*
 * For tests of src/raft and src/server/turn.h: one node, that is a turn and a replica on
 * a raft_io in memory, which writes down everything that its hooks are told.
 */
#ifndef PICKET_TEST_TURNED_H
#define PICKET_TEST_TURNED_H

#include "core/wire.h"
#include "memio.h"
#include "server/turn.h"

enum { TOLD_MAX = 512, NOTES_MAX = 64, HEARTBEAT_MS = 30 };

struct told {
    uint64_t who;
    bool answered;
    enum pk_status status; /* of an answer */
    uint64_t lease, token, left_ms;
    char why[128];
    enum pk_refusal refusal;
};

struct node {
    struct mem_disk disk;
    struct mem_io io;
    size_t voters; /* of the first configuration: 1 or 3 */
    struct pk_turn_options turn_options;
    struct pk_replica_options options;
    struct pk_turn *turn;
    struct pk_replica *replica;

    struct told told[TOLD_MAX]; /* answers and refusals, in order */
    unsigned n_told;
    unsigned events[PK_EFFECT_COUNT]; /* effects of all steps, by kind */
    unsigned gaps, standings, closed;
    bool serving;
    uint64_t leader;
    struct pk_read_note notes[NOTES_MAX]; /* to other nodes, in order */
    uint64_t noted_to[NOTES_MAX];
    unsigned n_notes;
    unsigned marks;
    uint64_t mark_index, mark_digest; /* the last one */
    char broken[320];
};

static inline struct told *told_next(struct node *n)
{
    CHECK(n->n_told < TOLD_MAX);
    n->told[n->n_told] = (struct told){0};
    return &n->told[n->n_told++];
}

static inline void node_answer(void *ctx, struct pk_ticket t, const struct pk_command *c,
                               const struct pk_effects *e)
{
    struct told *told = told_next(ctx);
    uint32_t i = 0;
    while (i < e->count && e->list[i].kind != PK_REPLY) {
        i++;
    }
    CHECK(i < e->count);
    const struct pk_effect *reply = &e->list[i];
    CHECK(c == NULL || c->verb == reply->verb);
    told->who = t.who;
    told->answered = true;
    told->status = reply->status;
    told->lease = reply->lease;
    told->token = reply->token;
    told->left_ms = reply->left_ms;
    snprintf(told->why, sizeof told->why, "%.*s", (int)reply->why.len, reply->why.data);
}

static inline void node_refuse(void *ctx, struct pk_ticket t, enum pk_refusal why)
{
    struct node *n = ctx;
    struct told *told = told_next(n);
    told->who = t.who;
    told->refusal = why;
    struct pk_command c = {.verb = PK_LOCK_LIST, .count = 1};
    CHECK(!pk_turn_add(n->turn, &c, t)); /* not while somebody is refused */
}

static inline void node_events(void *ctx, const struct pk_effects *e)
{
    struct node *n = ctx;
    for (uint32_t i = 0; i < e->count; i++) {
        n->events[e->list[i].kind]++;
    }
}

static inline void node_gap(void *ctx)
{
    ((struct node *)ctx)->gaps++;
}

static inline void node_standing(void *ctx, bool serving, uint64_t leader)
{
    struct node *n = ctx;
    n->serving = serving;
    n->leader = leader;
    n->standings++;
}

static inline void node_note(void *ctx, uint64_t to, const struct pk_read_note *note)
{
    struct node *n = ctx;
    CHECK(n->n_notes < NOTES_MAX);
    n->noted_to[n->n_notes] = to;
    n->notes[n->n_notes++] = *note;
}

static inline void node_marked(void *ctx, uint64_t index, uint64_t digest)
{
    struct node *n = ctx;
    n->marks++;
    n->mark_index = index;
    n->mark_digest = digest;
}

static inline void node_broken(void *ctx, const char *why)
{
    struct node *n = ctx;
    CHECK_STR(n->broken, "");
    snprintf(n->broken, sizeof n->broken, "%s", why);
}

/* ---- life ---- */

/* Loads what is on the disk. Returns what pk_replica_start says. */
static inline const char *node_start(struct node *n)
{
    struct pk_turn_hooks hooks = {.ctx = n,
                                  .answer = node_answer,
                                  .refuse = node_refuse,
                                  .events = node_events,
                                  .gap = node_gap,
                                  .standing = node_standing,
                                  .note = node_note,
                                  .marked = node_marked,
                                  .broken = node_broken};
    char why[256] = "";
    n->turn_options.origin++;
    n->options.origin = n->turn_options.origin;
    mem_open(&n->io, &n->disk);
    n->turn = pk_turn_new(&n->turn_options, &hooks);
    struct pk_replica_hooks below = pk_turn_replica_hooks(n->turn);
    n->replica = pk_replica_new(&n->io.io, &n->options, &below, why, sizeof why);
    CHECK_STR(why, "");
    pk_turn_attach(n->turn, n->replica);
    struct pk_member members[3] = {{1, "node-1", PK_MEMBER_VOTER},
                                   {2, "node-2", PK_MEMBER_VOTER},
                                   {3, "node-3", PK_MEMBER_VOTER}};
    const char *wrong = pk_replica_bootstrap(n->replica, members, n->voters);
    CHECK(wrong == NULL);
    return pk_replica_start(n->replica);
}

/* The one and only node of a test: big, and every test begins with a new one. */
static inline struct node *node_new(size_t voters)
{
    static struct node n;
    memset(&n, 0, sizeof n);
    n.voters = voters;
    n.options = (struct pk_replica_options){.id = 1,
                                            .address = "node-1",
                                            .election_ms = MEM_ELECTION_MS,
                                            .reserve = 1024,
                                            .seed = 1};
    n.turn_options.origin = 100;
    return &n;
}

static inline void node_closed(void *ctx)
{
    ((struct node *)ctx)->closed++;
}

/* What was written stays; what was not is lost. */
static inline void node_stop(struct node *n)
{
    mem_flush(&n->io);
    pk_replica_close(n->replica, node_closed, n);
    pk_replica_free(n->replica);
    pk_turn_free(n->turn);
    n->replica = NULL;
    n->turn = NULL;
}

static inline void node_free(struct node *n)
{
    mem_finish_all(&n->io);
    node_stop(n);
    CHECK_U64(n->closed > 0, 1);
    mem_disk_free(&n->disk);
}

/* ---- turns ---- */

static inline void node_turn(struct node *n)
{
    pk_turn_end(n->turn, n->io.now_ms);
}

/* Everything written, and everything that follows from it. */
static inline void node_settle(struct node *n)
{
    do {
        mem_finish_all(&n->io);
        node_turn(n);
    } while (n->io.n_writes > 0);
}

/* Time goes by as it does in a loop that runs. */
static inline void node_pass(struct node *n, uint64_t ms)
{
    while (ms > 0) {
        uint64_t step = ms < HEARTBEAT_MS ? ms : HEARTBEAT_MS;
        mem_tick(&n->io, step);
        node_turn(n);
        ms -= step;
    }
}

static inline uint64_t node_term(struct node *n)
{
    return pk_replica_standing(n->replica).term;
}

/* A lone voter leads at once; of three, node 2 votes for us. */
static inline void node_elect(struct node *n)
{
    for (int i = 0; i < 40 && !pk_replica_standing(n->replica).candidate &&
                    !pk_replica_standing(n->replica).leader;
         i++) {
        node_pass(n, HEARTBEAT_MS);
    }
    if (!pk_replica_standing(n->replica).leader) {
        mem_vote(&n->io, 2, node_term(n) + 1, true);
        mem_vote(&n->io, 2, node_term(n), false);
    }
    CHECK(pk_replica_standing(n->replica).leader);
    node_turn(n);
}

/* Node 2 has what we have. */
static inline void node_ack(struct node *n)
{
    mem_ack(&n->io, 2, node_term(n), pk_replica_standing(n->replica).last_index);
}

/* From the beginning to the point where commands are taken in. */
static inline struct node *node_serving(struct node *n)
{
    CHECK(node_start(n) == NULL);
    node_elect(n);
    node_settle(n);
    if (n->voters > 1) {
        node_ack(n);
        node_turn(n);
    }
    CHECK(pk_turn_serving(n->turn));
    return n;
}

/* ---- asking ---- */

static inline bool node_add(struct node *n, struct pk_command c, uint64_t who)
{
    return pk_turn_add(n->turn, &c, (struct pk_ticket){.who = who});
}

/* Adds, writes, and returns the answer. */
static inline struct told node_ask(struct node *n, struct pk_command c)
{
    unsigned before = n->n_told;
    CHECK(node_add(n, c, 7));
    node_turn(n);
    node_settle(n);
    CHECK_U64(n->n_told, before + 1);
    return n->told[before];
}

static inline struct pk_command lease_open(uint64_t ttl_ms)
{
    return (struct pk_command){.verb = PK_LEASE_OPEN, .ttl_ms = ttl_ms};
}

static inline struct pk_command lock_try(uint64_t lease, const char *name)
{
    return (struct pk_command){.verb = PK_LOCK_ACQUIRE,
                               .lease = lease,
                               .n_parts = 1,
                               .parts = {{pk_text(name), 0, PK_EXCLUSIVE}}};
}

/* The entry of ours at the end of the log, as it is on the disk. */
static inline struct pk_entry last_entry(struct node *n)
{
    struct pk_entry e;
    struct mem_entry *at = &n->disk.entries[n->disk.n - 1];
    CHECK(at->type == RAFT_COMMAND);
    CHECK(pk_entry_open(at->bytes.data, at->bytes.len, &e));
    return e;
}

#endif
