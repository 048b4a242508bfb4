/* SPDX-License-Identifier: MIT */
/* Q5: answers to LIST and SHOW are cut by bytes, and say so. G5: so are blockers' values.
 */
#include <stdio.h>
#include <string.h>

#include "core/door.h"
#include "core/machine.h"
#include "tap.h"

enum { VALUE = 30000, LOCKS = 20 };

static struct pk_machine *machine;
static struct pk_effects effects;
static char value[VALUE];

static const struct pk_effect *step(struct pk_command c)
{
    pk_effects_reset(&effects);
    pk_machine_step(machine, &c, &effects);
    return &effects.list[0];
}

static uint64_t acquire(uint64_t lease, const char *name, uint32_t len, uint64_t wait_ms)
{
    struct pk_command c = {.verb = PK_LOCK_ACQUIRE,
                           .lease = lease,
                           .n_parts = 1,
                           .wait_ms = wait_ms,
                           .value = pk_bytes(value, len)};
    c.parts[0] = (struct pk_part){.name = pk_text(name), .mode = PK_EXCLUSIVE};
    return step(c)->status;
}

/* LOCKS locks with large values, held by lease 1; lease 2 has nothing. */
static void begin(void)
{
    machine = pk_machine_new();
    memset(value, 'v', sizeof value);
    for (int i = 0; i < 2; i++) {
        (void)step((struct pk_command){.verb = PK_LEASE_OPEN, .ttl_ms = 60000});
    }
    for (int i = 0; i < LOCKS; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "lock/%02d", i);
        CHECK_U64(acquire(1, name, VALUE, 0), PK_OK);
    }
}

static void end(void)
{
    pk_effects_free(&effects);
    pk_machine_free(machine);
}

/* Rows of LIST after a name; `more` as the reply has it. */
static uint32_t list(const char *after, uint64_t count, uint32_t *more)
{
    *more = step((struct pk_command){.verb = PK_LOCK_LIST,
                                     .name = pk_text("lock/"),
                                     .cursor = pk_text(after),
                                     .count = count})
                ->more;
    return effects.count - 1;
}

TEST(page__a_list_is_cut_by_bytes_and_goes_on_after_the_last_name)
{
    begin();
    uint32_t more;
    /* 8 rows are below 256 KiB, 9 are not. */
    CHECK_U64(list("", PK_PAGE_MAX, &more), 9);
    CHECK_U64(more, 1);
    CHECK(pk_bytes_equal(effects.list[9].name, pk_text("lock/08")));
    CHECK_U64(list("lock/08", PK_PAGE_MAX, &more), 9);
    CHECK_U64(more, 1);
    CHECK_U64(list("lock/17", PK_PAGE_MAX, &more), 2);
    CHECK_U64(more, 0);
    end();
}

TEST(page__that_ends_with_the_last_row_has_no_more)
{
    begin();
    uint32_t more;
    CHECK_U64(list("lock/10", PK_PAGE_MAX, &more), 9);
    CHECK_U64(more, 0);
    CHECK_U64(list("lock/17", 2, &more), 2);
    CHECK_U64(more, 0);
    CHECK_U64(list("lock/16", 2, &more), 2);
    CHECK_U64(more, 1);
    CHECK_U64(list("lock/19", 2, &more), 0);
    CHECK_U64(more, 0);
    end();
}

TEST(page__has_at_least_one_row)
{
    begin();
    struct pk_limits limits = pk_limits_default();
    static char large[PK_VALUE_CEILING];
    uint32_t more;
    limits.value_bytes = PK_VALUE_CEILING;
    (void)step((struct pk_command){.verb = PK_CONFIGURE, .limits = limits});
    (void)step((struct pk_command){.verb = PK_LOCK_VALUE,
                                   .lease = 1,
                                   .name = pk_text("lock/00"),
                                   .token = 1,
                                   .value = pk_bytes(large, sizeof large)});
    CHECK_U64(list("", PK_PAGE_MAX, &more), 1);
    CHECK_U64(more, 1);
    CHECK_U64(effects.list[1].value.len, sizeof large);
    end();
}

TEST(page__of_a_lease_and_of_a_queue_are_cut_too)
{
    begin();
    const struct pk_effect *r = step(
        (struct pk_command){.verb = PK_LEASE_SHOW, .lease = 1, .count = PK_PAGE_MAX});
    CHECK_U64(r->more, 1);
    CHECK_U64(r->holders, LOCKS);
    CHECK_U64(effects.count, 1 + 9);
    for (int i = 0; i < LOCKS; i++) {
        CHECK_U64(acquire(2, "lock/00", VALUE, PK_WAIT_FOREVER), PK_QUEUED);
    }
    r = step((struct pk_command){
        .verb = PK_LOCK_SHOW, .name = pk_text("lock/00"), .count = PK_PAGE_MAX});
    CHECK_U64(r->more, 1);
    CHECK_U64(r->waiters, LOCKS);
    CHECK_U64(effects.count, 1 + 9);
    CHECK_U64(effects.list[9].place, 8); /* one of the nine is the hold */
    r = step((struct pk_command){.verb = PK_LEASE_SHOW, .lease = 2, .count = 1});
    CHECK_U64(r->more, 1);
    end();
}

TEST(page__small_rows_count_too)
{
    machine = pk_machine_new();
    (void)step((struct pk_command){.verb = PK_LEASE_OPEN, .ttl_ms = 60000});
    char name[PK_NAME_MAX + 1];
    for (int i = 0; i < PK_PAGE_MAX; i++) {
        (void)snprintf(name, sizeof name, "lock/%0250d", i);
        CHECK_U64(acquire(1, name, 0, 0), PK_OK);
    }
    uint32_t more;
    /* 128 bytes and 255 of the name each */
    CHECK_U64(list("", PK_PAGE_MAX, &more), (PK_PAGE_BYTES + 382) / 383);
    CHECK_U64(more, 1);
    end();
}

TEST(blocker__is_told_with_a_small_value_only)
{
    begin();
    CHECK_U64(acquire(1, "small", PK_BLOCKER_VALUE, 0), PK_OK);
    CHECK_U64(acquire(1, "large", PK_BLOCKER_VALUE + 1, 0), PK_OK);
    CHECK_U64(acquire(2, "small", 0, 0), PK_BUSY);
    CHECK_U64(effects.list[1].value.len, PK_BLOCKER_VALUE);
    CHECK_U64(acquire(2, "large", 0, 0), PK_BUSY);
    CHECK_U64(effects.list[1].kind, PK_ROW_HOLD);
    CHECK_U64(effects.list[1].value.len, 0);
    CHECK_U64(acquire(2, "large", 0, PK_WAIT_FOREVER), PK_QUEUED);
    CHECK_U64(effects.list[1].value.len, 0);
    end();
}
