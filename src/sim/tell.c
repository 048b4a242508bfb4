/* SPDX-License-Identifier: MIT */
#include "sim/tell.h"

#include "core/status.h"
#include "sim/world.h"

/* What stands for what in the sentences below:
 *     %w  who                 %t  " with token 3", or nothing without a token
 *     %p  peer                %u  " until 8.200 s", or nothing for good
 *     %a  arg, a number       %d  arg, as a signed length of time
 *     %r  why it ended        %k  the token
 *     %m  what was said       %o  what was to be done
 *     %n  number of who       %s  arg, a signed number                                */
static const char *const sentences[PK_RECORD_KINDS] = {
    [PK_REC_QUEUED] = "%w waits in the queue",
    [PK_REC_LEFT] = "%w no longer waits: %r",
    [PK_REC_GRANTED] = "the service gives the lock to %w%t",
    [PK_REC_RENEWED] = "the service keeps %w's lease%u",
    [PK_REC_ENDED] = "for the service, %w's hold%t is over: %r",
    [PK_REC_TRUSTED] = "%w's library trusts its lease%u",
    [PK_REC_LOST] = "%w's library knows that the lock is lost",
    [PK_REC_BELIEVED] = "%w believes that it holds the lock%t",
    [PK_REC_RAISED] = "the fence stands at token %k",
    [PK_REC_PAUSED] = "%w stands still%u",
    [PK_REC_RESUMED] = "%w goes on",
    [PK_REC_CUT] = "the link from %w to %p is cut%u",
    [PK_REC_HEALED] = "the link from %w to %p is whole again",
    [PK_REC_JUMPED] = "%w's wall clock jumps by %d",
    [PK_REC_DRIFTS] = "%w's clock runs fast by %s millionths",
    [PK_REC_FAILOVER] = "the service has no leader%u",
    [PK_REC_CRASHED] = "%w crashes and forgets all it knew",
    [PK_REC_DIGEST] = "the state of replica %n has been compared",
};

static const char *const doubts[] = {
    [PK_DOUBT_RELEASED] = "%w gives the lock back",
    [PK_DOUBT_REFUSED] = "%w learns from the resource that it is too late",
    [PK_DOUBT_CLOCK] = "%w sees by its own clock that its lease is over",
    [PK_DOUBT_CRASHED] = "%w no longer believes anything",
    [PK_DOUBT_ANEW] = "%w forgets what it believed and asks anew",
};

enum pk_weight pk_record_weight(const struct pk_record *r)
{
    switch (r->kind) {
    case PK_REC_SENT:
    case PK_REC_RENEWED:
    case PK_REC_TRUSTED:
    case PK_REC_DIGEST:
    case PK_REC_DRIFTS:
        return PK_WEIGHT_DETAIL;
    default:
        return PK_WEIGHT_EVENT;
    }
}

static const char *sentence_of(const struct pk_record *r)
{
    switch (r->kind) {
    case PK_REC_SENT:
        return r->arg == 0 ? "%w says \"%m\" to %p%t; it gets lost"
                           : "%w says \"%m\" to %p%t";
    case PK_REC_DOUBTED:
        return r->code <= PK_DOUBT_ANEW ? doubts[r->code] : "%w doubts";
    case PK_REC_READ:
        return r->code != 0 ? "the resource refuses to be read by %w%t" : "%w reads %a%t";
    case PK_REC_WROTE:
        return r->code != 0 ? "the resource refuses %w's write of %a%t"
                            : "%w writes %a%t";
    case PK_REC_IGNORED:
        return "%w can't %o now";
    default:
        return r->kind < PK_RECORD_KINDS ? sentences[r->kind] : "?";
    }
}

static void add_length(const struct pk_record *r, struct pk_prose *out)
{
    pk_prose_add(out, (int64_t)r->arg < 0 ? "" : "+");
    pk_prose_seconds(out, (int64_t)r->arg);
    pk_prose_add(out, " s");
}

static void add_labelled(struct pk_prose *out, const char *label, uint64_t token)
{
    if (token != 0) {
        pk_prose_add(out, label);
        pk_prose_number(out, token);
    }
}

static void add_end(const struct pk_record *r, struct pk_prose *out)
{
    bool known = r->code < PK_END_COUNT;
    pk_prose_add(out, pk_end_text(known ? (enum pk_end)r->code : PK_END_NONE));
}

static void fill_in(char what, const struct pk_record *r, struct pk_prose *out)
{
    switch (what) {
    case 'w':
        pk_prose_who(out, r->who);
        break;
    case 'p':
        pk_prose_who(out, r->peer);
        break;
    case 't':
        add_labelled(out, " with token ", r->token);
        break;
    case 'k':
        pk_prose_number(out, r->token);
        break;
    case 'n':
        pk_prose_number(out, r->who);
        break;
    case 'a':
        pk_prose_number(out, r->arg);
        break;
    case 's':
        pk_prose_signed(out, (int64_t)r->arg);
        break;
    case 'd':
        add_length(r, out);
        break;
    case 'u':
        if (r->arg != 0) {
            pk_prose_add(out, " until ");
            pk_prose_clock(out, r->arg);
            pk_prose_add(out, " s");
        }
        break;
    case 'm':
        pk_prose_add(out, pk_word_name(r->code));
        break;
    case 'o':
        pk_prose_add(out, r->code < PK_OP_COUNT ? pk_op_name((enum pk_op)r->code) : "?");
        break;
    default:
        add_end(r, out);
        break;
    }
}

void pk_record_tell(const struct pk_record *r, struct pk_prose *out)
{
    for (const char *s = sentence_of(r); *s != '\0'; s++) {
        if (*s == '%') {
            fill_in(*++s, r, out);
        } else {
            pk_prose_bytes(out, s, 1);
        }
    }
}
