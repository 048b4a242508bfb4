/* SPDX-License-Identifier: MIT */
/* Ours, through the public API: picket-pairs URL SECONDS. */
#include <picket.h>

#include "series.h"

struct ours {
    struct picket *p;
    struct picket_lock *l;
};

static bool acquire(void *arg)
{
    struct ours *o = arg;
    return picket_acquire(o->p, "bench/one", NULL, &o->l) == PICKET_OK;
}

static bool release(void *arg)
{
    struct ours *o = arg;
    bool released = picket_release(o->l) == PICKET_OK;
    picket_lock_close(o->l);
    return released;
}

int main(int argc, char **argv)
{
    struct ours o = {0};
    struct picket_options options = {.ttl_ms = 60000};
    if (argc != 3 || picket_open(argv[1], &options, &o.p) != PICKET_OK ||
        !series_run(strtod(argv[2], NULL), acquire, release, &o)) {
        (void)fprintf(stderr, "picket-pairs URL SECONDS: %s\n", picket_last_error());
        return 1;
    }
    picket_close(o.p);
    return 0;
}
