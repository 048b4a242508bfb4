/* SPDX-License-Identifier: MIT */
/*
 * ZooKeeper's own recipe, over its C client: an ephemeral sequential node, a look at who
 * is first, and its deletion. zk-pairs HOST:PORT SECONDS
 */
#include <pthread.h>
#include <string.h>
#include <zookeeper/zookeeper.h>

#include "series.h"

struct recipe {
    zhandle_t *zk;
    char node[256];
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool connected;

static void on_event(zhandle_t *zk, int type, int state, const char *path, void *unused)
{
    (void)zk, (void)path, (void)unused;
    pthread_mutex_lock(&mutex);
    connected = type == ZOO_SESSION_EVENT && state == ZOO_CONNECTED_STATE;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
}

static bool acquire(void *arg)
{
    struct recipe *r = arg;
    struct String_vector all = {0};
    if (zoo_create(r->zk, "/bench/one/lock-", "me", 2, &ZOO_OPEN_ACL_UNSAFE,
                   ZOO_EPHEMERAL | ZOO_SEQUENCE, r->node, sizeof r->node) != ZOK ||
        zoo_get_children(r->zk, "/bench/one", 0, &all) != ZOK) {
        return false;
    }
    const char *own = strrchr(r->node, '/') + 1;
    bool first = true;
    for (int i = 0; i < all.count; i++) {
        first = first && strcmp(all.data[i], own) >= 0;
    }
    deallocate_String_vector(&all);
    return first;
}

static bool release(void *arg)
{
    struct recipe *r = arg;
    return zoo_delete(r->zk, r->node, -1) == ZOK;
}

int main(int argc, char **argv)
{
    struct recipe r = {0};
    zoo_set_debug_level((ZooLogLevel)0);
    r.zk = argc == 3 ? zookeeper_init(argv[1], on_event, 60000, NULL, NULL, 0) : NULL;
    pthread_mutex_lock(&mutex);
    while (r.zk != NULL && !connected) {
        pthread_cond_wait(&changed, &mutex);
    }
    pthread_mutex_unlock(&mutex);
    if (r.zk != NULL) {
        (void)zoo_create(r.zk, "/bench", "", 0, &ZOO_OPEN_ACL_UNSAFE, 0, NULL, 0);
        (void)zoo_create(r.zk, "/bench/one", "", 0, &ZOO_OPEN_ACL_UNSAFE, 0, NULL, 0);
    }
    if (r.zk == NULL || !series_run(strtod(argv[2], NULL), acquire, release, &r)) {
        (void)fprintf(stderr, "zk-pairs HOST:PORT SECONDS: failed\n");
        return 1;
    }
    (void)zookeeper_close(r.zk);
    return 0;
}
