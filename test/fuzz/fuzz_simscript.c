/* SPDX-License-Identifier: MIT */
/*
 * Any bytes as a script of the simulator. Reading must end in a script or in a sentence
 * with a line; what was read and written must read the same; and playing it must end,
 * whatever the script wants, and give the same twice.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/export.h"
#include "sim/script.h"

enum { PLAYED_US = 20000000, ACTS_PLAYED = 200 };

static void demand(bool ok, const char *what)
{
    if (!ok) {
        (void)fprintf(stderr, "%s\n", what);
        abort();
    }
}

static void same_when_written(const struct pk_script *s)
{
    struct pk_prose once = {0};
    struct pk_prose twice = {0};
    struct pk_script again;
    struct pk_script_error e;
    pk_script_write(s, &once);
    demand(pk_script_read(once.data, once.len, &again, &e), "written, but unreadable");
    pk_script_write(&again, &twice);
    demand(once.len == twice.len && memcmp(once.data, twice.data, once.len) == 0,
           "not the same when written again");
    pk_prose_free(&once);
    pk_prose_free(&twice);
    pk_script_free(&again);
}

/* Plays it, and tells it in every form there is. */
static uint64_t play(const struct pk_script *s)
{
    struct pk_checker checker;
    struct pk_prose out = {0};
    struct pk_world *w = pk_script_run(s, &checker);
    uint64_t digest = pk_world_digest(w);
    pk_export_json(s, w, &checker, &out);
    pk_export_picture(s, w, &checker, 300, &out);
    pk_prose_free(&out);
    pk_world_free(w);
    return digest;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct pk_script s;
    struct pk_script_error e;
    if (!pk_script_read((const char *)data, size, &s, &e)) {
        demand(e.text[0] != '\0' && s.acts == NULL, "refused without a word");
        return 0;
    }
    same_when_written(&s);
    /* Long ones are bounded too, but slow. */
    s.until_us = s.until_us < PLAYED_US ? s.until_us : PLAYED_US;
    s.n_acts = s.n_acts < ACTS_PLAYED ? s.n_acts : ACTS_PLAYED;
    demand(play(&s) == play(&s), "not the same when played again");
    pk_script_free(&s);
    return 0;
}
