/* SPDX-License-Identifier: MIT */
/*
 * Any bytes as requests and as answers. A command that was understood is written and
 * read as the same command; one that was not gets one readable line; an answer that was
 * understood is written, in both versions of RESP, and read as the same answer.
 */
#include <stdlib.h>

#include "model/show.h"
#include "proto/proto.h"

static struct pk_bytes args[PK_RESP_ARGS_MAX];

static void demand(bool ok, const char *what)
{
    if (!ok) {
        fprintf(stderr, "%s\n", what);
        abort();
    }
}

static struct pk_bytes all_of(const struct pk_resp_out *o)
{
    return pk_bytes(o->data, o->len);
}

/* ---- requests ---- */

static void same_again(const struct pk_command *c)
{
    static struct pk_proto_scratch scratch;
    static struct pk_bytes again[PK_RESP_ARGS_MAX];
    struct pk_resp_out o = {0};
    struct pk_command back;
    uint32_t n;
    size_t used;
    const char *why;
    pk_proto_write_command(&o, c);
    demand(pk_resp_request(all_of(&o), again, &n, &used, &why) == PK_RESP_ONE,
           "a request that is none");
    demand(pk_proto_read_command(again, n, &scratch, &back, &why) == PK_PROTO_COMMAND,
           why == NULL ? "no longer a command" : why);
    const char *differs = command_difference(c, &back);
    demand(differs == NULL, differs == NULL ? "" : differs);
    pk_resp_free(&o);
}

static void is_readable(const char *why)
{
    size_t len = strlen(why);
    demand(len > 0 && len < PK_PROTO_WHY_MAX, "a sentence of no good length");
    for (size_t i = 0; i < len; i++) {
        demand(why[i] >= ' ' && why[i] <= '~', "a sentence with something odd in it");
    }
}

static void refused(enum pk_proto_got got, const char *why)
{
    struct pk_resp_out o = {0};
    struct pk_effects out = {0};
    struct pk_bytes error;
    is_readable(why);
    pk_proto_write_wrong(&o, got, why);
    enum pk_proto_answer answer = pk_proto_read_answer(all_of(&o), &out, &error);
    if (got == PK_PROTO_WRONG) {
        demand(answer == PK_PROTO_REFUSED, "a refusal that is none");
        demand(pk_proto_error_of(error, NULL) == PK_PROTO_ERROR_ERR, "another code");
    } else {
        demand(answer == PK_PROTO_REPLY && out.list[0].status == PK_BADARG &&
                   pk_bytes_equal(out.list[0].why, pk_text(why)),
               "another reason");
    }
    pk_effects_free(&out);
    pk_resp_free(&o);
}

static void unknown(uint32_t n)
{
    struct pk_resp_out o = {0};
    size_t used;
    pk_proto_write_unknown(&o, args, n);
    demand(pk_resp_whole(all_of(&o), &used) == PK_RESP_ONE && used == o.len,
           "more or less than one line");
    pk_resp_free(&o);
}

static void as_requests(struct pk_bytes in)
{
    static struct pk_proto_scratch scratch;
    uint32_t n;
    size_t used;
    const char *why;
    while (pk_resp_request(in, args, &n, &used, &why) == PK_RESP_ONE) {
        struct pk_command c;
        enum pk_proto_got got = pk_proto_read_command(args, n, &scratch, &c, &why);
        demand((got == PK_PROTO_WRONG || got == PK_PROTO_BADARG) == (why != NULL),
               "a sentence when wrong, and only then");
        if (got == PK_PROTO_COMMAND) {
            demand(pk_command_wrong(&c) == NULL, "a wrong command");
            same_again(&c);
        } else if (got == PK_PROTO_OTHER) {
            unknown(n);
        } else {
            refused(got, why);
        }
        struct pk_limits limits = pk_limits_default();
        if (pk_proto_read_limits(args, n, &limits) == NULL) {
            demand(pk_limits_wrong(&limits) == NULL, "wrong limits");
        }
        in = pk_bytes(in.data + used, in.len - used);
    }
}

/* ---- answers ---- */

static void write_answer(struct pk_resp_out *o, enum pk_proto_answer what,
                         const struct pk_effects *e)
{
    if (what == PK_PROTO_REPLY) {
        pk_proto_write_reply(o, e);
    } else {
        pk_proto_write_event(o, &e->list[0]);
    }
}

static void understood(enum pk_proto_answer what, const struct pk_effects *e)
{
    for (int version = 2; version <= 3; version++) {
        struct pk_resp_out o = {.resp3 = version == 3};
        struct pk_effects again = {0};
        struct pk_bytes error;
        write_answer(&o, what, e);
        demand(pk_proto_read_answer(all_of(&o), &again, &error) == what,
               "an answer of another kind");
        demand(again.count == e->count, "another number of effects");
        for (uint32_t i = 0; i < e->count; i++) {
            const char *differs = effect_difference(&e->list[i], &again.list[i]);
            demand(differs == NULL, differs == NULL ? "" : differs);
        }
        pk_effects_free(&again);
        pk_resp_free(&o);
    }
}

static void as_answers(struct pk_bytes in)
{
    size_t used;
    while (pk_resp_whole(in, &used) == PK_RESP_ONE) {
        struct pk_effects out = {0};
        struct pk_bytes error;
        enum pk_proto_answer what =
            pk_proto_read_answer(pk_bytes(in.data, used), &out, &error);
        if (what == PK_PROTO_REPLY || what == PK_PROTO_EVENT) {
            demand(out.count > 0, "understood nothing");
            understood(what, &out);
        } else {
            demand(out.count == 0, "effects of what was not understood");
        }
        demand(what == PK_PROTO_REFUSED || error.len == 0, "an error for no refusal");
        (void)pk_proto_error_of(error, NULL);
        pk_effects_free(&out);
        in = pk_bytes(in.data + used, in.len - used);
    }
    struct pk_effects out = {0};
    struct pk_bytes error;
    demand(pk_proto_read_answer(in, &out, &error) == PK_PROTO_BROKEN, "not broken");
    pk_effects_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    as_requests(pk_bytes(data, size));
    as_answers(pk_bytes(data, size));
    return 0;
}
