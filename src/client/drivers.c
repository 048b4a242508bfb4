/* SPDX-License-Identifier: MIT */
#include "client/driver.h"

#include <string.h>

const struct pk_driver *pk_driver_at(size_t i)
{
    static const struct pk_driver *const drivers[] = {
        &pk_local_driver,    &pk_remote_driver,
#ifdef PICKET_WITH_REDIS
        &pk_redis_driver,    &pk_redlock_driver,
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
#ifdef PICKET_WITH_POSTGRES
        &pk_postgres_driver,
#endif
    };
    return i < sizeof drivers / sizeof drivers[0] ? drivers[i] : NULL;
}

/* What stands behind `scheme` and its colon; NULL: the URL is of another. */
static const char *behind(const char *url, const char *scheme)
{
    size_t len = scheme != NULL ? strlen(scheme) : 0;
    return len > 0 && strncmp(url, scheme, len) == 0 && url[len] == ':' ? url + len + 1
                                                                        : NULL;
}

const struct pk_driver *pk_driver_of(const char *url, const char **rest)
{
    const struct pk_driver *d;
    for (size_t i = 0; (d = pk_driver_at(i)) != NULL; i++) {
        *rest = behind(url, d->scheme);
        *rest = *rest != NULL ? *rest : behind(url, d->alias);
        if (*rest != NULL) {
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
