/* SPDX-License-Identifier: MIT */
#include "client/driver.h"

const struct pk_driver *pk_driver_at(size_t i)
{
    static const struct pk_driver *const drivers[] = {
        &pk_local_driver,
        &pk_remote_driver,
#ifdef PICKET_WITH_REDIS
        &pk_redis_driver,
        &pk_redlock_driver,
#endif
#ifdef PICKET_WITH_POSTGRES
        &pk_postgres_driver,
#endif
    };
    return i < sizeof drivers / sizeof drivers[0] ? drivers[i] : NULL;
}
