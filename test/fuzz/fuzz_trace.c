/* SPDX-License-Identifier: MIT */
/*
 * Any bytes as a trace of a cluster. Reading must end, in a judgement or in a sentence;
 * each line that was read must be the same when it is written and read again; and what
 * was judged can be told in every form.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/replay.h"

static void demand(bool ok, const char *what)
{
    if (!ok) {
        (void)fprintf(stderr, "%s\n", what);
        abort();
    }
}

static void same_when_written(const uint8_t *data, size_t size)
{
    struct pk_trace_reader r;
    struct pk_trace_line l;
    struct pk_trace_line again;
    pk_trace_open(&r, (const char *)data, size);
    while (pk_trace_read(&r, &l)) {
        struct pk_prose once = {0};
        struct pk_prose twice = {0};
        struct pk_trace_reader second;
        pk_trace_write(&(struct pk_trace_line){.kind = PK_TRACE_BEGIN}, &once);
        pk_trace_write(&l, &once);
        pk_trace_open(&second, once.data, once.len);
        demand(pk_trace_read(&second, &again), "no beginning");
        pk_trace_write(&again, &twice);
        demand(pk_trace_read(&second, &again), "written, but unreadable");
        pk_trace_write(&again, &twice);
        demand(strcmp(once.data, twice.data) == 0, "not the same when written again");
        pk_prose_free(&once);
        pk_prose_free(&twice);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint32_t line;
    struct pk_prose out = {0};
    struct pk_replay *r = pk_replay_new(pk_text(NULL));
    const char *wrong = pk_replay_read(r, (const char *)data, size, &line);
    if (wrong == NULL) {
        pk_replay_json(r, &out);
        if (r->n_locks > 0) {
            pk_replay_picture(r, pk_replay_first(r), (struct pk_replay_part){0}, 300,
                              true, &out);
        }
    }
    pk_prose_free(&out);
    pk_replay_free(r);
    same_when_written(data, size);
    return 0;
}
