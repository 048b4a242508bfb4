/* SPDX-License-Identifier: MIT */
#include "sim/coverage.h"

#include "core/status.h"

const char *pk_covered_name(enum pk_covered c)
{
    static const char *const names[] = {
#define X(event, name) name,
        PK_COVERED(X)
#undef X
    };
    return names[c];
}

static void count(struct pk_coverage *c, enum pk_covered what, bool happened)
{
    c->counts[what] += happened;
}

static void see_message(struct pk_coverage *c, const struct pk_record *r)
{
    bool lost = r->arg == 0;
    count(c, PK_COVERED_RELEASE_LOST,
          lost && (r->code == PK_WORD_RELEASE || r->code == PK_WORD_DELETE));
    count(c, PK_COVERED_RENEWAL_LOST,
          lost && (r->code == PK_WORD_RENEW || r->code == PK_WORD_EXTEND));
    count(c, PK_COVERED_LATE_GRANT,
          r->code == PK_WORD_GRANTED && r->peer < PK_CLIENTS_MAX &&
              r->arg > c->clients[r->peer].lease_ends_us);
}

static void see_end(struct pk_coverage *c, const struct pk_record *r,
                    struct pk_covered_client *x)
{
    bool expired = r->code == PK_END_EXPIRED;
    count(c, PK_COVERED_EXPIRED, expired);
    count(c, PK_COVERED_EXPIRED_PAUSED, expired && x->paused);
    count(c, PK_COVERED_EXPIRED_CUT, expired && x->cut_until_us > r->at_us);
    count(c, PK_COVERED_UNKNOWN_HOLD, x->holds && !x->knows);
    count(c, PK_COVERED_ZOMBIE, expired && x->believes && x->believed == x->held);
    x->holds = x->knows = false;
}

/* What the service and the client itself say of a client. */
static void see_client(struct pk_coverage *c, const struct pk_record *r,
                       struct pk_covered_client *x)
{
    switch (r->kind) {
    case PK_REC_QUEUED:
        x->waits = true;
        break;
    case PK_REC_LEFT:
        count(c, PK_COVERED_LEFT, true);
        x->waits = false;
        break;
    case PK_REC_GRANTED:
        count(c, PK_COVERED_WAITED, x->waits);
        x->waits = false;
        x->holds = true;
        x->knows = false;
        x->held = r->section;
        x->lease_ends_us = r->arg;
        break;
    case PK_REC_RENEWED:
        x->lease_ends_us = r->arg;
        break;
    case PK_REC_ENDED:
        see_end(c, r, x);
        break;
    case PK_REC_BELIEVED:
        x->knows = x->knows || x->held == r->section;
        x->believes = true;
        x->believed = r->section;
        break;
    case PK_REC_DOUBTED:
        x->believes = false;
        break;
    default:
        break;
    }
}

/* What befalls them, and what the resource says. */
static void see_fault(struct pk_coverage *c, const struct pk_record *r,
                      struct pk_covered_client *x)
{
    switch (r->kind) {
    case PK_REC_PAUSED:
    case PK_REC_RESUMED:
        x->paused = r->kind == PK_REC_PAUSED;
        break;
    case PK_REC_CUT:
        if (r->peer == PK_WHO_SERVICE) {
            x->cut_until_us = r->arg == 0 ? UINT64_MAX : r->arg;
        }
        break;
    case PK_REC_HEALED:
        x->cut_until_us = r->peer == PK_WHO_SERVICE ? 0 : x->cut_until_us;
        break;
    case PK_REC_CRASHED:
        count(c, PK_COVERED_HOLDER_CRASHED, x->holds);
        break;
    case PK_REC_WROTE:
        count(c, PK_COVERED_WRITE_REFUSED, r->code == 1);
        count(c, PK_COVERED_LATE_WRITE, !x->holds || x->held != r->section);
        break;
    case PK_REC_READ:
        count(c, PK_COVERED_CLAIM_REFUSED, r->code != 0);
        break;
    default:
        break;
    }
}

static void see_service(struct pk_coverage *c, const struct pk_record *r)
{
    bool held = false;
    for (uint32_t i = 0; i < PK_CLIENTS_MAX; i++) {
        held = held || c->clients[i].holds;
    }
    count(c, PK_COVERED_FAILOVER_HELD, r->kind == PK_REC_FAILOVER && held);
    count(c, PK_COVERED_CLOCK_JUMPED, r->kind == PK_REC_JUMPED);
    count(c, PK_COVERED_NODE_EMPTIED, r->kind == PK_REC_CRASHED);
}

void pk_coverage_feed(struct pk_coverage *c, const struct pk_record *r)
{
    if (r->kind == PK_REC_SENT) {
        see_message(c, r);
    } else if (r->who < PK_CLIENTS_MAX) {
        see_client(c, r, &c->clients[r->who]);
        see_fault(c, r, &c->clients[r->who]);
    } else {
        see_service(c, r);
    }
}
