/* SPDX-License-Identifier: MIT */
/* The invariant check must be able to fail: each inequality is broken once, by hand, and
 * has to be the one that is reported. */
#include "core/door.h"
#include "core/state.h"
#include "tap.h"

static struct pk_machine *m;
static struct pk_effects effects;

static uint64_t step(struct pk_command c)
{
    pk_effects_reset(&effects);
    pk_machine_step(m, &c, &effects);
    CHECK(effects.list[0].status == PK_OK || effects.list[0].status == PK_QUEUED);
    return effects.list[0].token;
}

static void acquire(uint64_t lease, uint64_t request, const char *name, enum pk_mode mode,
                    uint32_t slots)
{
    step((struct pk_command){.verb = PK_LOCK_ACQUIRE,
                             .lease = lease,
                             .request = request,
                             .parts = {{pk_text(name), slots, mode}},
                             .n_parts = 1,
                             .wait_ms = 5000,
                             .max_hold_ms = request == 1 ? 60000 : 0,
                             .lock_delay_ms = 500});
}

/* Two live leases, an ended one and a key's; held, shared, waited for, semaphore and
 * closed locks; two fences, one of which ends; remembered answers. */
static void build(void)
{
    pk_machine_free(m);
    pk_effects_free(&effects);
    m = pk_machine_new();
    for (int i = 0; i < 3; i++) {
        step((struct pk_command){.verb = PK_LEASE_OPEN,
                                 .request = 100 + (uint64_t)i,
                                 .ttl_ms = i == 2 ? 100 : 10000,
                                 .label = pk_text("label")});
    }
    acquire(3, 1, "closed", PK_EXCLUSIVE, 0);
    step((struct pk_command){.verb = PK_TICK, .stamp_ms = 100});
    acquire(1, 1, "held", PK_EXCLUSIVE, 0);
    acquire(1, 2, "shared", PK_SHARED, 0);
    acquire(2, 2, "shared", PK_SHARED, 0);
    acquire(2, 3, "held", PK_EXCLUSIVE, 0);
    acquire(1, 3, "held", PK_EXCLUSIVE, 0);
    acquire(1, 4, "sem", PK_SLOT, 2);
    acquire(2, 4, "sem", PK_SLOT, 2);
    acquire(1, 5, "brief", PK_EXCLUSIVE, 0);
    step((struct pk_command){
        .verb = PK_LOCK_CANCEL, .lease = 1, .request = 6, .target = 5});
    step((struct pk_command){.verb = PK_FENCE_CLAIM, .name = pk_text("f"), .token = 1});
    step((struct pk_command){
        .verb = PK_FENCE_SET, .name = pk_text("g"), .token = 2, .ttl_ms = 10000});
    step((struct pk_command){.verb = PK_KEY_TAKE,
                             .parts = {{pk_text("key"), 0, PK_EXCLUSIVE}},
                             .n_parts = 1,
                             .value = pk_text("mine"),
                             .ttl_ms = 10000});
    CHECK(pk_machine_check(m) == NULL);
}

static struct pk_lock *lock(const char *name)
{
    struct pk_lock *l = pk_lock_find(m, pk_text(name));
    CHECK(l != NULL);
    return l;
}

static struct pk_claim *claim(uint64_t lease, uint64_t request)
{
    struct pk_claim *c = pk_lease_claim(pk_lease_find(m, lease), request);
    CHECK(c != NULL);
    return c;
}

static void expect(const char *sentence)
{
    const char *wrong = pk_machine_check(m);
    CHECK(wrong != NULL);
    CHECK_STR(wrong, sentence);
}

/* Breaks one field, wants the sentence, and mends it. */
#define BROKEN(field, value, sentence)                                                   \
    do {                                                                                 \
        __typeof__(field) kept = (field);                                                \
        (field) = (value);                                                               \
        expect(sentence);                                                                \
        (field) = kept;                                                                  \
        CHECK(pk_machine_check(m) == NULL);                                              \
    } while (0)

TEST(check__sees_broken_claims)
{
    build();
    struct pk_claim *held = claim(1, 1);
    struct pk_claim *waiting = claim(2, 3);
    struct pk_claim *plain = claim(1, 2);
    BROKEN(held->parts[0].lock, lock("shared"), "I3: a claim does not stand in its lock");
    BROKEN(held->lease, pk_lease_find(m, 2), "I3: a claim of another lease");
    BROKEN(held->token, m->last_token + 1, "I2: a token that was never granted");
    BROKEN(held->seq, m->next_seq, "I2: a claim from the future");
    BROKEN(held->seq, 0, "I2: a claim from the future");
    BROKEN(held->since_ms, m->clock + 1, "I4: a claim that begins in the future");
    BROKEN(held->terms->max_hold_ms, 0,
           "I4: a hold has a timer if and only if it has a max-hold");
    BROKEN(held->terms->timer->owner, waiting, "I4: a claim's timer is not armed");
    BROKEN(held->seq, waiting->seq + 1, "I4: a claim's timer under another id");
    BROKEN(held->parts[0].mode, PK_SLOT, "I8: a claim of another kind");
    BROKEN(held->parts[0].index, 1, "I3: a part leads back to another claim");
    BROKEN(plain->seq, claim(2, 2)->seq, "I2: two claims share a seq");
    BROKEN(plain->token, held->token, "I2: two claims share a token");
}

TEST(check__sees_broken_leases)
{
    build();
    struct pk_lease *one = pk_lease_find(m, 1);
    struct pk_lease *ended = pk_lease_find(m, 3);
    BROKEN(one->id, 0, "I9: leases out of order");
    BROKEN(one->id, 2, "I4: a live lease has no deadline");
    BROKEN(m->next_lease, 4, "I3: a lease id never given out");
    BROKEN(ended->replies, one->replies, "I3: an ended lease still has something");
    uint64_t deadline = one->deadline_ms;
    pk_lease_disarm(m, one);
    expect("I4: a live lease has no deadline");
    pk_lease_arm(m, one, deadline);
    struct pk_lease *root = PK_OWNER(m->deadlines.root, struct pk_lease, by_deadline);
    BROKEN(root->deadline_ms, 1000000, "I4: a live lease has no deadline");
    BROKEN(one->n_holds, one->n_holds + 1, "I7: a lease's counts");
    BROKEN(one->n_waits, 0, "I7: a lease's counts");
    struct pk_claim *second = claim(1, 2);
    struct pk_claim *last = claim(1, 4);
    BROKEN(second->request, 1, "R1: two claims of one request");
    BROKEN(last->request, 6, "R3: a request is both claimed and remembered");
    BROKEN(one->claims.root->up, one->claims.root->up ^ 2, "I9: a lease's claims");
    BROKEN(ended->end, PK_END_NONE, "I4: a live lease has no deadline");
}

TEST(check__sees_broken_keys)
{
    build();
    struct pk_lease *lease = pk_lease_find(m, 4);
    struct pk_claim *key = pk_claim_of(pk_lock_oldest_hold(lock("key")));
    CHECK(lease->keyed && key->lease == lease);
    for (uint64_t id = 1; id <= 2; id++) {
        pk_lease_find(m, id)->keyed = true;
        expect("I10: a keyed lease without its key alone");
        pk_lease_find(m, id)->keyed = false;
    }
    BROKEN(lease->opened_by, 9, "I10: a keyed lease that a request opened");
    BROKEN(key->parts[0].mode, PK_SHARED, "I10: a key is not one exclusive lock");
    BROKEN(key->request, 1, "I10: a key is not a plain hold");
    BROKEN(key->terms->lock_delay_ms, 1, "I10: a key is not a plain hold");
    BROKEN(key->place, 1, "I10: a key is not a plain hold");
    /* Without its key; the lock goes with it. */
    pk_effects_reset(&effects);
    m->out = &effects;
    pk_claim_end(m, key, &(struct pk_ending){.why = PK_END_RELEASED});
    pk_locks_settle(m);
    m->out = NULL;
    expect("I10: a keyed lease without its key alone");
    /* With a max-hold, and so with the timer that I4 wants. */
    build();
    key = pk_claim_of(pk_lock_oldest_hold(lock("key")));
    key->terms->max_hold_ms = 5;
    pk_claim_time(m, key, m->clock + 5);
    expect("I10: a key is not a plain hold");
}

TEST(check__sees_broken_locks)
{
    build();
    struct pk_lock *held = lock("held");
    struct pk_lock *shared = lock("shared");
    struct pk_lock *sem = lock("sem");
    struct pk_lock *closed = lock("closed");
    BROKEN(held->touched, 1, "W1: a lock was left unsettled");
    BROKEN(held->n_holds, 2, "I7: a lock's holders");
    BROKEN(held->n_waits, 1, "I7: a lock's waiters");
    BROKEN(claim(1, 2)->parts[0].mode, PK_EXCLUSIVE,
           "I1: an exclusive holder is not alone");
    BROKEN(sem->slots, 1, "I1: more holders than slots");
    BROKEN(closed->slots, 3, "I6: slots without a claim");
    BROKEN(closed->timer, NULL, "I6: an idle lock");
    BROKEN(closed->timer->owner, held, "I4: a lock's timer");
    BROKEN(shared->holds.root->up, shared->holds.root->up ^ 2, "I9: a lock's trees");
    BROKEN(held->queue.root->up, held->queue.root->up ^ 2, "I9: a lock's trees");
    BROKEN(shared->name[0], 'a', "I9: locks out of order");
}

TEST(check__sees_a_stranded_waiter)
{
    build();
    struct pk_lock *held = lock("held");
    struct pk_claim *waiting = claim(2, 3);
    waiting->parts[0].mode = PK_SHARED;
    claim(1, 1)->parts[0].mode = PK_SHARED;
    expect("I5: a waiter that could be granted");
    CHECK(held->n_waits == 2);
}

TEST(check__sees_queues_and_holds_out_of_order)
{
    build();
    struct pk_claim *a = claim(2, 3);
    struct pk_claim *b = claim(1, 3);
    uint64_t seq = a->seq;
    pk_claim_untime(m, a);
    pk_claim_untime(m, b);
    a->seq = b->seq;
    b->seq = seq;
    expect("I9: a queue out of order");
    build();
    uint64_t token = claim(1, 2)->token;
    claim(1, 2)->token = claim(2, 2)->token;
    claim(2, 2)->token = token;
    expect("I9: holds out of order");
}

TEST(check__sees_broken_counts)
{
    build();
    BROKEN(m->stats.leases, 7, "I7: leases, locks or fences miscounted");
    BROKEN(m->stats.locks, 7, "I7: leases, locks or fences miscounted");
    BROKEN(m->stats.fences, 7, "I7: leases, locks or fences miscounted");
    BROKEN(m->stats.holds, 7, "I7: claims miscounted");
    BROKEN(m->stats.waits, 7, "I7: claims miscounted");
    BROKEN(m->stats.holds, 0, "I7: more holds than counted");
    BROKEN(m->stats.waits, 0, "I7: more claims than counted");
    BROKEN(m->stats.stored_bytes, 7, "I7: stored bytes miscounted");
    BROKEN(m->n_ended, 0, "I7: ended leases miscounted");
    BROKEN(m->last_token, PK_TOKEN_MAX, "I2: more waiters than tokens left");
    BROKEN(m->n_timed, 0, "I7: locks with a timer miscounted");
    BROKEN(m->n_touched, 1, "W1: locks were left unsettled");
    BROKEN(m->clock, m->clock + 500, "I4: something is overdue");
}

TEST(check__sees_broken_fences)
{
    build();
    static const char used[] = "I11: a fence that nobody has claimed was used";
    struct pk_fence *f = PK_OWNER(pk_tree_first(&m->fences), struct pk_fence, node);
    BROKEN(f->name[0], 'z', "I9: fences out of order");
    BROKEN(f->token, PK_TOKEN_MAX + 1, "F5: a fence above all tokens");
    BROKEN(f->epoch, f->epoch + 1, "I13: a fence's mode and its epoch");
    BROKEN(f->shadow, !f->shadow, "I13: a fence's mode and its epoch");
    pk_item_out(m, PK_ITEM_FENCE, f);
    f->token = 0; /* sound, as long as it is bare */
    pk_item_in(m, PK_ITEM_FENCE, f);
    BROKEN(f->request, 1, used);
    BROKEN(f->shadowed, 1, used);
    pk_item_out(m, PK_ITEM_FENCE, f);
    f->value = pk_blob_new(m, pk_text("v"));
    expect(used);
    f->token = 1;
    pk_item_in(m, PK_ITEM_FENCE, f);
    CHECK(pk_machine_check(m) == NULL);
    struct pk_fence *g = PK_OWNER(pk_tree_last(&m->fences), struct pk_fence, node);
    BROKEN(g->token, 0, used);
    BROKEN(g->ends->owner, f, "I4: a fence's timer");
    BROKEN(g->ends, NULL, "I4: timers without an owner");
}

TEST(check__sees_broken_trees)
{
    build();
    struct pk_tree *trees[] = {&m->leases, &m->openings, &m->locks, &m->fences,
                               &m->timers};
    for (size_t i = 0; i < sizeof trees / sizeof trees[0]; i++) {
        BROKEN(trees[i]->root->up, trees[i]->root->up ^ 3, "I9: a tree of the machine");
    }
    struct pk_timer stray = {.kind = PK_TIMER_LOCK, .id = 99, .owner = m};
    pk_timer_arm(m, &stray, m->clock + 1);
    expect("I4: timers without an owner");
    stray.at = UINT64_MAX;
    expect("I9: timers out of order");
    stray.at = m->clock + 1;
    pk_timer_disarm(m, &stray);
    struct pk_lease unknown = {.id = 99};
    pk_lease_arm(m, &unknown, m->clock + 1);
    expect("I4: deadlines without a lease");
    pk_lease_disarm(m, &unknown);
    pk_machine_free(m);
    pk_effects_free(&effects);
    m = NULL;
}

/* A view sums up what it reads, so that it notices memory that changed by itself. */
TEST(view__notices_damaged_memory)
{
    unsigned char bytes[4096];
    build();
    struct pk_replies *replies = pk_lease_find(m, 1)->replies;
    uint64_t *const fields[] = {&replies->forgotten, &replies->ring[0].token};
    for (unsigned damaged = 0; damaged < 3; damaged++) {
        if (damaged > 0) {
            ++*fields[damaged - 1];
        }
        pk_view_begin(m);
        while (!pk_view_is_done(m)) {
            pk_view_read(m, bytes, sizeof bytes);
        }
        CHECK(pk_view_is_sound(m) == (damaged == 0));
        pk_view_end(m);
        if (damaged > 0) {
            expect("I12: the digest is not that of the state");
            --*fields[damaged - 1];
        }
    }
}

TEST(check__sees_a_digest_of_another_state)
{
    build();
    BROKEN(m->items, m->items + 1, "I12: the digest is not that of the state");
    struct pk_lease *ended = m->ended_first;
    BROKEN(ended->ended_nth, m->next_ended, "I12: an end that was never counted");
}
