/* SPDX-License-Identifier: MIT */
#include "client/driver.h"

#include <string.h>

const struct pk_driver *pk_driver_at(size_t i)
{
    static const struct pk_driver *const drivers[] = {
        &pk_local_driver, &pk_remote_driver,
#ifdef PICKET_WITH_REDIS
        &pk_redis_driver, &pk_redlock_driver,
#endif
#ifdef PICKET_WITH_ZOOKEEPER
        &pk_zk_driver,
#endif
#ifdef PICKET_WITH_ETCD
        &pk_etcd_driver,
#endif
#ifdef PICKET_WITH_CONSUL
        &pk_consul_driver,
#endif
    };
    return i < sizeof drivers / sizeof drivers[0] ? drivers[i] : NULL;
}

const struct pk_driver *pk_driver_of(const char *url, const char **rest)
{
    const struct pk_driver *d;
    for (size_t i = 0; (d = pk_driver_at(i)) != NULL; i++) {
        size_t len = strlen(d->scheme);
        if (strncmp(url, d->scheme, len) == 0 && url[len] == ':') {
            *rest = url + len + 1;
            return d;
        }
    }
    return NULL;
}

const struct picket_guarantees *pk_driver_declares(const struct pk_driver *d,
                                                   const char *rest)
{
    return d->declares != NULL ? d->declares(rest) : &d->guarantees;
}
