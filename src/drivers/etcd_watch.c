/* SPDX-License-Identifier: MIT */
#include "client/error.h"
#include "drivers/etcd.h"

enum picket_status pk_etcd_watch_open(void *own, void **out)
{
    (void)own;
    (void)out;
    return pk_fail(PICKET_UNSUPPORTED, "not yet");
}
enum picket_status pk_etcd_watch_next(void *watch, uint64_t until_ms,
                                      struct pk_effects *out, bool *gap)
{
    (void)watch;
    (void)until_ms;
    (void)out;
    (void)gap;
    return PICKET_OK;
}
int pk_etcd_watch_fd(void *watch)
{
    (void)watch;
    return -1;
}
void pk_etcd_watch_close(void *watch)
{
    (void)watch;
}
void pk_etcd_watch_forked(void *watch)
{
    (void)watch;
}
